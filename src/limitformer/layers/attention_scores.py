"""The scores of an attention layer: which law they have, and what follows for K' and T'.

The laws themselves are in `limitformer.scores`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..duals import DUALS, Dual, Identity, with_mean
from ..kernel.state import Cross, Form, Need, add, scaled
from ..scores import drawn, elementwise, fixed, rotary_phases, sampled
from ..scores.law import Averages, Kernels
from ..scores.weights import attend, key_count
from .activation import Activation
from .base import Context, Work, choice
from .position import Alibi, RelativeBias, Rotary

_NAMED = tuple(sorted(set(DUALS) - {"generic", "polynomial"}))  # these two need arguments


class Softmax(eqx.Module):
    """Rows of attention weights exp(G_ac) / sum_c exp(G_ac)."""


class Scores(eqx.Module):
    """How attention turns kernels into weights; shared by self- and cross-attention.

    Attributes: see `Attention`.
    """

    scale: str = eqx.field(static=True)
    zeta: Any  # the elementwise map, or None for softmax
    per_key: bool = eqx.field(static=True)
    qk_std: Any
    tied: bool = eqx.field(static=True)
    position: Any
    heads: float = eqx.field(static=True, default=math.inf)

    @property
    def law(self) -> str:
        """ "fixed", "drawn" (finitely many heads), "elementwise" or "sampled"."""
        if self.scale == "linear":
            return "fixed"
        if self.heads != math.inf:
            return "drawn"
        return "sampled" if self.zeta is None else "elementwise"

    def biases(self, queries: int, keys: int):
        if isinstance(self.position, (Alibi, RelativeBias)):
            return self.position.bias(queries, keys)
        return None

    def phases(self, queries: int, keys: int, dtype):
        """Rotary phases `(terms, queries, keys)`, or None."""
        if not isinstance(self.position, Rotary):
            return None
        frequencies = jnp.asarray(self.position.frequencies, dtype)
        return rotary_phases(
            frequencies, jnp.arange(queries, dtype=dtype), jnp.arange(keys, dtype=dtype)
        )

    def fixed_weights(self, K, seen):
        """A = zeta(s_QK K), `(*n, heads, Sq, Sk)`, with K the kernel between queries and keys."""
        scores = self.qk_std * K if self.tied else jnp.zeros_like(K)
        if isinstance(self.position, Rotary):
            Sq, Sk = K.shape[-2:]
            difference = np.arange(Sq)[:, None] - np.arange(Sk)[None, :]
            angles = self.position.frequencies[:, None, None] * difference
            scores = scores * jnp.asarray(np.cos(angles).mean(0), K.dtype)
        scores = scores[..., None, :, :]
        biases = self.biases(*K.shape[-2:])
        if biases is not None:
            scores = scores + jnp.asarray(biases, K.dtype)
        return attend(self.zeta, scores, seen, self.per_key)

    def elementwise_side(self, Kq_aa, Kk_cc, seen):
        v = self.qk_std**2 * Kq_aa[..., :, None] * Kk_cc[..., None, :]
        seen = None if seen is None else jnp.broadcast_to(seen, v.shape)
        biases = self.biases(*v.shape[-2:])
        zeta = self.zeta if biases is None else with_mean(self.zeta)
        share = 1 / key_count(seen, v.shape, v.dtype) if self.per_key else None
        return elementwise.prepare(zeta, v, biases, seen, share)

    def random_side(self, Fq, Fk, seen, ctx: Context):
        """The side of one input from draws of its scores: of all heads, or to average over."""
        Sq, Sk = Fq.shape[-2], Fk.shape[-2]
        biases, phases = self.biases(Sq, Sk), self.phases(Sq, Sk, Fq.dtype)
        given = {"seen": seen, "biases": biases, "phases": phases}
        if self.law == "sampled":
            return sampled.prepare(Fq, Fk, self.qk_std, key=ctx.key, draws=ctx.draws, **given)
        normals: Any = ctx.normals or functools.partial(jax.random.normal, ctx.key)  # pyright: ignore
        given |= {"heads": int(self.heads), "per_key": self.per_key}
        return drawn.prepare(self.zeta, Fq, Fk, self.qk_std, normals=normals, **given)

    def average(self, rx, ry, k: Kernels, ntk: bool, diag: bool) -> Averages:
        """Averages over scores of the products of weights, from the two sides."""
        if self.law == "fixed":
            return fixed.average(rx, ry, k, ntk, diag)
        dtype = k.Kq.dtype
        phases_x = self.phases(k.Kq.shape[-2], k.Kk.shape[-2], dtype)
        phases_y = self.phases(k.Kq.shape[-1], k.Kk.shape[-1], dtype)
        if self.law == "drawn":
            return drawn.average(rx, ry, k, phases_x, phases_y, ntk)
        if self.law == "sampled":
            return sampled.average(rx, ry, k, phases_x, phases_y, ntk)
        has_bias = isinstance(self.position, (Alibi, RelativeBias))
        zeta = with_mean(self.zeta) if has_bias else self.zeta
        return elementwise.average(zeta, rx, ry, k, self.qk_std, phases_x, phases_y, ntk)


def outputs(averages: Averages, k: Kernels, ov_std, qk_std, b2, ntk: bool, diag: bool) -> Cross:
    """K' and T' from the averages over scores.

    K' = s_OV^2 sum Kv E[A A~] + b^2
    T' = b^2 + 2 (K' - b^2) + s_OV^2 sum Tv E[A A~] + s_OV^2 s_QK^2 [(2 Kq + Tq) S(Kk) + Kq S(Tk)]
    """
    s2 = ov_std**2
    linear = s2 * averages.K
    K = linear + b2
    if not ntk:
        return Cross(K, None, diag)
    T = 2 * linear + b2
    T = add(T, scaled(s2, averages.T))
    if averages.S_K is not None:
        T = T + s2 * qk_std**2 * add(2 * k.Kq, k.Tq) * averages.S_K
    if averages.S_T is not None:
        T = T + s2 * qk_std**2 * k.Kq * averages.S_T
    return Cross(K, T, diag)


def zeta_of(weights) -> Dual | None:
    """The elementwise map, or None for softmax."""
    return weights.dual if isinstance(weights, Activation) else None


def check_weights(weights):
    """Attention weights by name, or as an activation layer."""
    if isinstance(weights, (Activation, Softmax)):
        return weights
    if isinstance(weights, str):
        choice("weights", weights, ("softmax", *_NAMED))
        return Softmax() if weights == "softmax" else Activation(DUALS[weights]())  # pyright: ignore[reportCallIssue]
    raise TypeError(
        f'weights must be "softmax", the name of an activation or an activation layer, got '
        f"{weights!r}; wrap a function as lf.Activation(fn)"
    )


def attention_work(scores: Scores, S1: int, S2: int, out: Need, draws: int) -> Work:
    """Cost per pair, with T (theory 2.4)."""
    if scores.law == "fixed":
        products = {Form.FULL: 2 * S1 * S2 * (S1 + S2), Form.DIAG: 2 * S1 * S1 * S2, Form.NONE: 0}
        return Work(flops=2 * products[out.cross], moved=6 * S1 * S2)
    if isinstance(scores.zeta, Identity):
        return Work(elements=6 * S1 * S2, moved=10 * S1 * S2)
    if scores.law == "elementwise":
        return Work(elements=4 * (S1 * S2) ** 2, moved=4 * S1 * S2, peak=8 * S1 * S2 * S2)
    joint = 2 * max(S1, S2)
    drawing = 2 * joint * (joint * (S1 + S2) + S1 * S1 + S2 * S2)
    sums = 20 * S1 * S2 * (S1 + S2)
    weights = draws * (S1 * S1 + S2 * S2)
    return Work(draws * (drawing + sums), weights, 4 * weights, 2 * weights)
