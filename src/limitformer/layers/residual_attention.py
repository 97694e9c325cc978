"""Hron's residual attention: attention to positions only, interpolated with the identity."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from ..duals.polynomial import Identity
from ..kernel.functional import Functional
from ..kernel.state import Cross, Form, Marginal, Need, add
from ..scores.weights import attend
from .attention_scores import Scores, attention_work, check_weights, zeta_of
from .base import Context, Leaf, hyper
from .kronecker import Kronecker
from .pair_mask import pairs_of
from .position import Coordinates, OneHot, Position, SquaredExponential


class ResidualAttention(Leaf):
    """f = sqrt(alpha) h + sqrt(1 - alpha) A h W, attention weights A from positions only.

    K' = alpha K + (1 - alpha) A(x) K A(y)^T, T' = alpha T + (1 - alpha) A(x) (2 K + T) A(y)^T,
    with A = zeta(s_QK R). The default, A = R itself (identity), is the form of Hron 2020, Table 1;
    weights="softmax" normalises its rows. On images, R itself is applied axis by axis.

    Args:
        decay: the position covariance R, as for `Position`.
        alpha: share of the input, in [0, 1].
        weights, qk_std: the map from R to attention weights.
    """

    keeps_channels: ClassVar[bool] = False

    position: Position
    alpha: float = eqx.field(converter=hyper)
    weights: eqx.Module
    qk_std: float = eqx.field(converter=hyper)

    def __init__(self, decay=None, alpha=0.5, weights="identity", qk_std=1.0):
        self.position = Position(SquaredExponential() if decay is None else decay)
        self.alpha = alpha
        self.weights = check_weights(weights)
        self.qk_std = qk_std
        if isinstance(self.alpha, float) and not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must lie between 0 and 1, got {alpha}")

    def token_weights(self, grid, mask, lead, dtype) -> Kronecker:
        """A of every input, axis by axis where it is a product over the axes of an image."""
        decay, zeta = self.position.decay, zeta_of(self.weights)
        image = len(grid) > 1 and mask is None and isinstance(zeta, Identity)
        if image and isinstance(decay, OneHot | SquaredExponential):
            scale, axis = decay.along_an_axis()
            places = [Coordinates.of((side,), None, lead, dtype) for side in grid]
            first, *rest = (place.covariance(axis, place) for place in places)
            return Kronecker((self.qk_std * scale * first, *rest))
        place = Coordinates.of(grid, mask, lead, dtype)
        scores = (self.qk_std * place.covariance(decay, place))[..., None, :, :]
        return Kronecker((attend(zeta, scores, pairs_of(mask, mask), False)[..., 0, :, :],))

    def needs(self, out: Need) -> Need:
        own = Form.FULL if out.marginal else Form.NONE
        return Need(Form.FULL if out.cross else Form.NONE, own)

    def marginal(self, state: Marginal, ctx: Context):
        if state.facts.readout:
            raise ValueError(f"{ctx.path.lstrip('/')}: there are no tokens left to attend to")
        self.position.check(state.facts.grid, ctx.path)
        dtype = state.unit.dtype
        A = self.token_weights(state.facts.grid, state.mask, state.unit.shape, dtype)
        K = None
        if ctx.need.marginal:
            K = self.alpha * state.K + (1 - self.alpha) * both_through(A, state.K, A)
        m = None if state.m is None else jnp.sqrt(jnp.asarray(self.alpha, dtype)) * state.m
        passed = state.facts.passed("ResidualAttention")
        facts = dataclasses.replace(passed, sources=passed.sources | {(ctx.path, ())})
        return Marginal(facts, state.unit, K, False, m, mask=state.mask, index=state.index), A

    def cross(self, k: Cross, rx: Kronecker, ry: Kronecker, ctx: Context) -> Cross:
        diag = ctx.need.cross == Form.DIAG
        through = diagonal_through if diag else both_through
        kept = k.reduced(Form.DIAG) if diag else k
        return self.joined(kept, through(rx, k.K, ry), through(rx, k.T, ry), ctx.ntk)

    def joined(self, kept: Cross, K, T, ntk: bool) -> Cross:
        """K' and T' from what passes unchanged, and from A K A^T and A T A^T in the same form."""
        mixed = self.alpha * kept.K + (1 - self.alpha) * K
        if not ntk:
            return Cross(mixed, None, kept.diag)
        own = 2 * (1 - self.alpha) * K
        before = None if T is None else self.alpha * kept.T + (1 - self.alpha) * T
        return Cross(mixed, add(own, before), kept.diag)

    @property
    def pull_rank(self) -> int:
        return 2

    def pull(self, functional: Functional, record) -> Functional:
        u = functional.u
        kept, mixed = (jnp.sqrt(jnp.asarray(a, u.dtype)) for a in (self.alpha, 1 - self.alpha))
        through = functional.linear(1.0).reads(mixed * record.T.columns(u), 2.0)
        return functional.linear(kept).joined(through).joined(functional.constant())

    def init(self, key, acts, ctx):
        C = acts.h.shape[-1]
        kv, ko = jax.random.split(key)
        d = ctx.head_width
        return {
            "v": jax.random.normal(kv, (C, d), acts.h.dtype),
            "o": jax.random.normal(ko, (d, ctx.channels if acts.raw else C), acts.h.dtype),
        }

    def apply(self, params, acts, ctx):
        A = self.token_weights(acts.grid, acts.mask, acts.h.shape[:1], acts.h.dtype)
        v = acts.h @ params["v"] / math.sqrt(acts.h.shape[-1])
        f = A.rows(v) @ params["o"] / math.sqrt(v.shape[-1])
        h = acts.repeated(f.shape[-1]).h
        mixed = jnp.sqrt(self.alpha) * h + jnp.sqrt(1 - self.alpha) * f
        return acts.passed(acts.on_valid(mixed))

    def work(self, S1, S2, out, draws):
        scores = Scores("linear", None, False, self.qk_std, True, None)
        return attention_work(scores, S1, S2, out, draws)


def both_through(A: Kronecker, K: Any, B: Kronecker) -> Any:
    """A K B^T, or None."""
    return None if K is None else B.columns(A.rows(K))


def diagonal_through(A: Kronecker, K: Any, B: Kronecker) -> Any:
    """The diagonal of A K B^T, or None."""
    return None if K is None else A.diagonal(K, B)
