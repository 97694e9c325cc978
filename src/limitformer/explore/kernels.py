"""Token kernels block by block, many draws of the scores at once.

The page must answer a move of any slider in half a second, and compiling `net.law` for a new shape
takes longer than that. So this is the recursion of theory 2.2 and 3 for the explorer's networks in
NumPy; activations are the library's dual functions, compiled once for blocks of one length. The
tests hold it against `net.kernel`, `net.law` and `lf.depth_profile`, draw by draw.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np

from ..layers.position import Alibi
from .network import ACTIVATIONS, SMOOTHNESS, TWIN_HEADS, input_kernel, twin_heads
from .settings import Settings

_BLOCK = 16384  # entries of a kernel that pass through an activation at a time
_PIVOT = 1e-12  # of a token's variance: keeps the factor of a collapsed kernel real
_EPS = 1e-12  # of lf.LayerNorm


def first_kernel(s: Settings) -> np.ndarray:
    """K after the embedding and the position code, `(tokens, tokens)`."""
    return input_kernel(s) + code_kernel(s)


def code_kernel(s: Settings) -> np.ndarray:
    """R of the position code that is added to the input, or zero."""
    place = (np.arange(s.tokens) + 1) / s.tokens
    if s.positions == "onehot":
        return np.eye(s.tokens)
    if s.positions == "smooth":
        return np.exp(-SMOOTHNESS * (place[:, None] - place) ** 2)
    return np.zeros((s.tokens, s.tokens))


def block(s: Settings, K: np.ndarray, Z: np.ndarray | None) -> np.ndarray:
    """K after one block.

        K -> skip^2 K + attention(K), then the same with the MLP

    Args:
        s: the settings.
        K: `(draws, tokens, tokens)`.
        Z: standard normals `(draws, heads, tokens, tokens)` of the scores; None at scale "linear".
            Infinitely many heads are as many as there are draws to average over.
    """
    K = _sum(s, K, lambda K: attention(s, K, Z))
    if s.activation != "none":
        K = _sum(s, K, lambda K: s.w_std**2 * activation(s.activation, s.w_std**2 * K))
    return K


def _sum(s: Settings, K: np.ndarray, branch) -> np.ndarray:
    """One residual sum with its norm."""
    K = s.skip**2 * K + branch(normed(K) if s.norm == "pre" else K)
    return normed(K) if s.norm == "post" else K


def normed(K: np.ndarray) -> np.ndarray:
    """LayerNorm of channels of mean zero: K_ab / sqrt(K_aa K_bb)."""
    inverse = 1 / np.sqrt(np.diagonal(K, axis1=-2, axis2=-1) + _EPS)
    return K * inverse[..., :, None] * inverse[..., None, :]


def attention(s: Settings, K: np.ndarray, Z: np.ndarray | None) -> np.ndarray:
    """K' = 1/H sum_h A_h K A_h^T, A_h = softmax(G_h), G_h = s_QK F Z_h F^T with F F^T = K.

    At scale "linear" G = s_QK K.
    """
    bias = score_bias(s)  # (heads, S, S)
    if Z is None:
        A = weights(s.qk_std * K[:, None] + bias)  # (D, heads, S, S)
        return np.mean(A @ K[:, None] @ np.swapaxes(A, -1, -2), axis=1)
    # product by product of at most 64 x 64 x 64, which BLAS leaves to the thread that asks
    F = factor(K)[:, None]
    G = F @ Z @ np.swapaxes(F, -1, -2)
    G *= s.qk_std
    if bias.any():
        G += np.tile(bias, (Z.shape[1] // len(bias), 1, 1))
    AF = weights(G) @ F
    return np.mean(AF @ np.swapaxes(AF, -1, -2), axis=1)


def score_bias(s: Settings) -> np.ndarray:
    """`(heads, tokens, tokens)` what is added to the scores: slopes, and -inf for hidden keys."""
    S = s.tokens
    bias = np.zeros((1, S, S))
    if s.positions == "alibi":
        bias = Alibi(twin_heads(s)).bias(S, S)
    if s.causal == "yes":
        bias = bias + np.where(np.tri(S, dtype=bool), 0.0, -np.inf)
    return bias


def weights(G: np.ndarray) -> np.ndarray:
    """softmax over the last axis; G is overwritten."""
    G -= G.max(axis=-1, keepdims=True)
    np.exp(G, out=G)
    G /= G.sum(axis=-1, keepdims=True)
    return G


def factor(K: np.ndarray) -> np.ndarray:
    """F with F F^T = K to 1e-12, also where tokens have collapsed."""
    small = _PIVOT * np.diagonal(K, axis1=-2, axis2=-1) + 1e-300
    return np.linalg.cholesky(K + small[..., None] * np.eye(K.shape[-1]))


def activation(name: str, K: np.ndarray) -> np.ndarray:
    """Phi(K_aa, K_bb, K_ab), the library's dual activation."""
    v = np.diagonal(K, axis1=-2, axis2=-1)
    flat = [np.ravel(np.broadcast_to(u, K.shape)) for u in (v[..., :, None], v[..., None, :], K)]
    count = -(-K.size // _BLOCK)
    padded = [np.pad(u, (0, count * _BLOCK - K.size)).reshape(count, _BLOCK) for u in flat]
    with jax.enable_x64(True):
        found = [np.asarray(_dual(name, *(u[i] for u in padded))) for i in range(count)]
    return np.concatenate(found)[: K.size].reshape(K.shape)


@functools.partial(jax.jit, static_argnames="name")
def _dual(name: str, v1, v2, c):
    phi: Any = ACTIVATIONS[name]().dual
    equal = (c == v1) & (v1 == v2)
    value, _ = phi.mix(c, phi.prepare(v1), phi.prepare(v2), derivative=False)
    return jax.numpy.where(equal, phi.second(v1), value)


def draws_of(s: Settings, work: int) -> tuple[int, int]:
    """How many draws of the whole network, and how many heads each, fit into this much work.

    Infinitely many heads are averaged over in 8 replicates, 4 where there is little room.
    """
    if not s.random:
        return 1, 1
    room = max(1, work // s.tokens**2)
    if s.infinite:
        replicates = 8 if room >= 8 * 2 * TWIN_HEADS else 4
        heads = min(256, room // replicates // TWIN_HEADS * TWIN_HEADS)
        return replicates, max(2 * TWIN_HEADS, heads)
    heads = int(s.heads)
    return int(min(512, max(4, room // (heads + 2)))), heads


def scores_shape(s: Settings, draws: int, heads: int) -> tuple[int, ...] | None:
    """Shape of the normals of one block, None where scores are fixed."""
    return (draws, heads, s.tokens, s.tokens) if s.random else None


def size(shape: tuple[int, ...] | None) -> int:
    """Numbers in an array of this shape."""
    return 0 if shape is None else math.prod(shape)
