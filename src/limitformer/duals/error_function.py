"""erf and GELU.

With variances and covariance scaled so that φ's argument is erf(u/√2),

    D = (1 + v1)(1 + v2) - c² = 1 + v1 + v2 + v1 v2 (1 - ρ²),      t = c / √((1 + v1)(1 + v2)),

    E[erf erf] = (2/π) arcsin t                                       (Williams 1997)
    E[erf' erf'] ∝ 1/√D
    E[gelu gelu] = c/4 + [ c arcsin t + v1 v2 √D / ((1+v1)(1+v2)) + t²/√D ] / 2π

GELU: u Φ(u) = u/2 + u erf(u/√2)/2, the cross term vanishes by symmetry, and Gaussian integration by
parts of E[u v erf erf] gives the bracket, a sum of positive terms for c > 0 (Tsuchida, Pearce, van
der Heide, Roosta & Gallagher 2021 have an equal form). 1 - ρ² is snapped (see `arcs`), which keeps
the diagonal exact for large variances where t comes close to 1.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .arcs import arcsin2, sine_squared
from .base import Dual, constant, refuse_mean, roots


class Angle(NamedTuple):
    """One side: w the scaled variance, e = 1/√(1 + w), r = 1/√v."""

    w: Float[Array, "..."]
    e: Float[Array, "..."]
    r: Float[Array, "..."]


def _angle(v, scale):
    w = scale * v
    return Angle(w, 1 / jnp.sqrt(1 + w), roots(v).r)


def _determinant(c, px, py):
    return 1 + px.w + py.w + px.w * py.w * sine_squared(c * px.r * py.r)


def _arcsin_parts(c, scale, px, py):
    """(scaled c, e1 e2, √D, arcsin t)."""
    ee, root = px.e * py.e, jnp.sqrt(_determinant(c, px, py))
    c = scale * c
    return c, ee, root, arcsin2(c * ee, root * ee)


class Erf(Dual):
    """φ(u) = erf(scale·u).  Φ = (2/π) arcsin t, Φ' = (4/π) scale²/√D with v, c times 2 scale²."""

    scale: Any = 1.0
    kinks: ClassVar[tuple[float, ...]] = ()

    def _factor(self, like):
        scale = constant(self.scale, like)
        return 2 * scale * scale

    def fn(self, u):
        return jax.lax.erf(constant(self.scale, u) * u)

    def prepare(self, v, mean=None) -> Angle:
        refuse_mean(self, mean)
        return _angle(v, self._factor(v))

    def mix(self, c, px, py, derivative):
        factor = self._factor(c)
        value = _arcsin_parts(c, factor, px, py)[3] * (2 / np.pi)
        if not derivative:
            return value, None
        return value, factor * (2 / np.pi) / jnp.sqrt(_determinant(c, py, px))

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return jnp.zeros_like(v)

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        w = self._factor(v) * v
        return arcsin2(w / (1 + w), jnp.sqrt(1 + 2 * w) / (1 + w)) * (2 / np.pi)

    def error(self, v, mean=None):
        return None


class Gelu(Dual):
    """φ(u) = u P(z < u), z standard normal (the exact GELU; its tanh approximation is `GeluTanh`).

    Φ as in the module docstring,
    Φ' = 1/4 + [ arcsin t + c (3 + v1 + v2) / ((1+v1)(1+v2)√D) + t² c/D^{3/2} ] / 2π.
    """

    kinks: ClassVar[tuple[float, ...]] = ()

    def fn(self, u):
        return jax.nn.gelu(u, approximate=False)

    def prepare(self, v, mean=None) -> Angle:
        refuse_mean(self, mean)
        return _angle(v, 1.0)

    def mix(self, c, px, py, derivative):
        half = 0.5 / np.pi
        _, ee, root, angle = _arcsin_parts(c, 1.0, px, py)
        value = 0.25 * c + half * (
            c * angle + px.w * py.w * (ee * ee) * root + (c * ee) ** 2 / root
        )
        if not derivative:
            return value, None
        _, ee, root, angle = _arcsin_parts(c, 1.0, py, px)
        ratio = c / root
        slope = angle + (ee * ee) * ratio * (3 + px.w + py.w + ratio * ratio)
        return value, 0.25 + half * slope

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return v / jnp.sqrt((2 * np.pi) * (1 + v))

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        b, root = 1 + v, jnp.sqrt(1 + 2 * v)
        t = v / b
        angle = arcsin2(t, root / b)
        return 0.25 * v + (0.5 / np.pi) * (v * angle + t * t * (root + 1 / root))

    def error(self, v, mean=None):
        return None
