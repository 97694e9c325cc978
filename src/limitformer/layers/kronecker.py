"""Token weights that are a product over the axes of an image, applied axis by axis.

A = A_1 (x) A_2 on a grid of S = s_1 s_2 tokens: A K costs 2 S (s_1 + s_2) operations a column of K
instead of 2 S^2.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Kronecker(eqx.Module):
    """A = A_1 (x) A_2 (x) ...; a matrix of all tokens is the product of one factor.

    Attributes:
        factors: `(*n, o_k, s_k)`, one for each axis, with the same leading axes.
    """

    factors: tuple[Float[Array, "*n _ _"], ...]

    @property
    def T(self) -> Kronecker:
        """The transposed matrix."""
        return Kronecker(tuple(jnp.swapaxes(A, -1, -2) for A in self.factors))

    @property
    def matrix(self) -> Float[Array, "*n O S"]:
        """A itself."""
        result = self.factors[0]
        for A in self.factors[1:]:
            result = result[..., :, None, :, None] * A[..., None, :, None, :]
            lead, (a, b, c, d) = result.shape[:-4], result.shape[-4:]
            result = result.reshape(*lead, a * b, c * d)
        return result

    def rows(self, K: Float[Array, "*p S m"]) -> Float[Array, "*p O m"]:
        """A K."""
        lead, m = K.shape[:-2], K.shape[-1]
        before, after = 1, math.prod(K.shape[-2:])
        for A in self.factors:
            out, size = A.shape[-2:]
            after //= size
            K, lead = _along(A, K.reshape(*lead, before, size, after))
            before *= out
        return K.reshape(*lead, before, m)

    def columns(self, K: Float[Array, "*p m S"]) -> Float[Array, "*p m O"]:
        """K A^T."""
        lead, m = K.shape[:-2], K.shape[-2]
        before, after = math.prod(K.shape[-2:]), 1
        for A in reversed(self.factors):
            out, size = A.shape[-2:]
            before //= size
            K, lead = _along(A, K.reshape(*lead, before, size, after))
            after *= out
        return K.reshape(*lead, m, after)

    def on_diagonal(self, K: Float[Array, "*p O S"]) -> Float[Array, "*p O"]:
        """The diagonal of K A^T."""
        return jnp.sum(K * self.matrix, axis=-1)


def _along(A, K):
    """A on the second of the last three axes of K, and the leading axes of the result."""
    if K.shape[-1] == 1:
        K = jnp.matmul(K[..., 0], jnp.swapaxes(A, -1, -2))
        return K, K.shape[:-2]
    if K.shape[-3] == 1:
        K = jnp.matmul(A, K[..., 0, :, :])
        return K, K.shape[:-2]
    K = jnp.matmul(A[..., None, :, :], K)
    return K, K.shape[:-3]
