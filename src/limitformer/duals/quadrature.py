"""Quadrature rules for E[f(√v z + m)], z standard normal, and Hermite polynomials on their nodes.

Gauss-Legendre panels, not Gauss-Hermite: panels can be graded towards the places where φ varies
on a scale 1/√v, and split at its kinks, so the same rule serves small and large variances.
"""

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import roots

REACH = 12.0
"""Nodes lie in |z| <= REACH; exp(-REACH²/4) is below the float64 eps."""
_GRADED = (0.0, *(2.0**-k for k in range(6, 0, -1)), 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, REACH)
_MOVING_Z = (-REACH, -9.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 9.0, REACH)
_MOVING_U = (-16.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0)


def enough_nodes(degree: int) -> int:
    """Nodes per panel that integrate h_k, k <= degree, to rounding (measured up to 1200)."""
    return 8 + math.ceil(math.sqrt(max(degree, 64)))


def _density(z):
    return np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)


@lru_cache
def half_line(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z > 0 and weights of ∫_0^∞ f(z) dN(z), panels graded towards 0 (float64)."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    left, right = np.array(_GRADED[:-1])[:, None], np.array(_GRADED[1:])[:, None]
    z = (0.5 * (left + right) + 0.5 * (right - left) * x).ravel()
    return z, (0.5 * (right - left) * w).ravel() * _density(z)


@lru_cache
def whole_line(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """`half_line` and its mirror image: nodes and weights of E[f(z)]."""
    z, w = half_line(nodes)
    return np.concatenate([-z[::-1], z]), np.concatenate([w[::-1], w])


@lru_cache
def hermite_table(rule, nodes: int, count: int) -> np.ndarray:
    """w_i h_k(z_i), shape (nodes, count): φ(√v z) @ table = E[φ(√v z) h_k(z)], k < count."""
    z, w = rule(nodes)
    h = [w, z * w]
    for k in range(1, count - 1):
        h.append((z * h[k] - np.sqrt(k) * h[k - 1]) / np.sqrt(k + 1))
    return np.stack(h[:count], -1)


def moving_rule(
    v: Float[Array, "..."],
    mean: Float[Array, "..."] | None,
    kinks: tuple[float | int, ...],
    nodes: int,
) -> tuple[Float[Array, "... N"], Float[Array, "... N"], Float[Array, "... N"]]:
    """Nodes z, u = mean + √v z and weights, with panel ends at the kinks and on a scale of 1 in u.

    Args:
        v: variances.
        mean: Gaussian means of the same shape, or None.
        kinks: places u where φ is not smooth.
        nodes: Gauss-Legendre nodes per panel.
    """
    x, w = (jnp.asarray(t, v.dtype) for t in np.polynomial.legendre.leggauss(nodes))
    q, r = (t[..., None] for t in roots(v))
    m = jnp.zeros_like(q) if mean is None else mean[..., None]
    in_u = jnp.asarray(sorted({*_MOVING_U, *map(float, kinks)}), v.dtype)
    in_z = jnp.broadcast_to(jnp.asarray(_MOVING_Z, v.dtype), (*v.shape, len(_MOVING_Z)))
    ends = jnp.sort(jnp.concatenate([jnp.clip((in_u - m) * r, -REACH, REACH), in_z], -1))
    left, right = ends[..., :-1, None], ends[..., 1:, None]
    z = 0.5 * (left + right) + 0.5 * (right - left) * x
    weight = 0.5 * (right - left) * w * jnp.exp(-0.5 * z * z) * (1 / np.sqrt(2 * np.pi)).item()
    z, weight = (t.reshape(*v.shape, -1) for t in (z, weight))
    return z, m + q * z, weight


def moving_coefficients(
    values: tuple[Float[Array, "... N"], ...],
    z: Float[Array, "... N"],
    weight: Float[Array, "... N"],
    count: int,
) -> tuple[Float[Array, "... count"], ...]:
    """E[f(z) h_k(z)], k < count, for each f given by its node values; h_k by its recurrence."""

    def step(carry, k):
        below, here = carry
        out = tuple(jnp.sum(f * here, -1) for f in values)
        return (here, (z * here - jnp.sqrt(k) * below) / jnp.sqrt(k + 1)), out

    start = (jnp.zeros_like(weight), weight)
    _, out = jax.lax.scan(step, start, jnp.arange(count, dtype=z.dtype))
    return tuple(jnp.moveaxis(t, 0, -1) for t in out)
