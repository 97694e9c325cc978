"""Sine and cosine: random Fourier features.

With E± = exp(-ω²(v1 + v2 ∓ 2c)/2),

    sin(ωu + θ):  Φ = (E+ - cos(2θ) E-)/2,   Φ' = ω² (E+ + cos(2θ) E-)/2;    cos: θ + π/2.
"""

from typing import Any, ClassVar

import jax.numpy as jnp

from .base import Dual, constant, refuse_mean


def _waves(frequency, c, px, py):
    w2 = frequency * frequency
    half = 0.5 * (px + py)
    return w2, jnp.exp(w2 * (c - half)), jnp.exp(-w2 * (c + half))


class Sin(Dual):
    """φ(u) = sin(frequency·u + phase)."""

    frequency: Any = 1.0
    phase: Any = 0.0
    kinks: ClassVar[tuple[float, ...]] = ()

    def fn(self, u):
        return jnp.sin(constant(self.frequency, u) * u + constant(self.phase, u))

    def prepare(self, v, mean=None):
        refuse_mean(self, mean)
        return v

    def mix(self, c, px, py, derivative):
        w2, plus, minus = _waves(constant(self.frequency, c), c, px, py)
        minus = jnp.cos(2 * constant(self.phase, c)) * minus
        return 0.5 * (plus - minus), 0.5 * w2 * (plus + minus) if derivative else None

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return jnp.sin(constant(self.phase, v)) * jnp.exp(
            -0.5 * constant(self.frequency, v) ** 2 * v
        )

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        w2 = constant(self.frequency, v) ** 2
        # 1 - cos(2θ) e^x = (1 - cos 2θ) - cos(2θ) (e^x - 1), exact for small variances.
        sine = jnp.sin(constant(self.phase, v))
        return sine * sine - 0.5 * (1 - 2 * sine * sine) * jnp.expm1(-2 * w2 * v)

    def error(self, v, mean=None):
        return None


class Cos(Dual):
    """φ(u) = cos(frequency·u).  Φ = (E+ + E-)/2, Φ' = ω² (E+ - E-)/2."""

    frequency: Any = 1.0
    kinks: ClassVar[tuple[float, ...]] = ()

    def fn(self, u):
        return jnp.cos(constant(self.frequency, u) * u)

    def prepare(self, v, mean=None):
        refuse_mean(self, mean)
        return v

    def mix(self, c, px, py, derivative):
        w2, plus, minus = _waves(constant(self.frequency, c), c, px, py)
        return 0.5 * (plus + minus), 0.5 * w2 * (plus - minus) if derivative else None

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return jnp.exp(-0.5 * constant(self.frequency, v) ** 2 * v)

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        return 0.5 + 0.5 * jnp.exp(-2 * constant(self.frequency, v) ** 2 * v)

    def error(self, v, mean=None):
        return None
