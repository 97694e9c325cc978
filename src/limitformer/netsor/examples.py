"""Networks as programs: an MLP, multi-head attention, low-rank heads, gates, stacked layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .program import Program, Score, Vector


class Example(NamedTuple):
    """A program, its output vector of every token, and its scores by layer, head, query, key."""

    program: Program
    outputs: tuple[Vector, ...]
    scores: tuple[tuple[tuple[tuple[Score, ...], ...], ...], ...] = ()


def softmax(*scores):
    """Attention weights of one query."""
    return jax.nn.softmax(jnp.stack(scores))


def attend(
    p: Program,
    tokens: Sequence[Vector],
    *,
    heads: int = 1,
    qk_std: float = 1.0,
    ov_std: float = 1.0,
    head_width: float = 1.0,
    weights: Callable = softmax,
    gate: Callable | None = None,
) -> tuple[tuple[Vector, ...], tuple]:
    """One attention layer: y_a = H^{-1/2} sum_h W_O sum_c zeta(p_h,a)_c W_V x_c.

    Scores are p_h,ac = (W_Q x_a).(W_K x_c) / sqrt(head width).

    Args:
        head_width: rows of W_Q, W_K, W_V as a multiple of n; below 1 the heads have low rank.
        weights: maps the scores of one query to its weights.
        gate: function (g, o) of a fresh W_G x_a and a head's output o; None for no gate.

    Returns:
        The vectors y_a, and the scores as `scores[head][query][key]`.
    """
    outputs: list[list[Vector]] = [[] for _ in tokens]
    scores = []
    for _ in range(heads):
        Q, K = p.matrix(qk_std, rows=head_width), p.matrix(rows=head_width)
        V, O = p.matrix(ov_std, rows=head_width), p.matrix(columns=head_width)
        G = None if gate is None else p.matrix(rows=head_width)
        queries, keys, values = ([W @ x for x in tokens] for W in (Q, K, V))
        rows = tuple(tuple(p.score(q, k) for k in keys) for q in queries)
        for a, row in enumerate(rows):
            o: Vector = p.mix(weights, *values, scores=row)
            if G is not None and gate is not None:
                o = p.nonlin(gate, G @ tokens[a], o)
            outputs[a].append(O @ o)
        scores.append(rows)
    scale = (1 / math.sqrt(heads),) * heads
    return tuple(p.mix(scale, *parts) for parts in outputs), tuple(scores)


def mlp(C: Any, activation: Any, *, depth: int = 2, w_std: float = 1.0) -> Example:
    """A network W_L phi(... W_2 phi(W_1 x)) on Gaussian inputs with covariance C."""
    p = Program()
    h: Sequence[Vector] = p.vectors(C)
    for l in range(depth):
        W = p.matrix(w_std)
        h = [W @ (x if l == 0 else p.nonlin(activation, x)) for x in h]
    return Example(p, tuple(h))


def attention(C: Any, *, heads: int = 2, **options) -> Example:
    """Multi-head attention on Gaussian tokens with covariance C; options as in `attend`."""
    p = Program()
    outputs, scores = attend(p, p.vectors(C), heads=heads, **options)
    return Example(p, outputs, (scores,))


def low_rank_attention(C: Any, *, heads: int = 4, **options) -> Example:
    """Multi-head attention with heads of width n/H, as in practice."""
    return attention(C, heads=heads, head_width=1 / heads, **options)


def gated_attention(C: Any, *, heads: int = 2, **options) -> Example:
    """Attention whose head outputs are multiplied by a sigmoid gate of the query's token.

    The head's output is clipped at 100, which changes nothing visible and keeps the function
    bounded, as the limit theorem asks.
    """
    return attention(C, heads=heads, gate=sigmoid_gate, **options)


def sigmoid_gate(g, o):
    """sigmoid(g) o."""
    return jax.nn.sigmoid(g) * jnp.clip(o, -100.0, 100.0)


def stacked_attention(C: Any, *, layers: int = 2, heads: int = 2, **options) -> Example:
    """Attention layers one after another, each with its own matrices."""
    p = Program()
    h: Sequence[Vector] = p.vectors(C)
    scores = []
    for _ in range(layers):
        h, found = attend(p, h, heads=heads, **options)
        scores.append(found)
    return Example(p, tuple(h), tuple(scores))
