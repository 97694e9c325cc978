"""Attention with infinitely many heads: f = H^{-1/2} sum_h zeta(G_h) V_h W_O,h (theory, section 2).

The laws of the scores are in `limitformer.scores`, which of them a layer has in
`attention_scores`, masks in `pair_mask`, the finite twin in `attention_twin`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..duals import Identity
from ..kernel.functional import Functional
from ..kernel.state import Cross, Form, Marginal, Need
from ..scores import joint_features
from ..scores.factor import all_features
from ..scores.law import Kernels
from .activation import Activation
from .attention_scores import (
    Scores,
    Softmax,
    attention_work,
    check_weights,
    outputs,
    zeta_of,
)
from .attention_twin import apply_heads, init_heads
from .base import Context, Leaf, choice, hyper
from .pair_mask import check_pair_mask, pairs_of, seen_keys
from .position import Alibi, Coordinates, Position, RelativeBias, Rotary, code, init_code

inf = math.inf
_WIDEST_FEATURES = 128  # wider inputs are cheaper through a factor of each pair's joint kernel


class AttentionRecord(eqx.Module):
    """What the cross pass needs of one input: its side of the score law, places and mask."""

    side: Any
    place: Any
    mask: Any


class Attention(Leaf):
    """Multi-head attention, f = H^{-1/2} sum_h zeta(G_h) V_h W_O,h.

    scale="sqrt", what real transformers do: Q and K independent, scores / sqrt(d). Scores stay
    Gaussian, Cov(G_ac(x), G_bd(y)) = s_QK^2 K_ab K_cd, and with infinitely many heads
        K'_ab = s_OV^2 sum_cd K_cd E[A_ac A~_bd] + b^2.
    scale="linear": scores / d with W_Q = W_K. Scores become A(x) = zeta(s_QK K(x,x)) and
        K' = s_OV^2 A(x) K A(y)^T + b^2,  T' = s_OV^2 A(x) (T + 2 K) A(y)^T + b^2.
    T' at scale "sqrt" has terms through queries and keys: see `outputs`.

    Args:
        scale: "sqrt" or "linear".
        weights: "softmax", or the name of an activation ("identity", "relu", "abs", ...), or an
            activation layer. Softmax at scale "sqrt" is averaged over score draws and carries a
            standard error; everything else is exact.
        heads: `lf.inf`, or a number for the finite-head law.
        qk_std, ov_std, b_std: s_QK = std_Q std_K, s_OV = std_O std_V, bias of the output.
        position: `Position`, `Rotary`, `Alibi` or `RelativeBias`.
        causal: a query sees no later key.
        mask: `(S, S)` bool array (query, key), True = seen, or a function of the length.
        tied: W_Q = W_K; default True at scale "linear", where untied scores vanish.
        per_key: divide by the number of keys that the query sees.

    References:
        Hron et al. 2020, arXiv 2006.10540, sections 3 and 4 and Table 1.
    """

    makes_channels: ClassVar[bool] = True

    scale: str = eqx.field(static=True)
    weights: Activation | Softmax
    heads: float = eqx.field(static=True)
    qk_std: float = eqx.field(converter=hyper)
    ov_std: float = eqx.field(converter=hyper)
    b_std: float = eqx.field(converter=hyper)
    position: Any
    causal: bool = eqx.field(static=True)
    mask: tuple | Callable | None = eqx.field(static=True)
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
        position=None,
        causal=False,
        mask=None,
        tied=None,
        per_key=False,
    ):
        self.scale = choice("scale", scale, ("sqrt", "linear"))
        self.weights = check_weights(weights)
        self.heads = check_heads(heads)
        self.qk_std, self.ov_std, self.b_std = qk_std, ov_std, b_std
        self.position = check_position(position)
        self.causal = causal
        self.mask = check_pair_mask(mask)
        self.tied = tied
        self.per_key = per_key
        if scale == "sqrt" and tied:
            raise ValueError(
                'tied queries and keys at scale="sqrt" have scores that grow like sqrt(width) and '
                'no limit; use scale="linear" with tied weights, or untie them'
            )

    @property
    def scores(self) -> Scores:
        tied = self.scale == "linear" if self.tied is None else self.tied
        return Scores(
            self.scale,
            zeta_of(self.weights),
            self.per_key,
            self.qk_std,
            tied,
            self.position,
            self.heads,
        )

    @property
    def random_scores(self) -> bool:
        return self.scores.law in ("sampled", "drawn")

    def needs(self, out: Need) -> Need:
        own = Form.FULL if out.marginal else Form.NONE
        law = self.scores.law
        if law in ("fixed", "sampled", "drawn"):
            own = Form.FULL
        elif not isinstance(self.scores.zeta, Identity):
            own = max(own, Form.DIAG)
        return Need(Form.FULL if out.cross else Form.NONE, own)

    def seen(self, state: Marginal):
        """`(*n, S, S)` keys that each query sees, or None if all see all."""
        S = state.facts.tokens
        return seen_keys(self.causal, self.mask, S, state.mask)

    @property
    def _places(self) -> bool:
        return isinstance(self.position, Position)

    def marginal(self, state: Marginal, ctx: Context):
        check_attention(self, state, ctx)
        scores, dtype = self.scores, state.unit.dtype
        place: Any = None
        if self._places:
            self.position.check(state.facts.grid, ctx.path)
            place = Coordinates.of(state.facts.grid, state.mask, state.unit.shape, dtype)
        seen = self.seen(state)
        padded = seen if seen is not None else pairs_of(state.mask, state.mask)
        K = state.K
        Ks = K
        if self._places and state.form == Form.FULL:
            Ks = self.position.scores_K(K, place, place)
        if scores.law == "fixed":
            side = scores.fixed_weights(Ks, padded)
        elif scores.law == "elementwise":
            if isinstance(scores.zeta, Identity) and state.K is None:
                variance = jnp.zeros((*state.unit.shape, state.facts.tokens), dtype)
            else:
                variance = state.variance
                if self._places:
                    R = jnp.diagonal(
                        place.covariance(self.position.decay, place), axis1=-2, axis2=-1
                    )
                    variance = self.position.content * variance + self.position.weight * R
            structured = seen is not None or self.per_key or scores.biases(1, 1) is not None
            if not structured and not isinstance(scores.zeta, Identity):
                structured = state.mask is not None
            shown = padded if structured or isinstance(self.position, Rotary) else None
            side = scores.elementwise_side(variance, variance, shown)
        else:
            features = ctx.features
            if features is None:
                features = state.F
                if self._places:
                    features = self.position.features(features, place)
                features = own_features(features, state, ctx)
            side = scores.random_side(features, features, padded, ctx)
        record = AttentionRecord(side, place, state.mask)
        own = None
        if ctx.need.marginal:
            own = self.cross(Cross(K), record, record, ctx_without_ntk(ctx)).K
        facts = state.facts.fresh(ctx.path)
        diag = own is not None and own.ndim == state.unit.ndim + 1
        new = Marginal(facts, state.unit, own, diag, mask=state.mask, index=state.index)
        return new, record

    def kernels(self, k: Cross, rx: AttentionRecord, ry: AttentionRecord, ntk: bool) -> Kernels:
        """What queries and keys (scores) and values read."""
        T = k.T if ntk else None
        if not self._places:
            return Kernels(k.K, T, k.K, T, k.K, T)
        Ks = self.position.scores_K(k.K, rx.place, ry.place)
        Ts = self.position.scores_T(T, rx.place, ry.place) if ntk else None
        Kv, Tv = (Ks, Ts) if self.position.values else (k.K, T)
        return Kernels(Ks, Ts, Ks, Ts, Kv, Tv)

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        kernels = self.kernels(k, rx, ry, ctx.ntk)
        diag = self.scale == "linear" and ctx.need.cross == Form.DIAG
        averages = self.scores.average(rx.side, ry.side, kernels, ctx.ntk, diag)
        laid = Cross(averages.K, None, diag)
        b2 = laid.masked(self.b_std**2 * jnp.ones((), k.K.dtype), rx.mask, ry.mask)
        return outputs(averages, kernels, self.ov_std, self.qk_std, b2, ctx.ntk, diag)

    def pair_features(self, x: Marginal, y: Marginal, k: Cross):
        """Features of the score kernel of each pair, from its joint kernel."""
        Kxx, Kyy, Kxy = x.K, y.K, k.K
        if self._places:
            px, py = (
                Coordinates.of(s.facts.grid, s.mask, s.unit.shape, s.unit.dtype) for s in (x, y)
            )
            Kxx = self.position.scores_K(Kxx, px, px)
            Kyy = self.position.scores_K(Kyy, py, py)
            Kxy = self.position.scores_K(Kxy, px, py)
        return joint_features(Kxx, Kyy, Kxy)

    def joint_features(self, x: Marginal, k: Cross, ctx: Context):
        """Features of the score kernel of all inputs together, `(n, S, at most n S)`."""
        K, F = k.K, known_features(x, ctx)
        place: Any = None
        if self._places:
            place = Coordinates.of(x.facts.grid, x.mask, x.unit.shape, x.unit.dtype)
        if F is not None:
            return self.position.features(F, place) if self._places else F
        if self._places:
            rows, cols = (
                jax.tree.map(cut, place) for cut in (lambda a: a[:, None], lambda a: a[None])
            )
            K = self.position.scores_K(K, rows, cols)
        return all_features(K)

    @property
    def pull_rank(self) -> int:
        if self.scale != "linear" or (self._places and self.position.values):
            return 0
        return len(self.position.slopes) if isinstance(self.position, Alibi) else 1

    def pull(self, functional: Functional, record) -> Functional:
        A = record.side
        functional = functional.plus(self.b_std * _valid_sum(functional.u, record.mask))
        heads = A.shape[-3]
        weight = self.ov_std / math.sqrt(heads)
        parts = [
            functional.linear(1.0).reads(weight * jnp.matmul(functional.u, A[..., h, :, :]), 2.0)
            for h in range(heads)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total.joined(part)
        return total.joined(functional.constant())

    def init(self, key, acts, ctx):
        C = ctx.width if self._places and acts.raw else acts.h.shape[-1]
        keys = jax.random.split(key, 2)
        params = init_heads(self, keys[0], C, C, ctx, acts.h.dtype)
        if self._places:
            params["code"] = init_code(self.position, keys[1], acts, C)
        return params

    def apply(self, params, acts, ctx):
        acts = acts.widened(ctx.width) if self._places else acts
        h = hs = acts.h
        if self._places:
            E = code(self.position, params["code"], acts)
            hs = jnp.sqrt(self.position.content) * h + jnp.sqrt(self.position.weight) * E
            h = hs if self.position.values else h
        S = h.shape[-2]
        seen = seen_keys(self.causal, self.mask, S, acts.mask)
        seen = seen if seen is not None else pairs_of(acts.mask, acts.mask)
        f = apply_heads(self, params, hs, hs, h, seen)
        return acts.fresh(acts.on_valid(f))

    def work(self, S1, S2, out, draws):
        return attention_work(self.scores, S1, S2, out, draws)


def known_features(x: Marginal, ctx: Context):
    """Features of all inputs where they are known and fewer than their tokens, else None."""
    if x.F is None:
        return None
    n, S, width = x.F.shape
    return x.F if width < (ctx.first or n) * S else None


def own_features(F, state: Marginal, ctx: Context):
    """Features to draw scores from; without them, a note that the layer needs pairs."""
    if F is not None and state.F.shape[-1] <= _WIDEST_FEATURES:
        return F
    if ctx.notes is None:
        raise RuntimeError(f"{ctx.path}: scores can only be drawn pair by pair")
    ctx.notes.add("pairs")
    return jnp.zeros((*state.unit.shape, state.facts.tokens, 1), state.unit.dtype)


def ctx_without_ntk(ctx: Context) -> Context:
    """The context in which a marginal computes its own kernel: K only, in the form needed."""
    return dataclasses.replace(ctx, ntk=False, need=Need(ctx.need.marginal, ctx.need.marginal))


def _valid_sum(u, mask):
    return jnp.sum(u if mask is None else jnp.where(mask[..., None, :], u, 0.0), axis=-1)


def check_heads(heads):
    """`inf` or a whole number."""
    if heads == inf:
        return inf
    number = isinstance(heads, int | float | np.integer | np.floating)
    if not number or isinstance(heads, bool) or int(heads) != heads or heads < 1:
        raise ValueError(f"heads must be lf.inf or a whole number of at least 1, got {heads!r}")
    return int(heads)


def check_position(position):
    """One of the position schemes, or None."""
    if position is None or isinstance(position, (Position, Rotary, Alibi, RelativeBias)):
        return position
    raise TypeError(
        "position must be one of lf.Position, lf.Rotary, lf.Alibi, lf.RelativeBias, got "
        f"{position!r}"
    )


def check_attention(layer, state: Marginal, ctx: Context) -> None:
    """Raise where attention has no tokens, or no deterministic kernel."""
    name = ctx.path.lstrip("/")
    if state.facts.readout:
        raise ValueError(f"{name}: there are no tokens left to attend to (after a pool or flatten)")
    if layer.heads != inf and layer.scale == "sqrt" and not ctx.joint:
        raise ValueError(
            f"{name} has heads={layer.heads} at scale='sqrt': its kernel is random and the network "
            "is not a Gaussian process; use net.law(x, key=..., draws=...) for the finite-head law "
            "or net.with_heads(lf.inf).kernel(...) for the limit"
        )
