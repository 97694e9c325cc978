"""The Gaussian bump exp(-γ u²).

D = (1 + 2γ v1)(1 + 2γ v2) - 4γ² c²,     Φ = D^{-1/2},     Φ' = 4γ² c D^{-3/2}
"""

from typing import Any, ClassVar

import jax.numpy as jnp

from .arcs import sine_squared
from .base import Dual, Roots, constant, refuse_mean, roots


def _determinant(c, px, py):
    (w1, r1), (w2, r2) = px, py
    return 1 + w1 + w2 + w1 * w2 * sine_squared(c * r1 * r2)


class Gaussian(Dual):
    """φ(u) = exp(-gamma·u²), gamma > 0.  Φ = D^{-1/2} = det(I + 2γΣ)^{-1/2}."""

    gamma: Any = 1.0
    kinks: ClassVar[tuple[float, ...]] = ()

    def _factor(self, like):
        return 2 * constant(self.gamma, like)

    def fn(self, u):
        return jnp.exp(-constant(self.gamma, u) * u * u)

    def prepare(self, v, mean=None):
        refuse_mean(self, mean)
        return Roots(self._factor(v) * v, roots(v).r)

    def mix(self, c, px, py, derivative):
        value = 1 / jnp.sqrt(_determinant(c, px, py))
        if not derivative:
            return value, None
        D, factor = _determinant(c, py, px), self._factor(c)
        return value, factor * factor * c / (D * jnp.sqrt(D))

    def mean(self, v, mean=None):
        refuse_mean(self, mean)
        return 1 / jnp.sqrt(1 + self._factor(v) * v)

    def second(self, v, mean=None):
        refuse_mean(self, mean)
        return 1 / jnp.sqrt(1 + 2 * self._factor(v) * v)

    def error(self, v, mean=None):
        return None
