"""What flows through a network: one input's own kernel, and the kernel of a block of pairs.

Notation (theory, section 1): ``K`` second moment and ``T`` tangent kernel of one channel, ``m``
mean of the channels, ``S`` tokens. A leading shape ``*n`` stands for one or more axes of inputs.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Form(IntEnum):
    """How much of a token kernel is wanted: nothing, its token diagonal, or all of it."""

    NONE = 0
    DIAG = 1
    FULL = 2


@dataclasses.dataclass(frozen=True)
class Need:
    """What later layers need of a layer's output: of K(x, y), and of each input's own K(x, x)."""

    cross: Form
    marginal: Form

    def __or__(self, other: Need) -> Need:
        return Need(max(self.cross, other.cross), max(self.marginal, other.marginal))

    def at_least(self, cross: Form = Form.NONE, marginal: Form = Form.NONE) -> Need:
        return self | Need(cross, marginal)


class Facts(eqx.Module):
    """What is known of a layer's channels before any number is computed.

    Attributes:
        grid: shape of the token axis, `(S,)` for sequences, `(height, width)` for images.
        readout: the token axis was pooled away (it is kept with length one).
        gaussian: channels are Gaussian, so that dual activations hold.
        sources: where the channels come from: `(origin, operations since)`, used to tell
            independent branches from dependent ones.
        ids: the input holds token ids, which only `Embed` takes.
    """

    grid: tuple[int, ...] = eqx.field(static=True)
    readout: bool = eqx.field(static=True, default=False)
    gaussian: bool = eqx.field(static=True, default=False)
    sources: frozenset[tuple[str, tuple[str, ...]]] = eqx.field(static=True, default=frozenset())
    ids: bool = eqx.field(static=True, default=False)

    @property
    def tokens(self) -> int:
        size = 1
        for side in self.grid:
            size *= side
        return size

    def fresh(self, path: str, **changes) -> Facts:
        """After a layer with its own weights: Gaussian channels of a new origin."""
        changes = {"gaussian": True, "sources": frozenset({(path, ())}), "ids": False} | changes
        return dataclasses.replace(self, **changes)

    def passed(self, operation: str, **changes) -> Facts:
        """After a layer without weights: the same origins, one operation further."""
        sources = frozenset((origin, (*done, operation)) for origin, done in self.sources)
        return dataclasses.replace(self, **({"sources": sources} | changes))


class Marginal(eqx.Module):
    """One input's own state: K(x, x) in the form that is needed, means, mask and features.

    Attributes:
        facts: static knowledge of the channels.
        unit: `(*n,)` ones: the inputs' leading shape and dtype, always there.
        K: `(*n, S, S)` in full, `(*n, S)` if only the diagonal is needed, or None.
        diag: K holds the token diagonal only.
        m: `(*n, S)` channel means; None means zero.
        F: `(*n, S, f)` features with K = F F^T, while they are known; else None.
        mask: `(*n, S)` valid tokens; None means all are.
        raw: the input itself (values or token ids), before the first layer only.
        index: `(*n,)` which input this is, so that an input knows itself (dropout).
    """

    facts: Facts
    unit: Float[Array, "*n"]
    K: Any = None
    diag: bool = eqx.field(static=True, default=False)
    m: Any = None
    F: Any = None
    mask: Any = None
    raw: Any = None
    index: Any = None

    @property
    def form(self) -> Form:
        if self.K is None:
            return Form.NONE
        return Form.DIAG if self.diag else Form.FULL

    @property
    def variance(self) -> Float[Array, "*n S"]:
        """K_aa(x, x)."""
        if self.K is None:
            raise ValueError("this layer needs token variances that the need pass did not ask for")
        return self.K if self.diag else diagonal(self.K)

    def reduced(self, form: Form) -> Marginal:
        """The same state with no more of K than `form`."""
        if form == Form.NONE:
            return dataclasses.replace(self, K=None, diag=False)
        if form == Form.DIAG and self.K is not None and not self.diag:
            return dataclasses.replace(self, K=diagonal(self.K), diag=True)
        return self

    def tokenwise(self, rows) -> Any:
        """Outer product `rows_a rows_b` in the form of K (or None without K)."""
        if self.K is None:
            return None
        return rows * rows if self.diag else rows[..., :, None] * rows[..., None, :]


class Cross(eqx.Module):
    """Kernels of a block of pairs: K(x, y) and T(x, y).

    Attributes:
        K: `(*pairs, S1, S2)` in full, `(*pairs, S)` if only the token diagonal is needed.
        T: like K; None means zero.
        diag: K and T hold the token diagonal only.
    """

    K: Array
    T: Any = None
    diag: bool = eqx.field(static=True, default=False)

    def rows(self, u):
        """A per-token quantity of x, `(*n, S1)`, laid out against K."""
        return u if self.diag else u[..., :, None]

    def cols(self, u):
        """A per-token quantity of y, `(*n, S2)`, laid out against K."""
        return u if self.diag else u[..., None, :]

    def outer(self, u, v):
        """`u_a(x) v_b(y)` laid out against K."""
        return self.rows(u) * self.cols(v)

    def masked(self, value, mask_x, mask_y):
        """`value` on pairs of valid tokens, zero elsewhere."""
        for mask, lay in ((mask_x, self.rows), (mask_y, self.cols)):
            if mask is not None:
                value = jnp.where(lay(mask), value, jnp.zeros((), self.K.dtype))
        return value

    def reduced(self, form: Form) -> Cross:
        """The same block with no more than `form`."""
        if form == Form.DIAG and not self.diag:
            T = None if self.T is None else diagonal(self.T)
            return Cross(diagonal(self.K), T, True)
        return self

    def with_zero_T(self) -> Cross:
        """T as an array even where it is zero."""
        return self if self.T is not None else Cross(self.K, jnp.zeros_like(self.K), self.diag)


def diagonal(matrix: Float[Array, "*n S S"]) -> Float[Array, "*n S"]:
    """Token diagonal of a batch of square kernels."""
    return jnp.diagonal(matrix, axis1=-2, axis2=-1)


def between(Fx, Fy, diag: bool) -> Array:
    """K = F(x) F(y)^T for features laid out as records are: `(n1, 1, S, f)` against `(1, n2, S, f)`
    for all pairs of two sets, `(p, S, f)` on both sides for a list of pairs, `(S, f)` for one."""
    if Fx.ndim < 4:
        return jnp.sum(Fx * Fy, -1) if diag else jnp.matmul(Fx, jnp.swapaxes(Fy, -1, -2))
    # not a broadcast product: one large product of all tokens is what the hardware likes
    return jnp.einsum("iaf,jaf->ija" if diag else "iaf,jbf->ijab", Fx[:, 0], Fy[0])


def add(*terms: Array | None) -> Any:
    """Sum in which None stands for zero."""
    given = [term for term in terms if term is not None]
    if not given:
        return None
    total = given[0]
    for term in given[1:]:
        total = total + term
    return total


def scaled(weight, value: Array | None) -> Any:
    """`weight * value` in which None stands for zero."""
    return None if value is None else weight * value
