"""The map from token correlation to token correlation that one block is, and its fixed points.

Tokens with one variance q and one correlation c between any two, K = q ((1 - c) I + c 1 1^T), stay
so through every layer that treats tokens alike (no positions, no causal mask, no convolution).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Float

from ..kernel.gram import DRAWS
from ..kernel.joint import JointRun
from ..kernel.network import Network, cast, needs_of
from ..kernel.pairs import Joint
from ..kernel.state import Cross, Facts, Marginal
from ..layers.attention import inf
from ..layers.base import Layer, leaves
from ..scores.replicates import draws_each, replicate_keys
from .settle import settled as settled_at

_NEAR_ONE = 1e-5  # 1 - c at which slopes at c = 1 are taken
_ALIKE = 1e-8
_FAR = 20  # standard errors from 8 replicates, of thousands of entries


@dataclasses.dataclass(frozen=True)
class FixedPoint:
    """A correlation that a block keeps.

    Attributes:
        c: the correlation.
        slope: dc'/dc there, the rate: c_l - c shrinks by it in every block. Of a settled map at
            c < 1, where q and c change together, the larger eigenvalue of the Jacobian.
        variance: q there.
        xi: depth scale 1 / |log slope|, the blocks in which a deviation changes by e.
    """

    c: float
    slope: float
    variance: float

    @property
    def stable(self) -> bool:
        return abs(self.slope) < 1

    @property
    def xi(self) -> float:
        if self.slope in (0.0, 1.0):
            return 0.0 if self.slope == 0.0 else np.inf
        return float(1 / abs(np.log(abs(self.slope))))


@dataclasses.dataclass(frozen=True, eq=False)
class CorrelationMap:
    """c -> c' of a block for tokens of one variance; made by `correlation_map`.

    Attributes:
        c: `(points,)` correlations entering the block.
        after: `(points,)` correlations leaving it.
        sem: `(points,)` their standard errors; None where they are exact.
        variance: `(points,)` q, entering the block.
        variance_after: `(points,)` leaving it; iterating the map as it is means q' = q.
        fixed_points: lowest first.
        tokens: S.
    """

    c: Float[np.ndarray, " points"]
    after: Float[np.ndarray, " points"]
    sem: Float[np.ndarray, " points"] | None
    variance: Float[np.ndarray, " points"]
    variance_after: Float[np.ndarray, " points"]
    fixed_points: tuple[FixedPoint, ...]
    tokens: int

    def __str__(self) -> str:
        lines = [f"{'fixed point':>12} {'variance':>9} {'slope':>9} {'depth scale':>12}"]
        for p in self.fixed_points:
            kind = "stable" if p.stable else "unstable"
            lines.append(f"{p.c:12.6g} {p.variance:9.4g} {p.slope:9.4g} {p.xi:12.4g}  {kind}")
        return "\n".join(lines)


def correlation_map(
    block: Layer,
    tokens: int = 16,
    variance: float = 1.0,
    c=None,
    *,
    settled: bool = False,
    key=None,
    draws: int = DRAWS,
) -> CorrelationMap:
    """Token correlation after a block against the correlation before it, for infinitely many heads.

        K = q ((1 - c) I + c 1 1^T)  ->  K' = q' ((1 - c') I + c' 1 1^T)

    The slope at c = 1, where all tokens are equal, says whether nearly equal tokens collapse
    (below 1: in about xi blocks) or come apart (above 1).

    Args:
        block: any part of a network that treats tokens alike; channels entering it are Gaussian
            with mean zero, as after a Dense layer.
        tokens: S.
        variance: q. Without a norm at its end the block changes q, and the map changes from block
            to block.
        settled: take for every c the variance that the block keeps, q'(q, c) = q, the first that is
            met from `variance`. The map's fixed points are then those of (q, c) -> (q', c').
        c: correlations, 33 between -1/(S - 1) and 1 by default.
        key, draws: as in `lf.depth_profile`.

    Raises:
        ValueError: a block that does not treat tokens alike, bad correlations, or a variance that
            settles nowhere.

    Example:
        >>> import limitformer as lf
        >>> block = lf.Serial(lf.Attention(scale="linear"), lf.LayerNorm())
        >>> found = correlation_map(block, tokens=4)
        >>> [round(p.c, 6) for p in found.fixed_points], round(found.fixed_points[0].slope, 3)
        ([1.0], 0.0)
    """
    if tokens < 2:
        raise ValueError(f"tokens={tokens}; a correlation needs at least two")
    lowest = -1 / (tokens - 1)
    points = np.linspace(lowest, 1, 34)[1:] if c is None else np.asarray(c, float)
    if points.ndim != 1 or ((points < lowest) | (points > 1)).any() or not variance > 0:
        raise ValueError(
            f"correlations of {tokens} tokens lie between {lowest:.4g} and 1 and a variance is "
            f"positive, got c={c!r}, variance={variance}"
        )
    limit: Any = block.with_heads(inf)
    estimated = any(leaf.random_scores for _, leaf in leaves(limit))
    key = jax.random.key(0) if key is None else key
    keys = replicate_keys(key=key) if estimated else key[None]
    each = draws_each(draws) if estimated else draws
    with jax.enable_x64(True):
        network = Network(cast(limit, np.dtype(float)), *needs_of(limit, all_of_it=True), False)
        network = dataclasses.replace(network, pull=False)

        def at(c, q) -> tuple[np.ndarray, np.ndarray]:
            """c' and q' of every replicate."""
            K = np.asarray(_through(network, np.asarray(c), np.asarray(q), tokens, keys, each))
            _check_alike(K)
            return _correlations(K)

        def q_of(c) -> np.ndarray:
            """The variance at which the map is taken."""
            start = np.full(len(c), float(variance))
            if not settled:
                return start

            def rise(log_q):
                return np.log(at(c, np.exp(log_q))[1].mean(axis=0)) - log_q

            return np.exp(settled_at(rise, np.log(start)))

        q = q_of(points)
        after, q_after = at(points, q)
        sem = after.std(axis=0, ddof=1) / np.sqrt(len(keys)) if estimated else None
        mean = lambda c, q: [v.mean(axis=0) for v in at(c, q)]  # noqa: E731
        fixed = _fixed_points(mean, q_of, points, after.mean(axis=0), settled)
    return CorrelationMap(points, after.mean(axis=0), sem, q, q_after.mean(axis=0), fixed, tokens)


@eqx.filter_jit
def _through(network: Network, c, q, S: int, keys, draws: int):
    """K' for every key, correlation and its variance, `(keys, points, S, S)`."""

    def one(key, c, q):
        K = q * ((1 - c) * jnp.eye(S) + c)[None]
        facts = Facts((S,), gaussian=True, sources=frozenset({("input", ())}))
        x = Marginal(facts, jnp.ones(1), K, index=jnp.arange(1))
        run = JointRun(network.options(key, draws))
        state: Any = run(network.net, Joint(x, None, Cross(K[None])), "net")
        return state.k.K[0, 0]

    pairs = (jnp.repeat(keys, len(c)), jnp.tile(c, len(keys)), jnp.tile(q, len(keys)))
    with jax.default_matmul_precision("highest"):
        flat = jax.lax.map(lambda p: one(*p), pairs, batch_size=16)
    return flat.reshape(len(keys), len(c), *flat.shape[1:])


def _correlations(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean correlation and mean variance of token kernels."""
    S = K.shape[-1]
    q = np.trace(K, axis1=-2, axis2=-1) / S
    return np.minimum((K.sum(axis=(-2, -1)) - S * q) / (S * (S - 1) * q), 1.0), q


def _check_alike(K: np.ndarray) -> None:
    if K.shape[-1] < 2:
        raise ValueError("the block ends in a readout; give one that keeps its tokens")
    error = K.std(axis=0, ddof=1) / np.sqrt(len(K)) if len(K) > 1 else 0.0
    K = K.mean(axis=0)
    c, q = (v[..., None, None] for v in _correlations(K))
    apart = np.abs(K - q * ((1 - c) * np.eye(K.shape[-1]) + c))
    if (apart > _ALIKE * q + _FAR * error).any():
        raise ValueError(
            "the block does not treat tokens alike (positions, a causal mask or a convolution), so "
            "its output has more than one correlation; use lf.depth_profile"
        )


def _fixed_points(f, q_of, c: np.ndarray, after: np.ndarray, settled) -> tuple[FixedPoint, ...]:
    """Sign changes of c' - c, and c = 1."""
    gap = after - c
    inside = c < 1 - _NEAR_ONE
    points = []

    def crossing(v: float) -> float:
        one = np.array([v])
        return float(f(one, q_of(one))[0][0] - v)

    for i in np.flatnonzero(inside[:-1] & inside[1:] & (gap[:-1] * gap[1:] < 0)):
        root: Any = scipy.optimize.brentq(crossing, c[i], c[i + 1])
        at = float(root)
        q = float(q_of(np.array([at]))[0])
        points.append(FixedPoint(at, _slope(f, at, q, settled), q))
    ends = np.array([1.0, 1 - _NEAR_ONE])
    q = float(q_of(ends[:1])[0])
    top, near = f(ends, np.full(2, q))[0]
    if abs(top - 1) < _ALIKE:
        points.append(FixedPoint(1.0, float((1 - near) / _NEAR_ONE), q))
    return tuple(points)


def _slope(f, c: float, q: float, settled: bool) -> float:
    """dc'/dc, or the larger eigenvalue of d(log q', c') / d(log q, c)."""
    step = 1e-4 * min(1.0, 1 - c)
    grow = np.exp(np.array([-1e-4, 1e-4]))
    cs = np.array([c - step, c + step, c, c])
    after, q_after = f(cs, q * np.array([1.0, 1.0, *grow]))
    by_c = (after[1] - after[0]) / (2 * step)
    if not settled:
        return float(by_c)
    log_q = np.log(q_after)
    J = np.array(
        [
            [(log_q[3] - log_q[2]) / 2e-4, (log_q[1] - log_q[0]) / (2 * step)],
            [(after[3] - after[2]) / 2e-4, by_c],
        ]
    )
    values = np.linalg.eigvals(J)
    largest = values[np.argmax(np.abs(values))]
    # a pair of complex eigenvalues turns as it shrinks; its rate is their modulus
    return float(largest.real if largest.imag == 0 else abs(largest))
