"""Piecewise linear activations: ReLU, leaky ReLU, |u|, and the sign.

With ρ = c/√(v1 v2), every φ(u) = p u + q |u| has

    Φ  = √(v1 v2) [ p² ρ + q² (2/π)(√(1-ρ²) + ρ arcsin ρ) ],
    Φ' = p² + q² (2/π) arcsin ρ.

ReLU is p = q = 1/2: Φ = √(v1 v2) κ1(ρ)/2, Φ' = κ0(ρ)/2 with the arc-cosine kernels of Cho & Saul
(2009). Correlations within 16 eps of ±1 are snapped, see `arcs`. At v = 0 (padded tokens) ρ is
taken as 0.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from .arcs import arc0, arc1, kappa0, kappa1
from .base import Dual, Roots, constant, refuse_mean, roots


def _linear_mix(p2, q2, c, px, py, derivative):
    """Φ, Φ' of p u + q|u| from p², q² (numbers or scalars of c's dtype)."""
    line, absolute = arc1(c * px.r * py.r)
    value = px.q * py.q * (p2 * line + q2 * absolute)
    # The sides change places in Φ': a common ρ would be written to memory between two loops,
    # which costs more than computing it twice (see `base`).
    return value, p2 + q2 * arc0(c * py.r * px.r) if derivative else None


class Relu(Dual):
    """φ(u) = max(u, 0).  Φ = √(v1 v2) (√(1-ρ²) + ρ(π - arccos ρ)) / 2π, Φ' = (π - arccos ρ)/2π."""

    kinks: ClassVar[tuple[float, ...]] = (0.0,)

    def fn(self, u):
        return jnp.maximum(u, 0)

    def prepare(self, v, mean=None) -> Roots:
        refuse_mean(self, mean)
        return roots(v)

    def mix(self, c, px, py, derivative):
        value = 0.5 * px.q * py.q * kappa1(c * px.r * py.r)
        return value, 0.5 * kappa0(c * py.r * px.r) if derivative else None

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return roots(v).q * (1 / np.sqrt(2 * np.pi)).item()

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        return v * 0.5

    def error(self, v, mean=None):
        return None


class LeakyRelu(Dual):
    """φ(u) = u for u > 0, slope·u for u < 0:  p = (1 + slope)/2, q = (1 - slope)/2."""

    slope: Any = 0.01
    kinks: ClassVar[tuple[float, ...]] = (0.0,)

    def _pq(self, like):
        slope = constant(self.slope, like)
        return (1 + slope) * 0.5, (1 - slope) * 0.5

    def fn(self, u):
        return jnp.where(u > 0, u, constant(self.slope, u) * u)

    def prepare(self, v, mean=None) -> Roots:
        refuse_mean(self, mean)
        return roots(v)

    def mix(self, c, px, py, derivative):
        p, q = self._pq(c)
        return _linear_mix(p * p, q * q, c, px, py, derivative)

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return self._pq(v)[1] * np.sqrt(2 / np.pi).item() * roots(v).q

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        p, q = self._pq(v)
        return (p * p + q * q) * v

    def error(self, v, mean=None):
        return None


class Abs(Dual):
    """φ(u) = |u|.  Φ = √(v1 v2) (2/π)(√(1-ρ²) + ρ arcsin ρ), Φ' = (2/π) arcsin ρ."""

    kinks: ClassVar[tuple[float, ...]] = (0.0,)

    def fn(self, u):
        return jnp.abs(u)

    def prepare(self, v, mean=None) -> Roots:
        refuse_mean(self, mean)
        return roots(v)

    def mix(self, c, px, py, derivative):
        value = px.q * py.q * arc1(c * px.r * py.r)[1]
        return value, arc0(c * py.r * px.r) if derivative else None

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return roots(v).q * np.sqrt(2 / np.pi).item()

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        return v

    def error(self, v, mean=None):
        return None


class Sign(Dual):
    """φ(u) = sign(u), φ(0) = 0.  Φ = (2/π) arcsin ρ, Φ' = 0.

    φ' is 0 almost everywhere and that is what gradient descent sees, so Φ' = 0 here, and not the
    distributional dΦ/dc = 2/(π √(v1 v2 - c²)), which is infinite at equal inputs. This is the one
    dual with Φ' != dΦ/dc.
    """

    kinks: ClassVar[tuple[float, ...]] = (0.0,)

    def fn(self, u):
        return jnp.sign(u)

    def prepare(self, v, mean=None) -> Roots:
        refuse_mean(self, mean)
        return roots(v)

    def mix(self, c, px, py, derivative):
        value = arc0(c * px.r * py.r)
        return value, jnp.zeros_like(value) if derivative else None

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return jnp.zeros_like(v)

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        return jnp.where(roots(v).q > 0, jnp.ones_like(v), jnp.zeros_like(v))

    def error(self, v, mean=None):
        return None
