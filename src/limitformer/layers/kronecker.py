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

    def diagonal(self, K: Float[Array, "*p S1 S2"], other: Kronecker) -> Float[Array, "*p O"]:
        """The diagonal of A K B^T, B the other: both sides of one axis at a time.

        After the first axis an array of s_1 times fewer entries is left. Products over different
        axes (an image with a mask has one factor) are taken as whole matrices.
        """
        sides = self.factors, other.factors
        if len(self.factors) != len(other.factors):
            sides = (self.matrix,), (other.matrix,)
        for k, (A, B) in enumerate(zip(*sides, strict=True)):
            lead, (S1, S2) = K.shape[:-2], K.shape[-2:]
            A, B = (F.reshape(*F.shape[:-2], *(1,) * k, *F.shape[-2:]) for F in (A, B))
            s1, s2 = A.shape[-1], B.shape[-1]
            left = jnp.matmul(A, K.reshape(*lead, s1, S1 // s1 * S2))
            left = left.reshape(*left.shape[:-1], S1 // s1, s2, S2 // s2)
            K = jnp.sum(left * B[..., :, None, :, None], axis=-2)
        return K[..., 0, 0].reshape(*K.shape[: -2 - len(sides[0])], -1)

    def diagonal_of_rest(
        self, E: Float[Array, "*p h1 h2 o"], other: Kronecker
    ) -> Float[Array, "*p O"]:
        """The diagonal of A K B^T on two axes, from what `along_last` made of the second."""
        (A, _), (B, _) = self.factors, other.factors
        *lead, s1, s2, o = E.shape
        left = jnp.matmul(A, E.reshape(*lead, s1, s2 * o))
        left = left.reshape(*left.shape[:-1], s2, o)
        found = jnp.sum(left * B[..., :, :, None], axis=-2)
        return found.reshape(*found.shape[:-2], -1)


def along_last(
    A: Float[Array, "*n o W1"], K: Float[Array, "*p S1 S2"], B: Float[Array, "*m o W2"]
) -> Float[Array, "*p h1 h2 o"]:
    """The diagonal of A K B^T along the last axis of the tokens: `(*p, S1 / W1, S2 / W2, o)`."""
    (W1, W2), lead = (A.shape[-1], B.shape[-1]), K.shape[:-2]
    K = K.reshape(*lead, K.shape[-2] // W1, W1, K.shape[-1] // W2, W2)
    right = jnp.matmul(K, jnp.swapaxes(B, -1, -2)[..., None, None, :, :])
    return jnp.sum(right * jnp.swapaxes(A, -1, -2)[..., None, :, None, :], axis=-3)


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
