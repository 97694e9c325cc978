"""Linear functionals of a token kernel: what a pooled readout needs, pulled back through layers.

A readout is u(x)^T K' u(y). Linear layers are pulled out of it: with K' = s^2 A K A^T + b^2 it is
u'(x)^T K u'(y) + c(x) c(y), u' = s A^T u, c = b sum_a u_a: S^2 work a pair instead of S^3.
Residual branches add terms, so a functional is a short sum of such products.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .state import Cross, add


class Functional(eqx.Module):
    """K -> sum_r u_r(x)^T K u_r(y) + sum_q cK_q c_q(x) c_q(y), and for the NTK
    (K, T) -> sum_r u_r(x)^T (T + kappa_r K) u_r(y) + sum_q cT_q c_q(x) c_q(y).

    Attributes:
        u: `(*n, r, S)` token weights; kappa: `(r,)` share of K in the tangent kernel.
        c: `(*n, q)` per-input constants; cK, cT: `(q,)` their coefficients.
    """

    u: Float[Array, "*n r S"]
    kappa: tuple[float, ...] = eqx.field(static=True)
    c: Float[Array, "*n q"]
    cK: tuple[float, ...] = eqx.field(static=True)
    cT: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def of_weights(cls, u: Float[Array, "*n S"]) -> Functional:
        """u(x)^T K u(y)."""
        return cls(u[..., None, :], (0.0,), jnp.zeros((*u.shape[:-1], 0), u.dtype), (), ())

    def linear(self, weight) -> Functional:
        """The part that reads the kernel, for channels scaled by `weight`."""
        empty = self.c[..., :0]
        return Functional(weight * self.u, self.kappa, empty, (), ())

    def constant(self) -> Functional:
        """The part that does not read the kernel."""
        return Functional(self.u[..., :0, :], (), self.c, self.cK, self.cT)

    def joined(self, other: Functional) -> Functional:
        """The sum of two functionals."""
        return Functional(
            jnp.concatenate([self.u, other.u], axis=-2),
            self.kappa + other.kappa,
            jnp.concatenate([self.c, other.c], axis=-1),
            self.cK + other.cK,
            self.cT + other.cT,
        )

    def reads(self, u, weights: float) -> Functional:
        """New token weights `u`, where the layer's own weights add `weights` times K to T."""
        kappa = tuple(k + weights for k in self.kappa)
        return Functional(u, kappa, self.c, self.cK, self.cT)

    def plus(self, c: Float[Array, "*n r"], sign: float = 1.0, trained: float = 1.0) -> Functional:
        """Add to K' the constant sign * c_r(x) c_r(y) per term r, and `trained` times it to T'."""
        return Functional(
            self.u,
            self.kappa,
            jnp.concatenate([self.c, c], axis=-1),
            self.cK + (sign,) * len(self.kappa),
            self.cT + tuple(sign * (trained + kappa) for kappa in self.kappa),
        )

    def own(self, K: Float[Array, "*n S S"]) -> Float[Array, "*n 1"]:
        """The functional of one input's own kernel."""
        value = jnp.sum(jnp.matmul(self.u, K) * self.u, axis=(-2, -1))
        if self.cK:
            value = value + jnp.sum(jnp.asarray(self.cK, K.dtype) * self.c * self.c, axis=-1)
        return value[..., None]


def contract(fx: Functional, fy: Functional, k: Cross, ntk: bool) -> Cross:
    """Apply a functional to a block of pairs; the token axes get length one."""
    T = None if k.T is None else bilinear(fx.u, k.T, fy.u)
    return gathered(fx, constants(fx, fy), bilinear(fx.u, k.K, fy.u), T, ntk)


def constants(fx: Functional, fy: Functional) -> list:
    """c_q(x) c_q(y) for every constant q."""
    return [fx.c[..., q] * fy.c[..., q] for q in range(len(fx.cK))]


def gathered(functional: Functional, constants, K, T, ntk: bool) -> Cross:
    """A functional of a block of pairs from its parts.

    Args:
        functional: of either side; its coefficients are taken.
        constants: c_q(x) c_q(y).
        K, T: u_r(x)^T K u_r(y), and the same of T (or None).
        ntk: whether T is asked for.
    """
    f = functional
    value = add(*K, *(c * p for c, p in zip(f.cK, constants, strict=True)))
    tangent = None
    if ntk:
        own = (k * t for k, t in zip(f.kappa, K, strict=True) if k)
        tangent = add(*own, *(T or ()), *(c * p for c, p in zip(f.cT, constants, strict=True)))
    return Cross(value[..., None, None], None if tangent is None else tangent[..., None, None])


def bilinear(u, K, v) -> list:
    """u_r^T K v_r for every term r, with broadcasting leading axes.

    A product, not a sum: XLA on CPU merges the layers before into a reduction and runs it 3 to 7
    times slower (measured for a ReLU of 64 tokens), but never into a matrix product.
    """
    return [
        jnp.sum(jnp.matmul(u[..., r, None, :], K)[..., 0, :] * v[..., r, :], axis=-1)
        for r in range(u.shape[-2])
    ]
