"""LayerNorm and RMSNorm: they divide by a deviation that concentrates at infinite width."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..kernel.functional import Functional
from ..kernel.state import Cross, Form, Marginal, Need, scaled
from .base import Context, Leaf, choice, hyper


class LayerNorm(Leaf):
    """Subtract the mean and divide by the deviation, over each token's channels or over all.

    over="channels":  K'_ab = (K_ab - m_a m_b) / sqrt((K_aa - m_a^2)(K_bb - m_b^2)), m' = 0.
    over="all" (tokens and channels of one input):  mu = mean_a m_a, v = mean_a K_aa - mu^2,
        K'_ab = (K_ab - mu_x m_b - m_a mu_y + mu_x mu_y) / sqrt(v_x v_y), m' = (m - mu) / sqrt(v).
    T' = T over the same denominator: the statistics concentrate, so no gradient passes through
    them. (Hron 2020, Table 1, prints T's own diagonal there; an empirical NTK shows K's.)

    Args:
        over: "channels" or "all".
        eps: added to the variance; an all-zero token stays zero.
    """

    over: str = eqx.field(static=True, default="channels")
    eps: float = eqx.field(converter=hyper, default=1e-12)

    def __check_init__(self):
        choice("over", self.over, ("channels", "all"))

    def needs(self, out: Need) -> Need:
        return out.at_least(marginal=Form.DIAG)

    def marginal(self, state: Marginal, ctx: Context):
        variance, m, mask = state.variance, state.m, state.mask
        centre: Any
        if self.over == "channels":
            centre = m
            spread = variance if m is None else variance - m * m
        else:
            centre = None if m is None else _token_mean(m, mask)
            spread = _token_mean(variance, mask)
            spread = spread if centre is None else spread - centre * centre
        inverse = _on_valid(jax.lax.rsqrt(spread + self.eps), mask, variance)
        K = None
        if state.K is not None:
            K = state.K
            if centre is not None:
                K = _recentred(K, m, centre, state.diag)
            K = K * state.tokenwise(inverse)
        shifted = None if m is None or self.over == "channels" else (m - centre) * inverse
        F = None if state.F is None or centre is not None else state.F * inverse[..., None]
        facts = state.facts.passed("LayerNorm")
        new = dataclasses.replace(state, facts=facts, K=K, m=shifted, F=F, raw=None)
        if centre is None:
            return new, (inverse, None, None)
        return new, (inverse, m, jnp.broadcast_to(centre, m.shape))

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        (ix, mx, cx), (iy, my, cy) = rx, ry
        K = k.K
        if mx is not None or my is not None:
            zx = jnp.zeros_like(ix) if mx is None else None
            zy = jnp.zeros_like(iy) if my is None else None
            mx, cx = (zx, zx) if mx is None else (mx, cx)
            my, cy = (zy, zy) if my is None else (my, cy)
            K = K - k.outer(cx, my) - k.outer(mx, cy) + k.outer(cx, cy)
        both = k.outer(ix, iy)
        return Cross(K * both, scaled(both, k.T), k.diag)

    @property
    def pull_rank(self) -> int:
        return 1 if self.over == "channels" else 0

    def pull(self, functional: Functional, record) -> Functional:
        inverse, m, _ = record
        u = functional.u * inverse[..., None, :]
        if m is not None:
            functional = functional.plus(
                jnp.sum(u * m[..., None, :], axis=-1), sign=-1.0, trained=0.0
            )
        return functional.reads(u, 0.0)

    def apply(self, params, acts, ctx):
        h = acts.h
        mask = None if acts.mask is None else acts.mask[..., None]
        axes = (-1,) if self.over == "channels" else (-2, -1)
        where = None if self.over == "channels" or mask is None else mask
        mean = jnp.mean(h, axis=axes, keepdims=True, where=where)
        spread = jnp.mean((h - mean) ** 2, axis=axes, keepdims=True, where=where)
        return acts.passed(acts.on_valid((h - mean) * jax.lax.rsqrt(spread + self.eps)))


class RMSNorm(Leaf):
    """Divide each token by its root mean square: K'_ab = K_ab / sqrt(K_aa K_bb), T' likewise.

    m' = m_a / sqrt(K_aa); eps is added to K_aa, so that an all-zero token stays zero.
    """

    eps: float = eqx.field(converter=hyper, default=1e-12)

    def needs(self, out: Need) -> Need:
        return out.at_least(marginal=Form.DIAG)

    def marginal(self, state: Marginal, ctx: Context):
        inverse = jax.lax.rsqrt(state.variance + self.eps)
        K = None if state.K is None else state.K * state.tokenwise(inverse)
        m = None if state.m is None else state.m * inverse
        F = None if state.F is None else state.F * inverse[..., None]
        facts = state.facts.passed("RMSNorm")
        return dataclasses.replace(state, facts=facts, K=K, m=m, F=F, raw=None), inverse

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        both = k.outer(rx, ry)
        return Cross(k.K * both, scaled(both, k.T), k.diag)

    @property
    def pull_rank(self) -> int:
        return 1

    def pull(self, functional: Functional, record) -> Functional:
        return functional.reads(functional.u * record[..., None, :], 0.0)

    def apply(self, params, acts, ctx):
        square = jnp.mean(acts.h**2, axis=-1, keepdims=True)
        return acts.passed(acts.h * jax.lax.rsqrt(square + self.eps))


def _token_mean(values, mask):
    """Mean over the valid tokens, with the token axis kept."""
    if mask is None:
        return jnp.mean(values, axis=-1, keepdims=True)
    count = jnp.sum(mask, axis=-1, keepdims=True, dtype=values.dtype)
    return jnp.sum(jnp.where(mask, values, 0.0), axis=-1, keepdims=True) / count


def _on_valid(inverse, mask, like):
    """One factor per token, zero on padding (so that centring leaves padding at zero)."""
    inverse = jnp.broadcast_to(inverse, like.shape)
    return inverse if mask is None else jnp.where(mask, inverse, 0.0)


def _recentred(K, m, centre, diag: bool):
    if diag:
        return K - 2 * centre * m + centre * centre
    c = jnp.broadcast_to(centre, m.shape)
    col, row = (lambda v: v[..., :, None]), (lambda v: v[..., None, :])
    return K - col(c) * row(m) - col(m) * row(c) + col(c) * row(c)
