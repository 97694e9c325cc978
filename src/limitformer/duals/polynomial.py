"""Polynomials, exactly.

For φ(u) = Σ_k a_k u^k and u ~ N(m, v), with C_j = E[φ^(j)(u)]/j!, a polynomial in v and m,

    Φ = Σ_j j! C_j(x) C_j(y) c^j,      Φ' = Σ_j j·j! C_j(x) C_j(y) c^{j-1}.

No square root of a variance appears, so v = 0 and equal inputs are ordinary points.
"""

from math import comb, factorial
from typing import Any, ClassVar

import jax.numpy as jnp

from .base import Dual, constant


class Identity(Dual):
    """φ(u) = u.  Φ = c (+ m1 m2 with means), Φ' = 1."""

    kinks: ClassVar[tuple[float, ...]] = ()
    supports_mean: ClassVar[bool] = True

    def fn(self, u):
        return u

    def prepare(self, v, mean=None):
        return mean

    def mix(self, c, px, py, derivative):
        value = c
        if px is not None and py is not None:
            value = c + px * py
        return value, jnp.ones_like(value) if derivative else None

    def mean(self, v, mean=None):
        return jnp.zeros_like(v) if mean is None else mean

    def second(self, v, mean=None):
        return v if mean is None else v + mean * mean

    def error(self, v, mean=None):
        return None


class Polynomial(Dual):
    """φ(u) = Σ_k coefficients[k] u^k.

    Args:
        coefficients: a tuple of numbers, increasing degree; each is a leaf.

    >>> import jax.numpy as jnp
    >>> v = jnp.ones(())
    >>> float(Polynomial((0.0, 0.0, 1.0)).second(v))    # E[z^4]
    3.0
    """

    coefficients: tuple[Any, ...]
    kinks: ClassVar[tuple[float, ...]] = ()
    supports_mean: ClassVar[bool] = True

    def __check_init__(self):
        if not isinstance(self.coefficients, tuple) or not self.coefficients:
            raise TypeError(
                "Polynomial takes a non-empty tuple of coefficients (increasing degree), got "
                f"{self.coefficients!r}. Write Polynomial((0.0, 1.0)) for u."
            )

    def fn(self, u):
        total = jnp.zeros_like(u)
        for coefficient in reversed(self.coefficients):
            total = total * u + constant(coefficient, u)
        return total

    def _taylor(self, v, mean):
        """C_j = Σ_{m} a_{j+2m} (j+2m)!/(2^m m! j!) v^m, j = 0..degree, stacked last."""
        degree = len(self.coefficients) - 1
        a = [jnp.broadcast_to(constant(x, v), v.shape) for x in self.coefficients]
        if mean is not None:
            powers = [jnp.ones_like(v)]
            for _ in range(degree):
                powers.append(powers[-1] * mean)
            a = [
                sum((comb(n, k) * a[n] * powers[n - k] for n in range(k, degree + 1)), 0 * v)
                for k in range(degree + 1)
            ]
        out = []
        for j in range(degree + 1):
            total = jnp.zeros_like(v)
            for m in reversed(range((degree - j) // 2 + 1)):
                weight = factorial(j + 2 * m) / (2**m * factorial(m) * factorial(j))
                total = total * v + weight * a[j + 2 * m]
            out.append(total)
        return jnp.stack(out, -1)

    def prepare(self, v, mean=None):
        return self._taylor(v, mean)

    def mix(self, c, px, py, derivative):
        degree = len(self.coefficients) - 1
        terms = [factorial(j) * px[..., j] * py[..., j] for j in range(degree + 1)]
        value, slope = jnp.zeros_like(c), jnp.zeros_like(c)
        for j in reversed(range(degree + 1)):
            value = value * c + terms[j]
            if derivative and j > 0:
                slope = slope * c + j * terms[j]
        return value, slope if derivative else None

    def mean(self, v, mean=None):
        return self._taylor(v, mean)[..., 0]

    def second(self, v, mean=None):
        side = self._taylor(v, mean)
        return self.mix(v, side, side, False)[0]

    def error(self, v, mean=None):
        return None
