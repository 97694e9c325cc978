"""The forward pass, one sublayer at a time, with everything that an analysis freezes.

A generator: the maps of one sublayer exist while it is looked at, and memory does not grow with
depth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from .gates import gate
from .inputs import stream
from .norms import normalise, plus
from .spec import Attention, Mlp, Model, Relative, Sublayer


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """What happened in one sublayer, h' = after( skip h + branch( before(h) ) ).

    Attributes:
        sublayer: with its weights.
        index: among the sublayers.
        before: (n, d), h.
        inner: (n, d), what the branch reads.
        branch: (n, d), what it writes; zero without a branch.
        after: (n, d), h'.
        A: (H, n, n) attention maps, or None.
        gates: (n, m) multipliers that make the MLP linear, or None.
        scale_before, scale_after: (n, 1) the norms' 1 / sigma, or None.
    """

    sublayer: Sublayer
    index: int
    before: np.ndarray
    inner: np.ndarray
    branch: np.ndarray
    after: np.ndarray
    A: np.ndarray | None
    gates: np.ndarray | None
    scale_before: np.ndarray | None
    scale_after: np.ndarray | None

    @property
    def name(self) -> str:
        """Of the sublayer."""
        return self.sublayer.name

    def heads(self) -> np.ndarray:
        """(H, n, d): what each head writes, A_h (x W_V,h + b_V,h) W_O,h; b_O is not among it."""
        attention = self.sublayer.branch
        if not isinstance(attention, Attention):
            raise ValueError(f"{self.name} has no heads; ask a step whose A is not None")
        return np.matmul(self.A @ values(attention, self.inner), attention.W_O)


def steps(model: Model, x: Any) -> Iterator[Step]:
    """Run a model on one input, sublayer by sublayer.

    Args:
        model: a `Model`.
        x: text, token ids (n,), an image, or the stream itself (n, d); see `stream`.

    Yields:
        A `Step` for every sublayer.
    """
    h = stream(model, x)
    for index, sublayer in enumerate(model.sublayers):
        step = run_sublayer(sublayer, h, index)
        yield step
        h = step.after


def forward(model: Model, x: Any) -> np.ndarray:
    """The model's output (n, d): the stream after the last sublayer, final norm included."""
    h = stream(model, x)
    for index, sublayer in enumerate(model.sublayers):
        h = run_sublayer(sublayer, h, index).after
    return h


def run_sublayer(sublayer: Sublayer, h: np.ndarray, index: int = 0) -> Step:
    """One sublayer on the stream h (n, d)."""
    A = gates = scale_before = scale_after = None
    inner = h
    if sublayer.before is not None:
        inner, scale_before = normalise(sublayer.before, h)
    branch = np.zeros_like(h)
    if isinstance(sublayer.branch, Attention):
        A = attention_maps(sublayer.branch, inner)
        branch = attend(sublayer.branch, A, values(sublayer.branch, inner))
        branch = plus(branch, sublayer.branch.b_O)
    elif isinstance(sublayer.branch, Mlp):
        branch, gates = mlp(sublayer.branch, inner)
    after = sublayer.skip * h + branch
    if sublayer.after is not None:
        after, scale_after = normalise(sublayer.after, after)
    return Step(sublayer, index, h, inner, branch, after, A, gates, scale_before, scale_after)


def values(attention: Attention, x: np.ndarray, bias: bool = True) -> np.ndarray:
    """(H, n, dv): x W_V,h + b_V,h of every head."""
    V = np.matmul(x, attention.W_V)
    if bias and attention.b_V is not None:
        V = V + attention.b_V[:, None, :]
    return V if V.shape[0] == attention.heads else V[attention.group]


def attend(attention: Attention, A: np.ndarray, V: np.ndarray) -> np.ndarray:
    """sum_h A_h V_h W_O,h, without the bias."""
    mixed = np.moveaxis(np.matmul(A, V), 0, -2)
    flat = mixed.reshape(*mixed.shape[:-2], -1)
    return flat @ attention.W_O.reshape(-1, attention.W_O.shape[-1])


def mlp(branch: Mlp, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The MLP's output (n, d), and the gates with which it is linear (n, m)."""
    z = plus(x @ branch.W_in, branch.b_in)
    if branch.W_gate is None:
        gates = gate(branch.activation, z)
    else:
        y = plus(x @ branch.W_gate, branch.b_gate)
        gates = y * gate(branch.activation, y)
    return plus((gates * z) @ branch.W_out, branch.b_out), gates


def attention_maps(attention: Attention, x: np.ndarray) -> np.ndarray:
    """(H, n, n) attention maps softmax(scale q k^T)."""
    n = x.shape[0]
    q, k = np.matmul(x, attention.W_Q), np.matmul(x, attention.W_K)
    q = q if attention.b_Q is None else q + attention.b_Q[:, None, :]
    k = k if attention.b_K is None else k + attention.b_K[:, None, :]
    if attention.query_norm is not None:
        q, _ = normalise(attention.query_norm, q)
    if attention.key_norm is not None:
        k, _ = normalise(attention.key_norm, k)
    if attention.rotary is not None:
        q, k = (_turn(attention.rotary.frequencies, y) for y in (q, k))
    k = k if len(k) == len(q) else k[attention.group]
    kT = np.swapaxes(k, -1, -2)
    if attention.relative is None:
        scores = q @ kT
    else:
        r = attention.relative
        scores = (q + r.b_W[:, None, :]) @ kT + _relative_scores(r, q)
    scale = q.shape[-1] ** -0.5 if attention.scale is None else attention.scale
    return softmax(scores * q.dtype.type(scale), _visible(n, attention.causal, attention.window))


def softmax(scores: np.ndarray, visible: np.ndarray | None) -> np.ndarray:
    """Softmax over the last axis, and zero where not visible."""
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _visible(n: int, causal: bool, window: int | None) -> np.ndarray | None:
    """(n, n), True where token i sees token j; None for everything."""
    apart = np.arange(n)[:, None] - np.arange(n)[None, :]
    if not causal and window is None:
        return None
    seen = apart >= 0 if causal else np.ones((n, n), bool)
    return seen if window is None else seen & (np.abs(apart) < window)


def _turn(frequencies: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Rotate the channel pairs (j, j + J) of (H, n, dk) by position * frequency."""
    J = len(frequencies)
    angle = np.arange(y.shape[-2])[:, None] * frequencies.astype(np.float64)
    c, s = np.cos(angle).astype(y.dtype), np.sin(angle).astype(y.dtype)
    a, b, rest = y[..., :J], y[..., J : 2 * J], y[..., 2 * J :]
    return np.concatenate([a * c - b * s, b * c + a * s, rest], axis=-1)


def _relative_scores(r: Relative, q: np.ndarray) -> np.ndarray:
    """(H, n, n): (q_i + b_R) . (r(i - j) W_R)."""
    n, d = q.shape[-2], r.W_R.shape[1]
    distance = np.arange(n)[:, None] - np.arange(n)[None, :] + (n - 1)
    angle = np.arange(-(n - 1), n)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    code = np.concatenate([np.sin(angle), np.cos(angle)], axis=-1).astype(q.dtype)
    by_distance = (q + r.b_R[:, None, :]) @ np.swapaxes(np.matmul(code, r.W_R), -1, -2)
    return np.take_along_axis(by_distance, np.broadcast_to(distance, (len(q), n, n)), axis=-1)
