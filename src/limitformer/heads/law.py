"""The law of a network of finitely many heads: Gaussian given its attention scores (theory 3)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..estimate import Estimate, mean_of
from ..kernel.gram import check_kinds
from ..kernel.progress import Progress
from ..layers.base import Layer, leaves
from .draws import SCORE_DRAWS, Draws, Inputs
from .mixture import Mixture

_LINEAR = ("Dense", "Conv", "AvgPool", "MeanPool", "SumPool", "FirstToken", "LastToken", "Flatten")


@dataclasses.dataclass(frozen=True, eq=False)
class Law:
    """Draws of the conditional kernels of a network; made by `net.law`.

    Given the scores of all heads, every output coordinate is an independent Gaussian with the
    kernel of the draw; over draws, a coordinate is a scale mixture of Gaussians, and coordinates
    share their scores: they are exchangeable, not independent. Statistics are streamed over blocks
    of draws, so any number of draws will do.

    Attributes:
        blocks: of draws, `(K, T)` with K `(block, n, n)`, or `(block, n, n, tokens, tokens)`
            without a readout; T is None if it was not asked for.
    """

    blocks: Iterable[tuple[np.ndarray, np.ndarray | None]]

    @property
    def draws(self) -> int:
        return len(self.variances)

    @property
    def nngp(self) -> Float[np.ndarray, "draws n n *tokens"]:
        """The conditional kernels of all draws, if they fit into memory."""
        self._check_memory()
        return np.concatenate([K for K, _ in self.blocks])

    @property
    def ntk(self) -> Float[np.ndarray, "draws n n *tokens"] | None:
        """Like nngp, the tangent kernel averaged over outputs given the scores."""
        self._check_memory()
        found = [T for _, T in self.blocks if T is not None]
        return np.concatenate(found) if found else None

    @functools.cached_property
    def mean(self) -> Estimate:
        """E[K]: the kernel of infinitely many heads if one layer has finitely many."""
        return mean_of(K for K, _ in self.blocks)

    @functools.cached_property
    def variance(self) -> Estimate:
        """Var[K], entry by entry."""
        return mean_of((K - self.mean.value) ** 2 for K, _ in self.blocks)

    @functools.cached_property
    def variances(self) -> Float[np.ndarray, "draws points"]:
        """K(x, x) of every input (and token): what the mixture is over."""
        return np.concatenate([_own(K) for K, _ in self.blocks])

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
        found, start = [], 0
        for block, _ in self.blocks:
            K, shape = _matrices(block)
            w, U = np.linalg.eigh(K)
            half = U * np.sqrt(np.maximum(w, 0.0))[:, None, :]
            z = _normals(key, start, (len(K), K.shape[1], coordinates))
            found.append((half @ z).reshape(len(K), *shape, coordinates))
            start += len(K)
        return np.concatenate(found)

    def at(self, point: int = 0) -> Mixture:
        """The law of one coordinate at one input: E[ N(y; 0, K_ii) ] over draws."""
        v = self.variances[:, point]
        return Mixture(np.zeros_like(v), v)

    def density(self, values, point: int = 0) -> Estimate:
        """Density of one coordinate at one input, exactly over the draws.

        p(y) = E[ N(y; 0, K_ii) ]
        """
        return self.at(point).density(values)

    def joint_density(self, values, points=None) -> Estimate:
        """Density of one coordinate at several inputs together, `values` `(m, points)`."""
        y = np.atleast_2d(np.asarray(values, float))
        logs = [_log_density(_matrices(K)[0], y, points) for K, _ in self.blocks]
        top = np.max([log.max(axis=0) for log in logs], axis=0)
        found = mean_of(np.exp(log - top) for log in logs)
        return Estimate(found.value * np.exp(top), found.sem * np.exp(top))

    def cdf(self, values, point: int = 0) -> Estimate:
        """P(y <= value) of one coordinate at one input."""
        return self.at(point).cdf(values)

    def tail(self, values, point: int = 0) -> Estimate:
        """P(|y| > value)."""
        return self.at(point).tail(values)

    def quantile(self, probabilities, point: int = 0) -> Estimate:
        """Values that one coordinate stays below with these probabilities."""
        return self.at(point).quantile(probabilities)

    def _check_memory(self) -> None:
        if isinstance(self.blocks, Draws):
            with jax.enable_x64(True):
                fits = self.blocks.fits
            if not fits:
                raise ValueError(
                    f"{self.blocks.draws} kernels do not fit into half of the memory budget of "
                    f"{self.blocks.budget / 2**20:.0f} MiB; use the statistics (mean, variances, "
                    "density, sample), which are streamed, fewer draws, or memory= in net.law"
                )


def _own(K: np.ndarray) -> np.ndarray:
    """K(x, x) of every input and token, `(draws, points)`."""
    own = np.diagonal(K, axis1=1, axis2=2)  # (draws, *tokens, n)
    if K.ndim == 3:
        return own
    return np.diagonal(own, axis1=1, axis2=2).reshape(len(K), -1)  # (draws, n, tokens)


def _matrices(K: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Kernels as square matrices, and the shape of their rows."""
    K = np.asarray(K, float)
    if K.ndim == 3:
        return K, K.shape[1:2]
    d, n, _, S, _ = K.shape
    return np.swapaxes(K, 2, 3).reshape(d, n * S, n * S), (n, S)


def _normals(key, start: int, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normals of draws from `start` on; each draw has its own key."""
    with jax.enable_x64(True):
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(start, start + shape[0]))
        draw = jax.vmap(lambda k: jax.random.normal(k, shape[1:], jnp.float64))
        return np.asarray(draw(keys))


def _log_density(K: np.ndarray, y: np.ndarray, points) -> np.ndarray:
    """log N(y; 0, K) of every draw and row of y, `(draws, m)`."""
    index = np.arange(K.shape[1]) if points is None else np.asarray(points)
    K = K[:, index[:, None], index]
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
    return log - 0.5 * len(index) * math.log(2 * math.pi)


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
        memory: budget in bytes, or a string such as "2GiB"; kernels that fit into half of it are
            kept, others are drawn again for every statistic.
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
    with jax.enable_x64(True):
        inputs = Inputs.of(net, x, x_mask, "ntk" in kinds, dtype)
        blocks = Draws(inputs, key, draws, score_draws, memory, Progress.of(progress))
        fits = blocks.fits
    if fits:
        for _ in blocks:
            pass
    return Law(blocks)


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
