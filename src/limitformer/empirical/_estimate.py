"""Means over independently drawn finite networks, with standard errors."""

from collections.abc import Callable, Iterable
from typing import Any, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy import ndarray

from limitformer.empirical._network import check_batch
from limitformer.empirical._nngp import nngp
from limitformer.empirical._ntk import Method, ntk


class Estimate(eqx.Module):
    """Mean kernels of `networks` independent networks and the standard errors of the means.

    Fields of a kind that was not asked for are None.
    """

    nngp: Float[Array | ndarray, "n m *tokens"] | None
    nngp_sem: Float[Array | ndarray, "n m *tokens"] | None
    ntk: Float[Array | ndarray, "n m *tokens"] | None
    ntk_sem: Float[Array | ndarray, "n m *tokens"] | None
    networks: int = eqx.field(static=True)


def estimate(
    make: Callable[[Any], tuple[Callable, PyTree]],
    keys: Iterable[Any],
    x: PyTree,
    y: PyTree | None = None,
    kinds: tuple[str, ...] = ("nngp", "ntk"),
    *,
    method: str = "auto",
    batch: int | None = None,
) -> Estimate:
    """Mean empirical kernels over independent networks, with standard errors.

        mean = 1/R sum_r k_r,     sem^2 = 1/(R (R-1)) sum_r (k_r - mean)^2

    over the R keys, streaming (Welford): memory is that of a few kernels, whatever R. The mean
    estimates the kernel of *this width*; its distance to the limit is O(1/width) and is no part
    of the standard error.

    Args:
        make: `make(key) -> (f, params)`, a freshly drawn network. Return the same function object
            every time: one compilation then serves all networks.
        keys: at least two keys, for example `jax.random.split(key, 100)`.
        x: inputs on the leading axis, an array or a pytree of arrays.
        y: the other inputs; None means x.
        kinds: which of `"nngp"` and `"ntk"` (averaged over outputs) to estimate.
        method: of `ntk`.
        batch: of `nngp` and `ntk`.

    Returns:
        `Estimate` with `nngp`, `nngp_sem`, `ntk`, `ntk_sem` and the number of `networks`.

    Raises:
        ValueError: fewer than two keys, an unknown kind; and what `nngp` and `ntk` raise.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from limitformer import empirical
        >>> linear = lambda w, x: x @ w / 2
        >>> make = lambda key: (linear, jax.random.normal(key, (4, 100)))
        >>> x = jnp.ones((1, 4))
        >>> e = empirical.estimate(make, jax.random.split(jax.random.key(0), 50), x)
        >>> bool(abs(e.nngp[0, 0] - 1.0) < 5 * e.nngp_sem[0, 0])
        True
        >>> float(e.ntk[0, 0]), float(e.ntk_sem[0, 0])
        (1.0, 0.0)
    """
    known = ("nngp", "ntk")
    if isinstance(kinds, str) or not kinds or set(kinds) - set(known):
        raise ValueError(f"kinds must be a non-empty tuple of {known}, got {kinds!r}.")
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {get_args(Method)}, got {method!r}.")
    check_batch(batch)
    count, mean, spread = 0, {}, {}
    for key in keys:
        f, params = make(key)
        count += 1
        for kind in set(kinds):
            if kind == "nngp":
                value = nngp(f, params, x, y, batch=batch)
            else:
                value = ntk(f, params, x, y, method=method, batch=batch)
            if count == 1:
                mean[kind], spread[kind] = value, value * 0
            else:
                before = value - mean[kind]
                mean[kind] = mean[kind] + before / count
                spread[kind] = spread[kind] + before * (value - mean[kind])
    if count < 2:
        raise ValueError(
            f"keys must hold at least two keys for a standard error, got {count}. "
            "Use jax.random.split(key, networks)."
        )

    def sem(kind):
        if kind not in spread:
            return None
        root = np.sqrt if isinstance(spread[kind], np.ndarray) else jnp.sqrt
        return root(spread[kind] / (count * (count - 1)))

    return Estimate(mean.get("nngp"), sem("nngp"), mean.get("ntk"), sem("ntk"), count)
