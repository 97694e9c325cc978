"""Posterior draws of standard normals, from the prior by steps of temperature.

Particles start as draws from the prior N(0, I). At temperature b they follow prior x likelihood^b;
b grows from 0 to 1 in steps that keep half of the particles effective, and after each step they are
resampled and moved by elliptical slices, which leave the tempered posterior as it is. If one
step is enough, the result is plain importance sampling and keeps its weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

_KEPT = 0.5  # share of the particles that stay effective in a step
_SHRINKS = 60  # of a slice's bracket, which then is 1e-10 of a turn at the median


@dataclasses.dataclass(frozen=True, eq=False)
class Population:
    """Weighted particles of a posterior, and how they came about; made by `temper`.

    Attributes:
        z: the particles, arrays with a leading axis of particles.
        log_likelihood: of every particle.
        weight: of every particle, with sum 1.
        log_evidence: log of the estimated integral of the likelihood over the prior; the estimate
            itself (not its log) is unbiased.
        temperatures: the steps, the last one 1.
        prior_ess: effective sample size that importance sampling from the prior has.
        ancestors: first particles that still have descendants.
    """

    z: PyTree
    log_likelihood: Float[np.ndarray, " particles"]
    weight: Float[np.ndarray, " particles"]
    log_evidence: float
    temperatures: tuple[float, ...]
    prior_ess: float
    ancestors: int


def effective(log_weight: np.ndarray) -> float:
    """Effective sample size (sum w)^2 / sum w^2 of weights given by their logarithms.

    Example:
        >>> effective(np.zeros(8)), effective(np.array([0.0, -1000.0]))
        (8.0, 1.0)
    """
    w = np.exp(log_weight - log_weight.max())
    return float(w.sum() ** 2 / (w @ w))


def temper(
    likelihood: Callable[[PyTree], Any],
    z: PyTree,
    *,
    key,
    moves: int = 5,
    at_once: int = 256,
    report: Callable[[float], None] | None = None,
) -> Population:
    """Draws from prior x likelihood, where the prior is standard normal.

    Args:
        likelihood: log-likelihood of one particle (a pytree that can be compiled).
        z: draws from the prior, arrays with a leading axis of particles.
        key: randomness of resampling and moves.
        moves: elliptical slices of every particle after a step of temperature.
        at_once: particles that are evaluated together.
        report: called with the temperature after every step.

    Raises:
        ValueError: a likelihood that is not finite for every particle.

    Reference:
        Murray, Adams, MacKay 2010, AISTATS (elliptical slices); Del Moral, Doucet, Jasra 2006,
        J. R. Stat. Soc. B 68 (the sampler).
    """
    log_likelihood = _in_parts(_evaluate, at_once, likelihood, z)
    n = len(log_likelihood)
    lineage = np.arange(n)
    b, log_evidence, steps = 0.0, 0.0, []
    prior_ess = effective(log_likelihood)
    while True:
        step = _next(log_likelihood, b)
        log_weight = (step - b) * log_likelihood
        top = log_weight.max()
        log_evidence += float(top + np.log(np.mean(np.exp(log_weight - top))))
        weight = np.exp(log_weight - top)
        weight /= weight.sum()
        b = step
        steps.append(b)
        if b == 1 and len(steps) == 1:
            break
        k_pick, k_move = jax.random.split(jax.random.fold_in(key, len(steps)))
        pick = _systematic(weight, float(jax.random.uniform(k_pick)))
        z, log_likelihood = jax.tree.map(lambda a, p=pick: a[p], z), log_likelihood[pick]
        lineage, weight = lineage[pick], np.full(n, 1 / n)
        for move in range(moves):
            keys = jax.random.split(jax.random.fold_in(k_move, move), n)
            z, log_likelihood = _in_parts(
                _slice, at_once, likelihood, z, jnp.asarray(log_likelihood), keys, b=jnp.asarray(b)
            )
        if report is not None:
            report(b)
        if b == 1:
            break
    ancestors = len(np.unique(lineage))
    return Population(z, log_likelihood, weight, log_evidence, tuple(steps), prior_ess, ancestors)


def _next(log_likelihood: np.ndarray, b: float) -> float:
    """The highest temperature that keeps enough particles effective."""
    enough = _KEPT * len(log_likelihood)
    if effective((1 - b) * log_likelihood) >= enough:
        return 1.0
    low, high = 0.0, 1 - b
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if effective(middle * log_likelihood) >= enough else (low, middle)
        )
    return b + max(low, 1e-12)


def _systematic(weight: np.ndarray, u: float) -> np.ndarray:
    """Indices of a systematic resample."""
    n = len(weight)
    return np.minimum(np.searchsorted(np.cumsum(weight), (np.arange(n) + u) / n), n - 1)


def _in_parts(fn, size: int, likelihood, *arrays, **options) -> Any:
    """fn of all particles, a part of them at a time; the last part is filled up."""
    n = len(jax.tree.leaves(arrays)[0])
    size = min(size, n)
    parts = []
    for start in range(0, n, size):
        index = np.minimum(np.arange(start, start + size), n - 1)
        found = fn(likelihood, *jax.tree.map(lambda a, i=index: a[i], arrays), **options)
        kept = min(size, n - start)
        parts.append(jax.tree.map(lambda a, k=kept: np.asarray(a)[:k], found))
    joined = jax.tree.map(lambda *a: np.concatenate(a), *parts)
    values = joined[-1] if isinstance(joined, tuple) else joined
    if not np.isfinite(values).all():
        raise ValueError(
            f"{int((~np.isfinite(values)).sum())} of {n} draws have a likelihood that is not "
            "finite: a kernel with this noise is singular; use more noise"
        )
    return joined


@eqx.filter_jit
def _evaluate(likelihood, z):
    return jax.vmap(likelihood)(z)


@eqx.filter_jit
def _slice(likelihood, z, log_likelihood, keys, *, b):
    return jax.vmap(lambda *args: _elliptical_slice(likelihood, *args, b=b))(
        z, log_likelihood, keys
    )


def _elliptical_slice(likelihood, z, log_likelihood, key, *, b):
    """One move of one particle that leaves prior x likelihood^b as it is."""
    k_other, k_height, k_angle, k_shrink = jax.random.split(key, 4)
    leaves, tree = jax.tree.flatten(z)
    keys = jax.random.split(k_other, len(leaves))
    other = tree.unflatten(
        [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    )
    kind = log_likelihood.dtype
    height = b * log_likelihood + jnp.log(jax.random.uniform(k_height, dtype=kind))
    angle = jax.random.uniform(k_angle, dtype=kind, maxval=2 * math.pi)

    def turned(angle):
        return jax.tree.map(
            lambda a, o: a * jnp.cos(angle).astype(a.dtype) + o * jnp.sin(angle).astype(a.dtype),
            z,
            other,
        )

    def again(state):
        i, accepted, *_ = state
        return ~accepted & (i < _SHRINKS)

    def attempt(state):
        i, _, angle, low, high, _ = state
        found = likelihood(turned(angle))
        accepted = b * found > height
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        u = jax.random.uniform(jax.random.fold_in(k_shrink, i), dtype=kind)
        angle = jnp.where(accepted, angle, low + u * (high - low))
        return i + 1, accepted, angle, low, high, found

    start = (0, False, angle, angle - 2 * math.pi, angle, log_likelihood)
    _, accepted, angle, _, _, found = jax.lax.while_loop(again, attempt, start)
    angle = jnp.where(accepted, angle, 0.0)
    return turned(angle), jnp.where(accepted, found, log_likelihood)
