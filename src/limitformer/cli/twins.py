"""Kernels of finite networks against their limit, entry by entry, in standard errors."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limitformer.kernel.inputs import as_arrays, streams_of
from limitformer.layers.base import Layer
from limitformer.twin.network import last_weights

ROUNDING = 1e-5  # relative, of float32 twins
_BATCH = 16  # networks at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Compared:
    """Mean kernels of twins of one width, or extrapolated in 1/width, against the limit.

    Attributes:
        width, heads, networks: of the twins; None for the extrapolation.
        value, sem: `(n, n)` mean kernel and its standard error, by kind.
        z: (value - limit) / standard error, the limit's included, on and below the diagonal.
        error: |value - limit| / |limit| in the Frobenius norm.
    """

    width: int | None
    heads: int | None
    networks: int | None
    value: dict[str, np.ndarray]
    sem: dict[str, np.ndarray]
    z: dict[str, np.ndarray]
    error: dict[str, float]


def compare(
    net: Layer,
    x: np.ndarray,
    x_mask: np.ndarray | None = None,
    *,
    key: Any,
    widths: Sequence[int],
    networks: int,
    heads: int,
    draws: int,
    progress: Callable[[int, int, float], None] | bool = False,
) -> tuple[Compared, ...]:
    """Twins of growing width, and their value extrapolated to infinite width.

        k_W = k + c / W + O(1/W^2),    weighted least squares over the widths, entry by entry

    One twin gives K = 1/O sum_o f_o f_o^T and T = 1/O <J^T v, J^T v> with v_o = +-1 at random,
    which is unbiased. Heads and head width grow with the width.

    Args:
        net, x, x_mask: a network with a readout, and inputs.
        key: of the weights.
        widths: at least two, each different.
        networks: twins of each width, at least two.
        heads: of the narrowest twins.
        draws: score draws of the limit, where it is an estimate.

    Returns:
        One `Compared` per width, and the extrapolation.
    """
    widths = sorted(set(widths))
    if len(widths) < 2 or widths[0] < 1 or networks < 2:
        raise ValueError(
            f"widths={widths}, networks={networks}: an extrapolation with standard errors needs "
            "two different widths and two networks of each"
        )
    k = net.kernel(np.asarray(x), x_mask=x_mask, dtype=np.float64, draws=draws)
    limit = {kind: np.asarray(getattr(k, kind)) for kind in ("nngp", "ntk")}
    if limit["nngp"].ndim != 2:
        raise ValueError("compare needs a network with a readout; end it in MeanPool and Dense")
    doubt = {
        kind: np.zeros_like(limit[kind])
        if getattr(k, f"{kind}_sem") is None
        else np.asarray(getattr(k, f"{kind}_sem"))
        for kind in limit
    }
    found = []
    for i, width in enumerate(widths):
        count = max(1, round(heads * width / widths[0]))
        values = _sample(net, x, x_mask, jax.random.fold_in(key, i), width, count, networks)
        mean = {kind: v.mean(0) for kind, v in values.items()}
        sem = {kind: v.std(0, ddof=1) / np.sqrt(networks) for kind, v in values.items()}
        found.append(_compared(width, count, networks, mean, sem, limit, doubt))
        if callable(progress):
            progress(i + 1, len(widths), 0.0)
    ends = {kind: _extrapolated(found, kind) for kind in limit}
    mean, sem = ({kind: end[j] for kind, end in ends.items()} for j in (0, 1))
    return (*found, _compared(None, None, None, mean, sem, limit, doubt))


def _compared(width, heads, networks, mean, sem, limit, doubt) -> Compared:
    z, error = {}, {}
    for kind, value in limit.items():
        below = np.tril_indices(len(value))
        spread = np.sqrt(sem[kind] ** 2 + doubt[kind] ** 2 + (ROUNDING * value) ** 2)
        z[kind] = ((mean[kind] - value) / spread)[below]
        error[kind] = float(np.linalg.norm(mean[kind] - value) / np.linalg.norm(value))
    return Compared(width, heads, networks, mean, sem, z, error)


def _extrapolated(found: Sequence[Compared], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The intercept of a straight line in 1/width, and its standard error."""
    u = np.array([1 / c.width for c in found if c.width])[:, None, None]
    value = np.stack([c.value[kind] for c in found])
    floor = ROUNDING * np.abs(value)
    weight = 1 / (np.stack([c.sem[kind] for c in found]) ** 2 + floor**2)
    total, mean = weight.sum(0), (weight * u).sum(0)
    square = (weight * u * u).sum(0)
    det = total * square - mean**2
    rows = (square - mean * u) * weight / det  # the intercept is linear in the values
    return (rows * value).sum(0), np.sqrt((rows**2 / weight).sum(0))


def _sample(net, x, x_mask, key, width: int, heads: int, networks: int) -> dict[str, np.ndarray]:
    """Kernels of independent twins, `(networks, n, n)` by kind, in float32."""
    arrays = as_arrays(x, "x")
    first = streams_of(net, x, x_mask, "x", dtype=np.dtype(np.float32))[0]
    sizes: dict[str, Any] = {"width": width, "heads": heads, "tokens": first.grid}
    if first.ids:
        sizes["vocabulary"] = int(np.max(arrays[0])) + 1
    else:
        sizes["features"] = int(arrays[0].shape[-1])
    if last_weights(net, "/net"):
        sizes["outputs"] = width
    inputs = jnp.asarray(x if first.ids else np.asarray(x, np.float32))
    mask = None if x_mask is None else jnp.asarray(x_mask)
    keys = jax.random.split(key, networks)
    K, T = _many(net, inputs, mask, tuple(sizes.items()), keys)
    return {"nngp": np.asarray(K, float), "ntk": np.asarray(T, float)}


# A size runs only a few times, so that compiling takes longer than running: optimise less.
@functools.partial(
    jax.jit, static_argnums=3, compiler_options={"xla_backend_optimization_level": 1}
)
def _many(net, x, mask, sizes: tuple, keys):
    """K and T of many networks; compiled once for all that have these sizes."""
    together = max(d for d in range(1, _BATCH + 1) if len(keys) % d == 0)
    one = functools.partial(_one, net, x, mask, dict(sizes))
    return jax.lax.map(one, keys, batch_size=together)


def _one(net, x, mask, sizes: dict, key):
    weights, signs, dropped = jax.random.split(key, 3)
    twin = net.twin(key=weights, **sizes)
    f, pull = jax.vjp(lambda params: twin.apply(params, x, mask, key=dropped), twin.params)
    n = f.shape[0]
    v = jax.random.rademacher(signs, f.shape[1:], f.dtype)
    (gradients,) = jax.vmap(pull)(jnp.eye(n, dtype=f.dtype)[:, :, None] * v)
    T = sum(
        jnp.matmul(g.reshape(n, -1), g.reshape(n, -1).T, precision="highest")
        for g in jax.tree.leaves(gradients)
    )
    return jnp.matmul(f, f.T, precision="highest") / f.shape[1], T / f.shape[1]
