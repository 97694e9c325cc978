"""Token ids into channels, and the class token."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from ..kernel.state import Cross, Form, Marginal, Need
from .base import Context, Leaf, hyper


class Embed(Leaf):
    """A trained vector per token id, f_a = w_std E[id_a]: K_ab = w^2 [id_a = id_b], T = K.

    The first layer of a network on token ids, integers `(n, tokens)`.
    """

    makes_channels: ClassVar[bool] = True

    w_std: float = eqx.field(converter=hyper, default=1.0)

    def needs(self, out: Need) -> Need:
        return Need(Form.NONE, Form.NONE)

    def marginal(self, state: Marginal, ctx: Context):
        if not state.facts.ids or state.raw is None:
            raise ValueError(
                f"{ctx.path.lstrip('/')} takes token ids, integers of shape (n, tokens), as the "
                "network's input; for vectors use lf.Dense"
            )
        facts = state.facts.fresh(ctx.path)
        record = (state.raw, state.mask)
        new = Marginal(facts, state.unit, mask=state.mask, index=state.index)
        if ctx.need.marginal:
            ids = jnp.zeros((*state.unit.shape, state.facts.tokens), state.unit.dtype)
            block = (
                Cross(ids, diag=True)
                if ctx.need.marginal == Form.DIAG
                else Cross(jnp.zeros((*ids.shape, ids.shape[-1]), ids.dtype))
            )
            K = self._equal(block, record, record)
            new = dataclasses.replace(new, K=K, diag=block.diag)
        return new, record

    def _equal(self, k: Cross, rx, ry):
        (ids_x, mask_x), (ids_y, mask_y) = rx, ry
        same = k.rows(ids_x) == k.cols(ids_y)
        return k.masked(self.w_std**2 * same.astype(k.K.dtype), mask_x, mask_y)

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        K = self._equal(k, rx, ry)
        return Cross(K, K if ctx.ntk else None, k.diag)

    def init(self, key, acts, ctx):
        if ctx.vocabulary is None:
            raise ValueError("a twin with Embed needs vocabulary=, the number of token ids")
        return {"w": jax.random.normal(key, (ctx.vocabulary, ctx.channels), ctx.dtype)}

    def apply(self, params, acts, ctx):
        h = self.w_std * params["w"][acts.h[..., 0]]
        return acts.fresh(acts.on_valid(h))


class ClassToken(Leaf):
    """One more token in front, a trained vector: K_00 = T_00 = w^2, and 0 against the others."""

    w_std: float = eqx.field(converter=hyper, default=1.0)

    def needs(self, out: Need) -> Need:
        return Need(max(out.cross, Form.DIAG), out.marginal)

    def marginal(self, state: Marginal, ctx: Context):
        facts = state.facts
        if facts.readout:
            raise ValueError(f"{ctx.path.lstrip('/')}: there are no tokens left to put it before")
        one = jnp.ones((*state.unit.shape, 1), state.unit.dtype)
        K = None if state.K is None else self._before(state.K, state.diag)
        m = None if state.m is None else jnp.concatenate([0 * one, state.m], axis=-1)
        mask = state.mask
        if mask is not None:
            mask = jnp.concatenate([jnp.ones_like(mask[..., :1]), mask], axis=-1)
        sources = facts.sources | {(ctx.path, ())}
        facts = dataclasses.replace(facts, grid=(facts.tokens + 1,), sources=sources)
        new = Marginal(facts, state.unit, K, state.diag, m, None, mask, index=state.index)
        return new, one[..., 0]

    def _before(self, K, diag: bool):
        widths = [(0, 0)] * (K.ndim - (1 if diag else 2)) + [(1, 0)] * (1 if diag else 2)
        index = (..., 0) if diag else (..., 0, 0)
        return jnp.pad(K, widths).at[index].set(self.w_std**2)

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        T = None
        if ctx.ntk:
            T = self._before(k.with_zero_T().T, k.diag)
        return Cross(self._before(k.K, k.diag), T, k.diag)

    def init(self, key, acts, ctx):
        C = ctx.width if acts.raw else acts.h.shape[-1]
        return {"w": jax.random.normal(key, (C,), acts.h.dtype)}

    def apply(self, params, acts, ctx):
        acts = acts.widened(ctx.width)
        n, S, C = acts.h.shape
        first = jnp.broadcast_to(self.w_std * params["w"], (n, 1, C))
        mask = acts.mask
        if mask is not None:
            mask = jnp.concatenate([jnp.ones_like(mask[:, :1]), mask], axis=1)
        h = jnp.concatenate([first, acts.h], axis=1)
        return acts.passed(h, mask=mask, grid=(S + 1,))
