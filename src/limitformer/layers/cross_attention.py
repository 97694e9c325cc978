"""Attention of one sequence to another: queries from the first stream, keys and values from the
second (theory 2.3)."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from ..duals import Identity
from ..kernel.state import Cross, Form, Marginal, Need
from ..scores import joint_features
from ..scores.factor import all_features
from ..scores.law import Kernels
from .attention import (
    AttentionRecord,
    check_attention,
    check_heads,
    ctx_without_ntk,
    inf,
    known_features,
    own_features,
)
from .attention_scores import Scores, attention_work, check_weights, outputs, zeta_of
from .attention_twin import apply_heads, init_heads
from .base import Context, Leaf, choice, hyper
from .pair_mask import pairs_of


class CrossAttention(Leaf):
    """Attention with queries from stream x and keys and values from stream c.

    scale="sqrt": Cov(G_ac, G_bd) = s_QK^2 Kx_ab Kc_cd, K' = s_OV^2 sum_cd Kc_cd E[A A~] + b^2,
    T' = b^2 + 2 (K' - b^2) + s_OV^2 sum Tc_cd E[A A~]
         + s_OV^2 s_QK^2 [(2 Kx_ab + Tx_ab) S(Kc) + Kx_ab S(Tc)].
    scale="linear": A = zeta(s_QK K(x, c)), with K(x, c) the kernel between the two streams: that of
    raw inputs with the same features, and 0 once either has passed through weights of its own.

    Takes two streams, `x=(x, c)` or the output of `Parallel`, and returns one, on x's tokens.
    Arguments as for `Attention`.
    """

    makes_channels: ClassVar[bool] = True

    scale: str = eqx.field(static=True)
    weights: eqx.Module
    heads: float = eqx.field(static=True)
    qk_std: float = eqx.field(converter=hyper)
    ov_std: float = eqx.field(converter=hyper)
    b_std: float = eqx.field(converter=hyper)
    tied: bool | None = eqx.field(static=True)
    per_key: bool = eqx.field(static=True)

    def __init__(
        self,
        scale="sqrt",
        weights="softmax",
        heads=inf,
        qk_std=1.0,
        ov_std=1.0,
        b_std=0.0,
        tied=None,
        per_key=False,
    ):
        self.scale = choice("scale", scale, ("sqrt", "linear"))
        self.weights = check_weights(weights)
        self.heads = check_heads(heads)
        self.qk_std, self.ov_std, self.b_std = qk_std, ov_std, b_std
        self.tied, self.per_key = tied, per_key
        if scale == "sqrt" and tied:
            raise ValueError('tied queries and keys need scale="linear"')

    @property
    def position(self):
        return None

    @property
    def scores(self) -> Scores:
        tied = self.scale == "linear" if self.tied is None else self.tied
        return Scores(
            self.scale, zeta_of(self.weights), self.per_key, self.qk_std, tied, None, self.heads
        )

    @property
    def random_scores(self) -> bool:
        return self.scores.law in ("sampled", "drawn")

    def needs(self, out: Need) -> Need:
        own = Form.FULL if out.marginal else Form.NONE
        if self.scores.law in ("sampled", "drawn"):
            own = Form.FULL
        elif self.scores.law == "elementwise" and not isinstance(self.scores.zeta, Identity):
            own = max(own, Form.DIAG)
        return Need(Form.FULL, own)

    def marginal(self, state, ctx: Context):
        x, c = _two(state, ctx.path)
        check_attention(self, x, ctx)
        check_attention(self, c, ctx)
        scores = self.scores
        seen = pairs_of(x.mask, c.mask)
        if scores.law == "fixed":
            side = scores.fixed_weights(_between(x, c), seen)
        elif scores.law == "elementwise":
            zero = lambda s: jnp.zeros((*s.unit.shape, s.facts.tokens), s.unit.dtype)  # noqa: E731
            vx, vc = (zero(s) if s.K is None else s.variance for s in (x, c))
            side = scores.elementwise_side(vx, vc, seen)
        else:
            Fq, Fk = ctx.features or (own_features(s.F, s, ctx) for s in (x, c))
            side = scores.random_side(Fq, Fk, seen, ctx)
        record = AttentionRecord(side, None, x.mask)
        own = None
        if ctx.need.marginal:
            own = self.cross((Cross(x.K), Cross(c.K)), record, record, ctx_without_ntk(ctx)).K
        facts = x.facts.fresh(ctx.path)
        diag = own is not None and own.ndim == x.unit.ndim + 1
        return Marginal(facts, x.unit, own, diag, mask=x.mask, index=x.index), record

    def cross(self, k, rx, ry, ctx: Context) -> Cross:
        kx, kc = k
        Tx, Tc = (kx.T, kc.T) if ctx.ntk else (None, None)
        kernels = Kernels(kx.K, Tx, kc.K, Tc, kc.K, Tc)
        diag = self.scale == "linear" and ctx.need.cross == Form.DIAG
        averages = self.scores.average(rx.side, ry.side, kernels, ctx.ntk, diag)
        laid = Cross(averages.K, None, diag)
        b2 = laid.masked(self.b_std**2 * jnp.ones((), kx.K.dtype), rx.mask, ry.mask)
        return outputs(averages, kernels, self.ov_std, self.qk_std, b2, ctx.ntk, diag)

    def pair_features(self, x, y, k):
        """Features of queries and keys of each pair: ((Fq, Fk) of x, (Fq, Fk) of y)."""
        queries = joint_features(x[0].K, y[0].K, k[0].K)
        keys = joint_features(x[1].K, y[1].K, k[1].K)
        return (queries[0], keys[0]), (queries[1], keys[1])

    def joint_features(self, x, k, ctx: Context):
        """Features of queries and keys of all inputs together."""
        return tuple(
            all_features(b.K) if (F := known_features(s, ctx)) is None else F
            for s, b in zip(x, k, strict=True)
        )

    def init(self, key, acts, ctx):
        query, context = acts
        return init_heads(self, key, query.h.shape[-1], context.h.shape[-1], ctx, query.h.dtype)

    def apply(self, params, acts, ctx):
        query, context = acts
        seen = pairs_of(query.mask, context.mask)
        f = apply_heads(self, params, query.h, context.h, context.h, seen)
        return query.fresh(query.on_valid(f))

    def work(self, S1, S2, out, draws):
        return attention_work(self.scores, S1, S2, out, draws)


def _two(state, path: str) -> tuple[Marginal, Marginal]:
    if not isinstance(state, tuple) or len(state) != 2:
        raise ValueError(
            f"{path.lstrip('/')} takes two streams, queries and context: call the network with "
            "x=(x, context), or put lf.Parallel(...) before it"
        )
    return state


def _between(x: Marginal, c: Marginal) -> jax.Array:
    """K(x, c): the kernel between the two streams of one input."""
    if x.raw is not None and c.raw is not None and x.raw.shape[-1] == c.raw.shape[-1]:
        return jnp.matmul(x.raw, jnp.swapaxes(c.raw, -1, -2)) / x.raw.shape[-1]
    for stream in (x, c):
        if any(origin.startswith("input") for origin, _ in stream.facts.sources):
            raise ValueError(
                'CrossAttention at scale="linear" needs the kernel between its two streams, which '
                "is known for raw inputs with the same features and is zero once both have weights "
                "of their own; put a Dense layer on each stream, or none"
            )
    shape = (*x.unit.shape, x.facts.tokens, c.facts.tokens)
    return jnp.zeros(shape, x.unit.dtype)
