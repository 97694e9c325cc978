"""The scaled complementary error function erfcx(x) = exp(x²) erfc(x) for x >= 0.

(1 + 2x) erfcx(x) is a polynomial in (x - 3)/(x + 3), after Shepherd & Laframboise (1981).
"""

import jax
import numpy as np
from jaxtyping import Array, Float

from .coefficients import ERFCX, polynomial


@jax.custom_jvp
def erfcx(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """exp(x²) erfc(x), x >= 0."""
    return polynomial(ERFCX, (x - 3) / (x + 3)) / (1 + 2 * x)


@erfcx.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    value = erfcx(x)
    return value, (2 * x * value - 2 / np.sqrt(np.pi).item()) * t
