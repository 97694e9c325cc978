"""Dropout."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from ..kernel.state import Cross, Marginal, Need, diagonal, scaled
from .base import Context, Leaf, hyper


class Dropout(Leaf):
    """Channels kept with probability q and divided by q: K'_aa(x,x) = K_aa / q, else unchanged.

    Only one evaluation of an input shares its own dropped channels: the factor is on the diagonal
    (same row of x, same token) of `kernel(x)`, and nowhere in `kernel(x, y)`.
    """

    keep: float = eqx.field(converter=hyper, default=0.9)

    def __check_init__(self):
        if isinstance(self.keep, float) and not 0 < self.keep <= 1:
            raise ValueError(f"keep must be a probability in (0, 1], got {self.keep}")

    def needs(self, out: Need) -> Need:
        return out

    def marginal(self, state: Marginal, ctx: Context):
        K = state.K
        if K is not None:
            K = K / self.keep if state.diag else K + (1 / self.keep - 1) * _own(K)
        facts = state.facts.passed("Dropout", gaussian=False)
        new = dataclasses.replace(state, facts=facts, K=K, F=None, raw=None)
        return new, state.index

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        same = (rx == ry)[..., None] if k.diag else (rx == ry)[..., None, None]
        if not k.diag and k.K.shape[-1] == k.K.shape[-2]:
            same = same & jnp.eye(k.K.shape[-1], dtype=bool)
        elif not k.diag:
            same = jnp.zeros_like(same)
        factor = jnp.where(same, 1 / jnp.asarray(self.keep, k.K.dtype), jnp.ones((), k.K.dtype))
        return Cross(k.K * factor, scaled(factor, k.T), k.diag)

    def apply(self, params, acts, ctx):
        if ctx.key is None:
            raise ValueError("a twin with Dropout needs a key when it is called: twin(x, key=key)")
        kept = jax.random.bernoulli(ctx.key, self.keep, acts.h.shape)
        return acts.passed(jnp.where(kept, acts.h / self.keep, jnp.zeros_like(acts.h)))


def _own(K):
    return diagonal(K)[..., None] * jnp.eye(K.shape[-1], dtype=K.dtype)
