"""All readouts of one trunk at one depth: flatten, mean pool, and attention before a flatten.

A flatten after attention is a linear functional of the token kernel (theory 2.4),

    mean_a d_a(x) d_a(y) [A(x) K A(y)^T]_aa  =  < C, K >,    C = A(x)^T diag(d(x) d(y) / S) A(y),

with d the factors of a norm. It does not depend on whether K or T is read, so both cost one C.
Attention weights are smooth: A = L V^T of rank r far below the number of tokens S. Then

    < C, K > = < L(x)^T diag(d(x) d(y) / S) L(y),  V(x)^T K V(y) >,

which is r S^2 work a pair instead of S^3. How much that leaves out is measured on every input.
Weights that are a product over the axes of the image need no rank.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..kernel.state import Cross, Form, Marginal, Need
from ..layers.attention import Attention
from ..layers.base import Context, Layer, Leaf
from ..layers.combine import Serial
from ..layers.dense import Dense
from ..layers.norm import LayerNorm, RMSNorm
from ..layers.pool import Flatten, MeanPool
from ..layers.residual_attention import ResidualAttention

_WORTH = 4  # a rank pays if it is this many times below the number of tokens


@dataclasses.dataclass(frozen=True)
class Readout:
    """One way from token channels to the output.

    Args:
        name: what tables call it.
        attention: a layer of attention at scale "linear", or attention to positions; None: none.
        norm: `LayerNorm()` or `RMSNorm()` after the attention, or None.
        pool: "flatten", or "mean" (without attention only).
        rank: of the attention weights; None: exact.
    """

    name: str
    attention: Attention | ResidualAttention | None = None
    norm: LayerNorm | RMSNorm | None = None
    pool: str = "flatten"
    rank: int | None = None

    def __post_init__(self) -> None:
        if self.pool not in ("flatten", "mean") or (
            self.attention is not None and self.pool == "mean"
        ):
            raise ValueError(
                f'{self.name}: pool={self.pool!r}; expected "flatten", or "mean" without attention '
                "(lf.MeanPool() after attention is cheap as it is)"
            )
        if isinstance(self.attention, Attention) and self.attention.scale != "linear":
            raise ValueError(
                f"{self.name}: attention at scale={self.attention.scale!r} has no readout of this "
                'form; use scale="linear"'
            )
        if self.norm is not None and self.attention is None:
            raise ValueError(f"{self.name}: a norm without attention; put it into the trunk")

    def layers(self) -> Layer:
        """The same as a network: what follows the trunk, with a Dense layer at the end."""
        given = [layer for layer in (self.attention, self.norm) if layer is not None]
        return Serial(*given, Flatten() if self.pool == "flatten" else MeanPool(), Dense())

    @property
    def kept(self) -> float:
        """The share of the token kernel that passes attention unchanged."""
        if self.attention is None:
            return 1.0 if self.pool == "flatten" else 0.0
        return float(self.attention.alpha) if isinstance(self.attention, ResidualAttention) else 0.0


class Side(eqx.Module):
    """What one readout keeps of each input.

    Attributes:
        L, V: `(*n, S, r)` factors of the attention weights A = L V^T; V=None: the identity. Of
            attention to positions only, L is A itself, axis by axis.
        d: `(*n, S)` factors of the norm; None: ones.
        c: `(*n, S)` means that the norm takes away; None: zero.
        error: `(*n,)` relative error of the input's own readout from the rank.
    """

    L: Any = None
    V: Any = None
    d: Any = None
    c: Any = None
    error: Any = None


class Sides(eqx.Module):
    """The sides of all readouts, and the grid of the tokens."""

    grid: tuple[int, ...] = eqx.field(static=True)
    sides: tuple[Side, ...]


class Readouts(Leaf):
    """Several readouts of the same token kernel, each with its Dense layer; ends in a tuple."""

    readouts: tuple[Readout, ...] = eqx.field(static=True)

    def needs(self, out: Need) -> Need:
        attentive = any(isinstance(r.attention, Attention) for r in self.readouts)
        normed = any(r.norm is not None for r in self.readouts)
        return Need(Form.FULL, Form.FULL if attentive or normed else Form.NONE)

    def marginal(self, state: Marginal, ctx: Context):
        if state.mask is not None:
            raise ValueError("Readouts take inputs of one length; use the layers for masked inputs")
        sides = tuple(self._side(r, state, ctx) for r in self.readouts)
        facts = state.facts.fresh(ctx.path, grid=(1,), readout=True)
        return Marginal(facts, state.unit, index=state.index), Sides(state.facts.grid, sides)

    def _side(self, readout: Readout, state: Marginal, ctx: Context) -> Side:
        layer = readout.attention
        if layer is None:
            return Side()
        ask = Context(ctx.path, Need(Form.DIAG, Form.DIAG), ntk=False)
        after: Marginal
        record: Any
        after, record = layer.marginal(state, ask)
        after = after.reduced(Form.DIAG)
        d = c = None
        if readout.norm is not None:
            found = readout.norm.marginal(after, ask)[1]
            centred = isinstance(readout.norm, LayerNorm)
            d = found[0] if centred else found
            c = after.m * d if centred and after.m is not None else None
        exact = after.K if d is None else after.K * d * d
        if isinstance(layer, ResidualAttention):
            return Side(record, None, d, c, jnp.zeros(state.unit.shape, jnp.float64))
        L, V = low_rank(record.side[..., 0, :, :], readout.rank)
        return Side(L, V, d, c, _own_error(readout, L, V, d, state, exact))

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Any:
        grid, left, right = rx.grid, rx.sides, ry.sides
        groups: dict[Any, tuple] = {}  # by what is multiplied from both sides
        for r, x, y in zip(self.readouts, left, right, strict=True):
            if r.pool == "mean" or isinstance(r.attention, Attention):
                groups.setdefault(_group(r), tuple(_factor(r, s, grid, k.K.dtype) for s in (x, y)))
        reads = _sandwiches(groups, k)
        for r, x, y in zip(self.readouts, left, right, strict=True):
            if isinstance(r.attention, ResidualAttention) and r.attention not in reads:
                reads[r.attention] = tuple(
                    None if value is None else x.L.diagonal(value, y.L) for value in (k.K, k.T)
                )
        diagonals = k.reduced(Form.DIAG)
        return tuple(
            _read(r, x, y, reads.get(_group(r)), diagonals, ctx.ntk)
            for r, x, y in zip(self.readouts, left, right, strict=True)
        )


def _group(readout: Readout):
    """Readouts with the same attention weights share a group; None: nothing but the diagonal."""
    return ("mean",) if readout.pool == "mean" else readout.attention


def _factor(readout: Readout, side: Side, grid, dtype):
    """V of one side, with the leading axes that records have."""
    if readout.pool == "mean":
        S = math.prod(grid)
        return jnp.full((1, 1, S, 1), 1 / S, dtype)
    return side.V


def _sandwiches(groups: dict[Any, tuple], k: Cross) -> dict[Any, tuple]:
    """V(x)^T K V(y) and the same of T for every group, summed in float64; K, T if V is None.

    The left products of all groups are one product, so that K is read once.
    """
    found: dict[Any, tuple] = {g: (k.K, k.T) for g, (Vx, _) in groups.items() if Vx is None}
    thin = {g: sides for g, sides in groups.items() if g not in found}
    if not thin:
        return found
    lead, S1 = k.K.shape[:-2], k.K.shape[-2]
    head = (max(Vx.shape[0] for Vx, _ in thin.values()), 1)  # of a mean pool: 1
    stacked = jnp.concatenate(
        [jnp.broadcast_to(Vx, (*head, *Vx.shape[-2:])) for Vx, _ in thin.values()], axis=-1
    )
    rows = jnp.broadcast_to(jnp.swapaxes(stacked, -1, -2), (*lead, stacked.shape[-1], S1))
    ends = np.cumsum([Vx.shape[-1] for Vx, _ in thin.values()])[:-1]

    def left(K) -> list[Any]:
        return [None] * len(thin) if K is None else jnp.split(jnp.matmul(rows, K), ends, axis=-2)

    def right(part, Vy) -> Any:
        if part is None:
            return None
        W = jnp.broadcast_to(Vy, (*lead, *Vy.shape[-2:]))
        return jnp.matmul(part.astype(jnp.float64), W.astype(jnp.float64))

    for (g, (_, Vy)), K, T in zip(thin.items(), left(k.K), left(k.T), strict=True):
        found[g] = (right(K, Vy), right(T, Vy))
    return found


def _read(readout: Readout, x: Side, y: Side, reads, diagonals: Cross, ntk: bool) -> Cross:
    """K' and T' of one readout, after its Dense layer."""
    if readout.pool == "mean":
        K, T = reads
        return _dense(K, T, ntk)
    weight = None if x.d is None else (x.d * y.d).astype(jnp.float64)

    def on_diagonal(value) -> Any:
        if value is None:
            return None
        value = value.astype(jnp.float64)
        return jnp.mean(value if weight is None else value * weight, axis=-1)

    kept = on_diagonal(diagonals.K), on_diagonal(diagonals.T)
    if readout.attention is None:
        K, T = kept
        return _dense(K[..., None, None], None if T is None else T[..., None, None], ntk)
    through: list[Any]
    if isinstance(readout.attention, ResidualAttention):
        through = [on_diagonal(v) for v in reads]
    else:
        Lx, Ly = (s.L if s.d is None else s.L * s.d[..., None] for s in (x, y))
        C = _gram(Lx, Ly, diagonals.K.shape[:-1])
        through = [
            None if v is None else jnp.sum(C * v.astype(C.dtype), axis=(-2, -1)) for v in reads
        ]
    share = 1.0 - readout.kept
    K = share * through[0]
    T = 2 * share * through[0]  # the weights of the values and of the output
    if through[1] is not None:
        T = T + share * through[1]
    if readout.kept:
        K = K + readout.kept * kept[0]
        T = T if kept[1] is None else T + readout.kept * kept[1]
    if x.c is not None:
        K = K - jnp.mean((x.c * y.c).astype(jnp.float64), axis=-1)
    return _dense(K[..., None, None], T[..., None, None], ntk)


def _gram(Lx, Ly, lead):
    """L(x)^T L(y) / S of all pairs; in float64 while it is small."""
    S = Lx.shape[-2]
    if Lx.shape[-1] == S:  # (n1, 1, S, S) against (1, n2, S, S): one large product
        return (jnp.einsum("iac,jad->ijcd", Lx[:, 0], Ly[0]) / S).astype(jnp.float64)
    x = jnp.broadcast_to(jnp.swapaxes(Lx, -1, -2), (*lead, Lx.shape[-1], S))
    y = jnp.broadcast_to(Ly, (*lead, S, Ly.shape[-1]))
    return jnp.matmul(x.astype(jnp.float64), y.astype(jnp.float64)) / S


def _dense(K, T, ntk: bool) -> Cross:
    """After a Dense layer of weight variance one: K' = K, T' = K + T."""
    K = K.astype(jnp.float64)
    if not ntk:
        return Cross(K)
    return Cross(K, K if T is None else K + T.astype(jnp.float64))


def low_rank(A, rank: int | None):
    """Factors of attention weights, A = L V^T: V = A^T L, L an orthonormal basis of A A^T A Omega.

    They are computed in float64 and rounded once: rounding in every sum puts 4e-7 of an input's
    readout into all of its kernels, and another 4e-7 where a GPU adds in another order, as in a run
    that goes on in a new process. At 32 convolutions and a ridge of 1e-6 that is the whole signal.

    Args:
        A: `(n, S, S)`.
        rank: columns of the factors; None, or too many to pay: exact, L = A and V = None.

    Reference:
        Halko, Martinsson, Tropp (2011), Finding structure with randomness, algorithm 4.4.
    """
    S = A.shape[-1]
    if rank is None or _WORTH * rank > S:
        return A, None
    omega = np.random.default_rng(0).standard_normal((S, rank))
    omega[:, 0] = 1.0  # rows of weights have a sum
    wide = A.astype(jnp.float64)
    transposed = jnp.swapaxes(wide, -1, -2)
    L = _orthonormal(jnp.matmul(wide, jnp.asarray(omega)))
    L = _orthonormal(jnp.matmul(wide, jnp.matmul(transposed, L)))
    return L.astype(A.dtype), jnp.matmul(transposed, L).astype(A.dtype)


def _orthonormal(Y):
    """An orthonormal basis of the columns, `(n, S, r)`; columns that add nothing become zero.

    Gram-Schmidt, each column twice, in place of jnp.linalg.qr: several of LAPACK's calls in one
    compiled function on CPU have been seen to wait for each other for ever (JAX 0.10.2, two cores).
    """
    rank = Y.shape[-1]

    def step(j, Q):
        y = jax.lax.dynamic_slice_in_dim(Y, j, 1, axis=-1)
        v = y
        for _ in range(2):
            v = v - jnp.matmul(Q, jnp.matmul(jnp.swapaxes(Q, -1, -2), v))
        size, before = (jnp.sqrt(jnp.sum(a * a, axis=-2, keepdims=True)) for a in (v, y))
        v = jnp.where(size > 8 * jnp.finfo(Y.dtype).eps * before, v / size, 0.0)
        return jax.lax.dynamic_update_slice_in_dim(Q, v, j, axis=-1)

    return jax.lax.fori_loop(0, rank, step, jnp.zeros_like(Y))


def _own_error(readout: Readout, L, V, d, state: Marginal, exact):
    """|own readout from the factors / own readout - 1|."""
    wide = lambda a: a.astype(jnp.float64)  # noqa: E731
    exact = jnp.mean(wide(exact), axis=-1)
    if V is None:
        return jnp.zeros_like(exact)
    K = wide(jnp.matmul(jnp.matmul(jnp.swapaxes(V, -1, -2), state.K), V))
    weight = jnp.ones((), L.dtype) if d is None else d[..., None]
    L = wide(L * weight)
    C = jnp.matmul(jnp.swapaxes(L, -1, -2), L) / L.shape[-2]
    found = (1 - readout.kept) * jnp.sum(C * K, axis=(-2, -1))
    if readout.kept:
        own = wide(state.variance) if d is None else wide(state.variance * d * d)
        found = found + readout.kept * jnp.mean(own, axis=-1)
    return jnp.abs(found / exact - 1)
