"""How fast finite networks approach their limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from limitformer import empirical
from limitformer.layers.base import Layer
from limitformer.layers.combine import Serial
from limitformer.layers.dense import Dense

KINDS = ("nngp", "ntk")


@dataclasses.dataclass(frozen=True)
class Width:
    """Twins of one width.

    Attributes:
        width, heads, head_width: sizes of the twins.
        errors: by kind, |k_r - k| / |k| of every twin r, in the Frobenius norm.
        example: by kind, the kernel of the twin whose NNGP error is the median one.
    """

    width: int
    heads: int
    head_width: int
    errors: dict[str, Float[np.ndarray, " networks"]]
    example: dict[str, Float[np.ndarray, "n n"]]

    def mean(self, kind: str) -> float:
        """Mean error of one twin."""
        return float(self.errors[kind].mean())

    def sem(self, kind: str) -> float:
        """Standard error of the mean, over independent twins."""
        errors = self.errors[kind]
        return float(errors.std(ddof=1) / np.sqrt(len(errors)))


@dataclasses.dataclass(frozen=True)
class Slope:
    """The fit log error = intercept + slope * log width, with the slope's standard error."""

    slope: float
    slope_sem: float
    intercept: float

    def at(self, width):
        """The fitted error at a width."""
        return np.exp(self.intercept) * np.asarray(width, float) ** self.slope


@dataclasses.dataclass(frozen=True)
class Convergence:
    """Errors of finite twins against their limit, width by width; made by `convergence`."""

    limit: dict[str, Float[np.ndarray, "n n"]]
    widths: tuple[Width, ...]

    def slope(self, kind: str, narrowest: int = 0) -> Slope:
        """Weighted least squares through the mean errors of twins of at least a width.

        The weights are the inverse variances of log mean, (mean / sem)^2, and the slope's
        standard error follows from them.
        """
        used = [w for w in self.widths if w.width >= narrowest]
        if len(used) < 2:
            raise ValueError(f"a slope needs two widths of at least {narrowest}, got {len(used)}")
        x = np.log([w.width for w in used])
        y = np.log([w.mean(kind) for w in used])
        weight = np.array([(w.mean(kind) / w.sem(kind)) ** 2 for w in used])
        centre = np.average(x, weights=weight)
        spread = np.sum(weight * (x - centre) ** 2)
        slope = np.sum(weight * (x - centre) * y) / spread
        intercept = np.average(y, weights=weight) - slope * centre
        return Slope(float(slope), float(1 / np.sqrt(spread)), float(intercept))


def convergence(
    net: Serial,
    x: np.ndarray,
    limit: dict[str, np.ndarray],
    *,
    key: jax.Array,
    widths: Sequence[int],
    networks: Sequence[int],
    head_width: int,
    tokens: tuple[int, ...],
    progress: Callable[[int, int], None] | None = None,
) -> Convergence:
    """Relative errors of the kernels of single finite twins, as the width grows.

        error_r = |k_r - k| / |k|  ~  1/sqrt(width)

    where k is the limit and k_r the empirical kernel of twin r. Its NNGP is the covariance of the
    outputs given all weights but those of the readout, K_r = w^2/width sum_c h_c(x) h_c(y) + b^2.
    Twins have `width // head_width` heads of `head_width` channels, as in real transformers: for
    attention whose weights are the scores themselves the limit is the same for every `head_width`,
    because only second moments of the scores enter.

    Args:
        net: a network that ends in `Dense`.
        x: inputs (n, ...).
        limit: `{"nngp": (n, n), "ntk": (n, n)}` of the infinite network on x.
        key: randomness of the weights. Twin r has key `fold_in(key, r)` at every width.
        widths: at least one.
        networks: twins of each width, at least two for a standard error.
        head_width: channels of one head.
        tokens: of the input, see `net.twin`.
        progress: called with (widths done, all widths).

    Raises:
        ValueError: `net` does not end in Dense, or fewer than two networks.
    """
    readout = net.layers[-1]
    if not isinstance(readout, Dense):
        raise ValueError(f"net must end in lf.Dense(), but it ends in {type(readout).__name__}")
    if min(networks) < 2:
        raise ValueError(f"networks must be at least 2 at each width, got {tuple(networks)}")
    body = Serial(*net.layers[:-1])
    inputs = jnp.asarray(x)
    found = []
    for done, (width, count) in enumerate(zip(widths, networks, strict=True)):
        sizes = {
            "features": x.shape[-1],
            "tokens": tokens,
            "width": width,
            "heads": max(1, width // head_width),
            "head_width": min(width, head_width),
        }
        draw = _one_twin(net, body, readout, sizes)
        kernels = [draw(jax.random.fold_in(key, r), inputs) for r in range(count)]
        kernels = [{kind: np.asarray(k, float) for kind, k in one.items()} for one in kernels]
        errors = {kind: np.array([_error(k[kind], limit[kind]) for k in kernels]) for kind in KINDS}
        median = int(np.argsort(errors["nngp"])[(count - 1) // 2])
        found.append(Width(width, sizes["heads"], sizes["head_width"], errors, kernels[median]))
        if progress is not None:
            progress(done + 1, len(widths))
    return Convergence({kind: np.asarray(limit[kind], float) for kind in KINDS}, tuple(found))


def _one_twin(net: Layer, body: Serial, readout: Dense, sizes: dict) -> Callable:
    """`draw(key, x)`: the kernels of a fresh twin, compiled once for all twins of this size."""

    def draw(key, x):
        twin = net.twin(key=key, **sizes)
        hidden = eqx.tree_at(lambda t: t.net, twin, body)
        K = empirical.nngp(hidden.apply, twin.params, x)
        return {
            "nngp": readout.w_std**2 * K + readout.b_std**2,
            "ntk": empirical.ntk(twin.apply, twin.params, x),
        }

    # A size runs only a few times, so that compiling takes longer than running: optimise less.
    # Matrix products are library calls and do not change.
    return jax.jit(draw, compiler_options={"xla_backend_optimization_level": 1})


def _error(found: np.ndarray, limit: np.ndarray) -> float:
    return float(np.linalg.norm(found - limit) / np.linalg.norm(limit))
