"""The contract of a dual activation.

For (u, v) Gaussian with variances v1, v2 and covariance c,

    Φ(v1, v2, c)  = E[φ(u) φ(v)],
    Φ'(v1, v2, c) = E[φ'(u) φ'(v)] = dΦ/dc.

A kernel over n inputs asks for Φ n² times and for what depends on one input only n times, so the
work is split: `prepare` sees one side, `mix` combines two prepared sides.

Φ and Φ' are written as two expressions with nothing large in common (Φ' takes the sides in the
other order, so that the compiler does not find ρ twice): XLA on CPU fuses each into one vector
loop, while a shared intermediate is stored and read again, which is twice as slow.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


class Dual(eqx.Module):
    """Dual activation of φ: the maps Φ(v1, v2, c) and Φ'(v1, v2, c).

    Float hyper-parameters are pytree leaves and may be tracers; everything static is a class
    variable or a static field. dtype follows the arrays that are passed in.
    """

    exact: ClassVar[bool] = True
    """Whether Φ is a closed form (then `error` is None)."""
    supports_mean: ClassVar[bool] = False
    """Whether `prepare` takes a nonzero Gaussian mean; if not, see `with_mean`."""
    kinks: eqx.AbstractVar[tuple[float, ...]]
    """Places where φ is not smooth."""

    @abc.abstractmethod
    def fn(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """φ(u), elementwise."""

    @abc.abstractmethod
    def prepare(self, v: Float[Array, "..."], mean: Float[Array, "..."] | None = None) -> PyTree:
        """What Φ needs from one side.

        Args:
            v: variances, any shape; exact zeros are allowed (padded tokens).
            mean: Gaussian means, same shape; None for zero.

        Returns:
            A pytree; every leaf has shape `v.shape + extra`.
        """

    @abc.abstractmethod
    def mix(
        self, c: Float[Array, "..."], px: PyTree, py: PyTree, derivative: bool
    ) -> tuple[Float[Array, "..."], Float[Array, "..."] | None]:
        """Φ and, if `derivative`, Φ' at covariance c.

        Args:
            c: covariances, any shape.
            px, py: prepared sides, leaves broadcastable to `c.shape` (+ their extra axes).
            derivative: whether Φ' is wanted; if not it costs nothing and None is returned.
        """

    @abc.abstractmethod
    def mean(
        self, v: Float[Array, "..."], mean: Float[Array, "..."] | None = None
    ) -> Float[Array, "..."]:
        """E[φ(u)], u ~ N(mean, v)."""

    @abc.abstractmethod
    def second(
        self, v: Float[Array, "..."], mean: Float[Array, "..."] | None = None
    ) -> Float[Array, "..."]:
        """E[φ(u)²] = Φ(v, v, v), u ~ N(mean, v)."""

    @abc.abstractmethod
    def error(
        self, v: Float[Array, "..."], mean: Float[Array, "..."] | None = None
    ) -> Float[Array, "..."] | None:
        """Bound on |error of Φ| at variance v, or None for a closed form.

        For two sides, |error of Φ(v1, v2, c)| <= 2 sqrt(error(v1) error(v2)).
        """


def dual(
    phi: Dual, v1: Float[Array, "..."], v2: Float[Array, "..."], c: Float[Array, "..."]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """(Φ(v1, v2, c), Φ'(v1, v2, c)) for arrays that broadcast against each other.

    >>> import jax.numpy as jnp
    >>> from limitformer import duals
    >>> Phi, Phi1 = duals.dual(duals.Relu(), jnp.ones(()), jnp.ones(()), jnp.ones(()))
    >>> float(Phi), float(Phi1)
    (0.5, 0.5)
    """
    v1, v2, c = jnp.broadcast_arrays(*map(jnp.asarray, (v1, v2, c)))
    value, slope = phi.mix(c, phi.prepare(v1), phi.prepare(v2), True)
    assert slope is not None
    return value, slope


class Roots(NamedTuple):
    """Square root q = √v and its reciprocal r; both 0 where v = 0."""

    q: Float[Array, "..."]
    r: Float[Array, "..."]


def roots(v: Float[Array, "..."]) -> Roots:
    """√v and 1/√v, both 0 with derivative 0 where v = 0 (padded tokens); NaN passes through."""
    zero = v <= jnp.finfo(v.dtype).tiny
    q = jnp.sqrt(jnp.where(zero, jnp.ones_like(v), v))
    return Roots(jnp.where(zero, jnp.zeros_like(q), q), jnp.where(zero, jnp.zeros_like(q), 1 / q))


def constant(x: Any, like: Float[Array, "..."]) -> Float[Array, ""]:
    """A hyper-parameter (number, array or tracer) in the dtype of `like`."""
    return jnp.asarray(x, like.dtype)


def refuse_mean(phi: Dual, mean: Float[Array, "..."] | None) -> None:
    """Raise if a closed form for centred Gaussians is asked for a mean."""
    if mean is not None:
        name = type(phi).__name__
        raise ValueError(
            f"{name} is a closed form for centred Gaussians and was given a mean of shape "
            f"{jnp.shape(mean)}. Use `with_mean({name}(...))`, which integrates by quadrature."
        )


def derivative_of(fn, u: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """(φ(u), φ'(u)) of an elementwise function."""
    return jax.jvp(fn, (u,), (jnp.ones_like(u),))
