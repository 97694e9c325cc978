"""Finite networks block by block, many at once: the forward pass of `net.twin` in NumPy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from scipy import special

from .kernels import code_kernel, factor, score_bias, weights
from .network import inputs, twin_heads
from .settings import Settings

Normals = Callable[[int], np.ndarray]
"""So many standard normals."""

_EPS = 1e-12  # of lf.LayerNorm
_FUNCTIONS: dict[str, Callable] = {
    "relu": lambda u: np.maximum(u, 0),
    "gelu": lambda u: u * special.ndtr(u),
    "erf": special.erf,
    "sin": np.sin,
    "abs": np.abs,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """Normals of one block of many networks; n channels, H heads of n channels each.

    Attributes:
        qkv: `(networks, maps, H, n, n)`, maps q, k, v, or q, v where keys are queries.
        o: `(networks, H, n, n)`.
        mlp: `(networks, 2, n, n)`.
    """

    qkv: np.ndarray
    o: np.ndarray
    mlp: np.ndarray


def networks_of(s: Settings, work: int) -> int:
    """How many networks fit into this much work."""
    n, H, S = int(s.width), twin_heads(s), s.tokens
    each = (4 * H + 2) * n * n + S * H * (3 * n + 2 * S)
    return int(min(256, max(4, work // each)))


def draw_weights(s: Settings, networks: int, normals: Normals) -> Weights:
    """Fresh weights of one block."""
    n, H = int(s.width), twin_heads(s)
    maps = 3 if s.random else 2
    shapes = ((networks, maps, H, n, n), (networks, H, n, n), (networks, 2, n, n))
    flat = normals(sum(math.prod(shape) for shape in shapes))
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(flat, ends[:-1])
    return Weights(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))


def first_channels(s: Settings, networks: int, normals: Normals) -> np.ndarray:
    """Embedding and position code, `(networks, tokens, n)`."""
    n, S = int(s.width), s.tokens
    flat = normals(2 * networks * S * n).reshape(2, networks, S, n)
    h = embed(s, flat[0])
    return h + factor(code_kernel(s)).astype(h.dtype) @ flat[1] if _coded(s) else h


def embed(s: Settings, W: np.ndarray) -> np.ndarray:
    """The first layer, W `(networks, features, n)`."""
    return (inputs(s)[0] / math.sqrt(s.tokens)).astype(W.dtype) @ W


def _coded(s: Settings) -> bool:
    return s.positions in ("onehot", "smooth")


def block(s: Settings, h: np.ndarray, W: Weights) -> np.ndarray:
    """Channels `(networks, tokens, n)` after one block."""
    h = _sum(s, h, lambda h: attention(s, h, W))
    if s.activation != "none":
        h = _sum(s, h, lambda h: mlp(s, h, W))
    return h


def _sum(s: Settings, h: np.ndarray, branch) -> np.ndarray:
    h = h.dtype.type(s.skip) * h + branch(normed(h) if s.norm == "pre" else h)
    return normed(h) if s.norm == "post" else h


def normed(h: np.ndarray) -> np.ndarray:
    """LayerNorm over channels."""
    h = h - h.mean(axis=-1, keepdims=True)
    return h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + h.dtype.type(_EPS))


def attention(s: Settings, h: np.ndarray, W: Weights) -> np.ndarray:
    """f = (H n)^{-1/2} sum_h softmax(G_h) V_h W_O,h."""
    n, H = W.o.shape[-1], W.o.shape[1]
    qkv = h[:, None, None] @ W.qkv / h.dtype.type(math.sqrt(n))
    q, k, v = qkv[:, 0], qkv[:, -2], qkv[:, -1]  # (networks, H, S, n)
    G = q @ np.swapaxes(k, -1, -2)
    G *= s.qk_std / (math.sqrt(n) if s.random else n)
    bias = score_bias(s)
    if bias.any():
        G += np.tile(bias, (H // len(bias), 1, 1)).astype(G.dtype)
    return np.sum(weights(G) @ v @ W.o, axis=1) / h.dtype.type(math.sqrt(H * n))


def mlp(s: Settings, h: np.ndarray, W: Weights) -> np.ndarray:
    """Two layers with the activation between them."""
    scale = h.dtype.type(s.w_std / math.sqrt(h.shape[-1]))
    inside = _FUNCTIONS[s.activation](scale * (h @ W.mlp[:, 0]))
    return scale * (inside @ W.mlp[:, 1])


def outputs(h: np.ndarray, w: np.ndarray) -> np.ndarray:
    """One output per token, `(networks, tokens)`, with w `(networks, n)`."""
    return np.squeeze(h @ w[:, :, None], -1) / h.dtype.type(math.sqrt(h.shape[-1]))
