"""The law of a network of finitely many heads: Gaussian given its attention scores (theory 3)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float
from scipy.special import logsumexp, ndtr

from ..kernel.blocks import memory_budget
from ..kernel.gram import check_kinds
from ..kernel.inputs import as_arrays, float_type, streams_of
from ..kernel.network import Network, cast, needs_of
from ..kernel.progress import Progress
from ..layers.base import Layer, leaves

SCORE_DRAWS = 128
_LINEAR = ("Dense", "Conv", "AvgPool", "MeanPool", "SumPool", "FirstToken", "LastToken", "Flatten")
_LARGEST_CHUNK = 4096


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over draws and its standard error."""

    value: Any
    sem: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Law:
    """Draws of the conditional kernels of a network; made by `net.law`.

    Given the scores of all heads, every output coordinate is an independent Gaussian with the
    kernel of the draw; over draws, a coordinate is a scale mixture of Gaussians, and coordinates
    share their scores: they are exchangeable, not independent.

    Attributes:
        nngp: `(draws, n, n)`, or `(draws, n, n, tokens, tokens)` without a readout.
        ntk: like nngp, the tangent kernel averaged over outputs given the scores; None if not asked
            for.
    """

    nngp: Float[np.ndarray, "draws n n *tokens"]
    ntk: Float[np.ndarray, "draws n n *tokens"] | None = None

    @property
    def draws(self) -> int:
        return len(self.nngp)

    @property
    def mean(self) -> Estimate:
        """E[K]: the kernel of infinitely many heads if one layer has finitely many."""
        return _mean(self.nngp)

    @property
    def variance(self) -> Estimate:
        """Var[K], entry by entry."""
        return _mean((self.nngp - self.nngp.mean(axis=0)) ** 2)

    @property
    def variances(self) -> Float[np.ndarray, "draws points"]:
        """K(x, x) of every input (and token): what the mixture is over."""
        K = self.nngp
        own = np.diagonal(K, axis1=1, axis2=2)  # (draws, *tokens, n)
        if K.ndim == 3:
            return own
        own = np.diagonal(own, axis1=1, axis2=2)  # (draws, n, tokens)
        return own.reshape(len(K), -1)

    @property
    def kurtosis(self) -> Estimate:
        """Excess kurtosis of one coordinate at every input, 3 Var[K_ii] / E[K_ii]^2."""
        v = self.variances
        first, second = v.mean(axis=0), (v * v).mean(axis=0)
        value = 3 * (second / first**2 - 1)
        # delta method, with the covariance of v and v^2 over draws
        change = 3 * ((v * v - second) / first**2 - 2 * second / first**3 * (v - first))
        return Estimate(value, change.std(axis=0, ddof=1) / math.sqrt(len(v)))

    @property
    def second_moment_spread(self) -> Estimate:
        """Relative standard deviation of (1/width) sum_i y_i^2, which does not concentrate."""
        v = self.variances
        first, centred = v.mean(axis=0), v - v.mean(axis=0)
        value = v.std(axis=0) / first
        with np.errstate(invalid="ignore", divide="ignore"):
            change = (centred**2 - centred.var(axis=0)) / (2 * v.std(axis=0) * first) - (
                value / first
            ) * centred
        return Estimate(value, change.std(axis=0, ddof=1) / math.sqrt(len(v)))

    def sample(self, *, key, coordinates: int = 1) -> Float[np.ndarray, "draws *shape"]:
        """Outputs, one set of `coordinates` per draw, `(draws, n, coordinates)`.

        Without a readout `(draws, n, tokens, coordinates)`. Coordinates of a draw share its scores.
        """
        K, shape = self._matrices()
        w, U = np.linalg.eigh(K)
        half = U * np.sqrt(np.maximum(w, 0.0))[:, None, :]
        with jax.enable_x64(True):
            z = np.asarray(jax.random.normal(key, (len(K), K.shape[1], coordinates), jnp.float64))
        return (half @ z).reshape(len(K), *shape, coordinates)

    def density(self, values, point: int = 0) -> Estimate:
        """Density of one coordinate at one input, exactly over the draws.

        p(y) = E[ N(y; 0, K_ii) ]
        """
        y, v = np.asarray(values, float)[:, None], self.variances[:, point]
        return _mean(np.exp(-0.5 * y * y / v) / np.sqrt(2 * np.pi * v), axis=1)

    def joint_density(self, values, points=None) -> Estimate:
        """Density of one coordinate at several inputs together, `values` `(m, points)`."""
        K, _ = self._matrices()
        index = np.arange(K.shape[1]) if points is None else np.asarray(points)
        K = K[:, index[:, None], index]
        y = np.atleast_2d(np.asarray(values, float))
        try:
            L = np.linalg.cholesky(K)
        except np.linalg.LinAlgError:
            raise ValueError(
                "a conditional kernel is singular, so these inputs have no joint density; leave "
                "out inputs (or tokens) that others determine"
            ) from None
        z = np.linalg.solve(L, np.broadcast_to(y.T, (len(K), *y.T.shape)))
        log = -0.5 * np.sum(z * z, axis=1)
        log -= np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)[:, None]
        log -= 0.5 * len(index) * math.log(2 * math.pi)
        top = np.asarray(logsumexp(log, axis=0)) - math.log(len(K))
        sem = np.exp(log - top).std(axis=0, ddof=1) / math.sqrt(len(K)) * np.exp(top)
        return Estimate(np.exp(top), sem)

    def cdf(self, values, point: int = 0) -> Estimate:
        """P(y <= value) of one coordinate at one input."""
        y = np.atleast_1d(np.asarray(values, float))[:, None]
        return _mean(ndtr(y / np.sqrt(self.variances[:, point])), axis=1)

    def tail(self, values, point: int = 0) -> Estimate:
        """P(|y| > value)."""
        y = np.atleast_1d(np.asarray(values, float))[:, None]
        return _mean(2 * ndtr(-np.abs(y) / np.sqrt(self.variances[:, point])), axis=1)

    def quantile(self, probabilities, point: int = 0) -> Estimate:
        """Values that one coordinate stays below with these probabilities."""
        p = np.atleast_1d(np.asarray(probabilities, float))
        if ((p <= 0) | (p >= 1)).any():
            raise ValueError(f"probabilities must lie between 0 and 1, got {probabilities!r}")
        far = 40 * math.sqrt(self.variances[:, point].max())
        found = np.array(
            [
                scipy.optimize.brentq(
                    lambda y, q=q: float(self.cdf(y, point).value[0]) - q, -far, far, xtol=1e-12
                )
                for q in p
            ]
        )
        return Estimate(found, self.cdf(found, point).sem / self.density(found, point).value)

    def _matrices(self) -> tuple[np.ndarray, tuple[int, ...]]:
        """Kernels as square matrices, and the shape of their rows."""
        K = np.asarray(self.nngp, float)
        if K.ndim == 3:
            return K, K.shape[1:2]
        d, n, _, S, _ = K.shape
        return np.swapaxes(K, 2, 3).reshape(d, n * S, n * S), (n, S)


def law(
    net: Any,
    x,
    *,
    key,
    draws: int = 1000,
    x_mask=None,
    kinds=("nngp",),
    score_draws: int = SCORE_DRAWS,
    dtype=None,
    memory=None,
    progress: bool | Callable = False,
) -> Law:
    """Draws of the conditional kernels of a network with finitely many heads, inputs jointly.

        K'(x, y) | scores = (s_OV^2 / H) sum_h A_h(x) K(x, y) A_h(y)^T + b^2,  A_h = zeta(G_h)

    layer by layer, with K random from the second such layer on. Layers with `heads=lf.inf` are
    averaged over (softmax at scale "sqrt" with `score_draws` draws inside every draw).

    Args:
        x, x_mask: inputs as for `net.kernel`; they share their scores' law, so ask for all at once.
        key: randomness of the scores; required.
        draws: of the scores of the whole network.
        kinds: "nngp", "ntk" or both. The tangent kernel is that averaged over outputs given the
            scores, exact if one layer has finitely many heads and only linear layers follow it.
        memory: budget in bytes for a block of draws, or a string such as "2GiB".
        progress: True, or a function `(done, total, seconds left)`.

    Raises:
        ValueError: an NTK that would not be exact.

    Example:
        >>> import limitformer as lf
        >>> net = lf.Serial(lf.Attention(heads=2), lf.MeanPool())
        >>> found = net.law(np.ones((3, 4, 5)), key=jax.random.key(0), draws=10)
        >>> found.nngp.shape
        (10, 3, 3)

    Reference:
        Sakai, Karakida, Imaizumi 2025, arXiv 2506.00846, theorem 3.
    """
    kinds = check_kinds(kinds)
    if draws < 1:
        raise ValueError(f"draws={draws}; use at least 1")
    if "ntk" in kinds:
        _check_tangent(net)
    dtype = float_type(as_arrays(x, "x"), dtype)
    report = Progress.of(progress)
    with jax.enable_x64(True):
        net = cast(net, dtype)
        streams = streams_of(net, x, x_mask, "x", dtype=dtype)
        network = Network(net, *needs_of(net), "ntk" in kinds)
        tokens = streams[0].n * max(s.tokens for s in streams)
        finite = [getattr(leaf, "heads", math.inf) for _, leaf in leaves(net)]
        heads = max((h for h in finite if math.isfinite(h)), default=1)
        each = np.dtype(dtype).itemsize * tokens * tokens * (16 + 2 * heads)
        size = int(min(draws, _LARGEST_CHUNK, max(1, memory_budget(memory) // 4 // each)))
        keys = jax.random.split(key, draws)
        parts: list[tuple] = []
        for start in range(0, draws, size):
            index = np.minimum(np.arange(start, start + size), draws - 1)
            found = _draw(network, streams, keys[index], score_draws)
            kept = min(size, draws - start)
            parts.append(tuple(None if v is None else np.asarray(v)[:kept] for v in found))
            if report is not None:
                report(min(start + size, draws), draws)
    K: Any
    K, T = (None if v[0] is None else np.concatenate(v) for v in zip(*parts, strict=True))
    return Law(K, T if "ntk" in kinds else None)


@eqx.filter_jit
def _draw(network: Network, streams, keys: Array, score_draws: int):
    with jax.default_matmul_precision("highest"):
        return jax.vmap(lambda k: network.joint(streams, k, score_draws))(keys)


def _check_tangent(net: Layer) -> None:
    """Raise unless one finite-head layer is followed by linear layers only."""
    finite = [
        i
        for i, (_, leaf) in enumerate(leaves(net))
        if math.isfinite(getattr(leaf, "heads", math.inf)) and getattr(leaf, "scale", "") == "sqrt"
    ]
    after = [leaf for i, (_, leaf) in enumerate(leaves(net)) if finite and i > finite[0]]
    wrong = [type(leaf).__name__ for leaf in after if type(leaf).__name__ not in _LINEAR]
    if wrong:
        raise ValueError(
            f"the tangent kernel given the scores is exact only for one layer of finitely many "
            f"heads followed by linear layers; here {wrong[0]} comes after it. Use a finite twin: "
            "lf.empirical.ntk of net.twin(...)"
        )


def _mean(values: np.ndarray, axis: int = 0) -> Estimate:
    n = values.shape[axis]
    sem = values.std(axis=axis, ddof=1) / math.sqrt(n) if n > 1 else np.nan
    return Estimate(values.mean(axis=axis), sem)
