"""Mehler's expansion of a dual activation.

With h_k the orthonormal Hermite polynomials, a_k(v) = E[φ(√v z) h_k(z)] and
d_k(v) = E[φ'(√v z) h_k(z)],

    Φ  = Σ_{k<n} a_k(x) a_k(y) ρ^k + τ(x) τ(y) ρ^n,        τ² = E[φ²] - Σ_{k<n} a_k²
    Φ' = Σ_{k<n} d_k(x) d_k(y) ρ^k + τ'(x) τ'(y) ρ^n,      τ'² = E[φ'²] - Σ_{k<n} d_k²

τ² is Parseval's tail. Kept as one more term it makes the diagonal Φ(v, v, v) = E[φ²] exact and
leaves the kernel positive semidefinite; what remains is the misplaced power of the tail,
|error of Φ| <= 2 τ(x) τ(y) |ρ|^n. d_k comes from φ' itself and not from a_{k+1} √(k+1)/√v, so
v = 0 is an ordinary point.
"""

import abc
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .base import Dual, derivative_of, refuse_mean, roots
from .quadrature import enough_nodes, half_line, hermite_table


class Series(NamedTuple):
    """One side of a Mehler expansion: coefficients of φ and φ' (tail last) and r = 1/√v."""

    a: Float[Array, "... terms+1"]
    d: Float[Array, "... terms+1"]
    r: Float[Array, "..."]


def defect(
    total: Float[Array, "..."], coefficients: Float[Array, "... terms"]
) -> Float[Array, "..."]:
    """Parseval's tail total - Σ a_k², 0 where it is only rounding."""
    rest = total - jnp.sum(coefficients * coefficients, -1)
    noise = 8 * float(jnp.finfo(total.dtype).eps) * total
    return jnp.where(rest <= noise, jnp.zeros_like(rest), rest)


def with_tail(
    total: Float[Array, "..."], coefficients: Float[Array, "... terms"]
) -> Float[Array, "... terms+1"]:
    """Append τ, so that Σ a_k² = total."""
    return jnp.concatenate([coefficients, roots(defect(total, coefficients)).q[..., None]], -1)


@partial(jax.jit, inline=True)
def series_sum(
    x: Float[Array, "..."], ax: Float[Array, "... terms"], ay: Float[Array, "... terms"]
) -> Float[Array, "..."]:
    """Σ_k ax_k ay_k x^k by Horner's rule (one compilation also outside of jit)."""
    return _horner(x, ax, ay)


@jax.custom_jvp
def _horner(x, ax, ay):
    count = ax.shape[-1]
    total = ax[..., count - 1] * ay[..., count - 1]
    for k in reversed(range(count - 1)):
        total = total * x + ax[..., k] * ay[..., k]
    return total


# The transpose of an unrolled sum over slices is a sum of padded arrays, slow to compile and to
# run; tangents of the coefficients therefore meet the powers of x as one array.
@partial(_horner.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    (x, ax, ay), (dx, dax, day) = primals, tangents
    count, zero = ax.shape[-1], jax.custom_derivatives.SymbolicZero
    value = _horner(x, ax, ay)
    tangent = jnp.zeros_like(value)
    if not isinstance(dx, zero) and count > 1:
        k = jnp.arange(1, count, dtype=x.dtype)
        tangent = tangent + dx * _horner(x, k * ax[..., 1:], ay[..., 1:])
    if not (isinstance(dax, zero) and isinstance(day, zero)):
        repeated = jnp.broadcast_to(x[..., None], (*x.shape, count - 1))
        ones = jnp.ones((*x.shape, 1), x.dtype)
        powers = jax.lax.cumprod(jnp.concatenate([ones, repeated], -1), axis=x.ndim)
        for moved, fixed in ((dax, ay), (day, ax)):
            if not isinstance(moved, zero):
                tangent = tangent + jnp.sum(powers * fixed * moved, -1)
    return value, tangent


def project(
    values: Float[Array, "... nodes"], table: Float[Array, "nodes *terms"]
) -> Float[Array, "..."]:
    """Node values times quadrature weights or a table, in full precision on every device."""
    return jnp.matmul(values, table, precision=jax.lax.Precision.HIGHEST)


class Smooth(Dual):
    """φ(u) = constant + linear·u + core(u), core odd (then linear = 0) or even (constant = 0).

    The three parts are uncorrelated, so Φ = constant² + linear² c + (Mehler series of core), and
    half of the series vanishes. `terms` counts what is left; None takes `default_terms` for
    float32 or float64. `nodes` per panel, None for as many as the terms need.
    """

    terms: eqx.AbstractVar[int | None]
    nodes: eqx.AbstractVar[int | None]
    default_terms: eqx.AbstractClassVar[tuple[int, int]]
    parity: eqx.AbstractClassVar[Literal["odd", "even"]]
    constant: eqx.AbstractClassVar[float]
    linear: eqx.AbstractClassVar[float]
    exact: ClassVar[bool] = False
    kinks: ClassVar[tuple[float, ...]] = ()

    @abc.abstractmethod
    def core(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """The odd or even part of φ."""

    def _integrals(self, v):
        """Coefficients of core and core', and E[core²], E[core'²]."""
        terms = self.default_terms[v.dtype.itemsize > 4] if self.terms is None else self.terms
        nodes = enough_nodes(2 * terms) if self.nodes is None else self.nodes
        z, w = half_line(nodes)
        table = 2 * hermite_table(half_line, nodes, 2 * terms)
        first = 1 if self.parity == "odd" else 0
        u = roots(v).q[..., None] * jnp.asarray(z, v.dtype)
        f, df = derivative_of(self.core, u)
        a = project(f, jnp.asarray(table[:, first::2], v.dtype))
        d = project(df, jnp.asarray(table[:, 1 - first :: 2], v.dtype))
        w = jnp.asarray(2 * w, v.dtype)
        return a, d, project(f * f, w), project(df * df, w)

    def prepare(self, v, mean=None) -> Series:
        refuse_mean(self, mean)
        a, d, f2, df2 = self._integrals(v)
        return Series(with_tail(f2, a), with_tail(df2, d), roots(v).r)

    def mix(self, c, px, py, derivative):
        rho = c * px.r * py.r
        square = rho * rho
        odd = self.parity == "odd"
        value = series_sum(square, px.a, py.a)
        value = (rho * value if odd else value) + self.linear**2 * c + self.constant**2
        if not derivative:
            return value, None
        slope = series_sum(square, px.d, py.d)
        return value, (slope if odd else rho * slope) + self.linear**2

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        if self.parity == "odd":
            return jnp.full_like(v, self.constant)
        return self._integrals(v)[0][..., 0]

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        return self._integrals(v)[2] + self.linear**2 * v + self.constant**2

    def error(self, v, mean=None):
        refuse_mean(self, mean)
        a, _, f2, _ = self._integrals(v)
        total = f2 + self.linear**2 * v + self.constant**2
        return defect(f2, a) + 16 * float(jnp.finfo(v.dtype).eps) * total
