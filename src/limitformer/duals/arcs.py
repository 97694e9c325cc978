"""Arc functions of a correlation: the ReLU family's κ's, arccos and arcsin as polynomials.

With a = |ρ| and z = 1 - a,

    arccos a                    = √z Q(z),
    √(1 - a²) - a arccos a      = z√z G(z),        (= the integral of arccos from a to 1)

Q and G are analytic on 0 <= z <= 1 (nearest singularity z = 2), so short polynomials reach
rounding error and a compiler turns them into a vector loop, which it does not do for atan2 or
acos. G has no cancellation near ρ = ±1.

**Snapping.** v1, v2, c carry rounding errors of a few eps, and √z turns an error of eps in ρ into
√eps in Φ'. Correlations with z <= 16 eps (or |ρ| > 1) are therefore taken as ±1 exactly: equal
inputs give exact diagonals at any depth, and rounding errors do not pile up. The price: inputs
that really differ by so little get a ReLU Φ' that is off by up to √(32 eps)/2π (1.4e-8 in float64,
3.1e-4 in float32, 2.3 times what 3 eps in c do without snapping), and a Φ off by <= 16 eps.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .coefficients import ACOS, ARC, ASIN, COS, SIN, polynomial

SNAP = 16
"""Correlations within SNAP eps of ±1 are taken as ±1."""


def gap(rho: Float[Array, "..."]) -> Float[Array, "..."]:
    """z = 1 - |ρ|, snapped to 0 within SNAP eps of |ρ| = 1."""
    z = 1 - jnp.abs(rho)
    return jnp.where(z <= SNAP * float(jnp.finfo(z.dtype).eps), jnp.zeros_like(z), z)


def _inverse_sine(rho):
    """1/√(1 - ρ²), and 0 at the snapped ρ = ±1 where it diverges."""
    z = gap(rho)
    zero = z == 0
    safe = jnp.where(zero, jnp.ones_like(z), z * (2 - z))
    return jnp.where(zero, jnp.zeros_like(z), 1 / jnp.sqrt(safe))


@jax.custom_jvp
def arc1(rho: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """(ρ, E|u||v|) for unit variances: E|u||v| = (2/π)(√(1-ρ²) + ρ arcsin ρ); ρ snapped."""
    z = gap(rho)
    a = 1 - z
    return jnp.copysign(a, rho), a + 2 * (z * jnp.sqrt(z)) * polynomial(ARC, z)


@arc1.defjvp
def _(primals, tangents):
    (rho,), (t,) = primals, tangents
    return arc1(rho), (t, arc0(rho) * t)


@jax.custom_jvp
def arc0(rho: Float[Array, "..."]) -> Float[Array, "..."]:
    """E[sign u sign v] = (2/π) arcsin ρ; ρ snapped. Its derivative 2/(π√(1-ρ²)) is 0 at ±1."""
    z = gap(rho)
    return jnp.sign(rho) * (1 - 2 * jnp.sqrt(z) * polynomial(ACOS, z))


@arc0.defjvp
def _(primals, tangents):
    (rho,), (t,) = primals, tangents
    return arc0(rho), _inverse_sine(rho) * (2 / np.pi) * t


@jax.custom_jvp
def kappa1(rho: Float[Array, "..."]) -> Float[Array, "..."]:
    """2 E[max(u, 0) max(v, 0)] = (√(1-ρ²) + ρ (π - arccos ρ))/π, unit variances; ρ snapped."""
    z = gap(rho)
    return jnp.where(rho > 0, 1 - z, jnp.zeros_like(z)) + z * jnp.sqrt(z) * polynomial(ARC, z)


@kappa1.defjvp
def _(primals, tangents):
    (rho,), (t,) = primals, tangents
    return kappa1(rho), kappa0(rho) * t


@jax.custom_jvp
def kappa0(rho: Float[Array, "..."]) -> Float[Array, "..."]:
    """2 P[u > 0, v > 0] = (π - arccos ρ)/π; ρ snapped. Its derivative is 0 at ±1."""
    z = gap(rho)
    turn = jnp.sqrt(z) * polynomial(ACOS, z)  # arccos|ρ| / π
    return jnp.where(rho > 0, 1 - turn, turn)


@kappa0.defjvp
def _(primals, tangents):
    (rho,), (t,) = primals, tangents
    return kappa0(rho), _inverse_sine(rho) * (1 / np.pi) * t


@jax.custom_jvp
def arccos(rho: Float[Array, "..."]) -> Float[Array, "..."]:
    """arccos of a correlation; snapped, derivative -1/√(1-ρ²) taken as 0 at ±1."""
    return (np.pi / 2) * (1 - arc0(rho))


@arccos.defjvp
def _(primals, tangents):
    (rho,), (t,) = primals, tangents
    return arccos(rho), -_inverse_sine(rho) * t


@jax.custom_jvp
def sine(rho: Float[Array, "..."]) -> Float[Array, "..."]:
    """√(1 - ρ²) of a correlation; snapped to 0 at ±1, where its derivative is taken as 0."""
    z = gap(rho)
    return jnp.sqrt(z * (2 - z))


@sine.defjvp
def _(primals, tangents):
    (rho,), (t,) = primals, tangents
    return sine(rho), -rho * _inverse_sine(rho) * t


@jax.custom_jvp
def sine_squared(rho: Float[Array, "..."]) -> Float[Array, "..."]:
    """1 - ρ² of a correlation; snapped to 0 at ±1, derivative -2ρ everywhere."""
    z = gap(rho)
    return z * (2 - z)


@sine_squared.defjvp
def _(primals, tangents):
    (rho,), (t,) = primals, tangents
    return sine_squared(rho), -2 * rho * t


@jax.custom_jvp
def arcsin2(t: Float[Array, "..."], s: Float[Array, "..."]) -> Float[Array, "..."]:
    """arcsin t given also s = √(1 - t²) > 0, so that nothing is lost near t = ±1."""
    small = jnp.abs(t) < s
    w = jnp.minimum(jnp.abs(t), s)
    angle = w * polynomial(ASIN, w * w)
    return jnp.copysign(jnp.where(small, angle, np.pi / 2 - angle), t)


@arcsin2.defjvp
def _(primals, tangents):
    (t, s), (dt, _) = primals, tangents
    return arcsin2(t, s), dt / s


def half_turn(angle: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """(sin, cos) of an angle in [0, π], absolute error of rounding size."""
    x = angle - np.pi / 2
    y = x * x
    return polynomial(COS, y), -x * polynomial(SIN, y)
