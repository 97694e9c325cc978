"""The finite twin of attention: heads of finite width, in the NTK parametrisation."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from ..scores.weights import attend
from .position import Rotary


def init_heads(layer, key, C_query: int, C_key: int, ctx, dtype):
    """Normal weights of all heads: q, k, v `(H, C, d)`, o `(H, d, channels)`, bias."""
    H = ctx.heads if layer.heads == math.inf else layer.heads
    d = ctx.head_width
    kq, kk, kv, ko, kb = jax.random.split(key, 5)
    params = {
        "q": jax.random.normal(kq, (H, C_query, d), dtype),
        "v": jax.random.normal(kv, (H, C_key, d), dtype),
        "o": jax.random.normal(ko, (H, d, ctx.channels), dtype),
        "b": jax.random.normal(kb, (ctx.channels,), dtype),
    }
    if not layer.scores.tied:
        params["k"] = jax.random.normal(kk, (H, C_key, d), dtype)
    return params


def apply_heads(layer, params, queries, keys, values, seen):
    """Finite multi-head attention in the NTK parametrisation; activations are `(n, S, C)`."""
    scores = layer.scores
    q = jnp.einsum("nac,hcd->nhad", queries, params["q"]) / math.sqrt(queries.shape[-1])
    tied = scores.tied
    k = jnp.einsum("nac,hcd->nhad", keys, params["q" if tied else "k"]) / math.sqrt(keys.shape[-1])
    v = jnp.einsum("nac,hcd->nhad", values, params["v"]) / math.sqrt(values.shape[-1])
    H, d = v.shape[1], v.shape[-1]
    if isinstance(layer.position, Rotary):
        q, k = _rotate(layer.position, q), _rotate(layer.position, k)
    G = layer.qk_std * jnp.einsum("nhad,nhcd->nhac", q, k)
    G = G / (math.sqrt(d) if layer.scale == "sqrt" else d)
    biases = scores.biases(G.shape[-2], G.shape[-1])
    if biases is not None:
        if H % len(biases):
            raise ValueError(
                f"{len(biases)} head slopes do not fit {H} heads; use a multiple of {len(biases)}"
            )
        G = G + jnp.tile(jnp.asarray(biases, G.dtype), (H // len(biases), 1, 1))
    A = attend(scores.zeta, G, seen, layer.per_key)
    f = jnp.einsum("nhac,nhcd,hdo->nao", A, v, params["o"])
    return layer.ov_std * f / math.sqrt(H * d) + layer.b_std * params["b"]


def _rotate(rotary: Rotary, q):
    """Rotate the channel pairs (j, j + d/2); frequencies repeat if the head is wider."""
    d = q.shape[-1]
    half = d // 2
    count = len(rotary.frequencies)
    if d % 2 or half % count:
        raise ValueError(
            f"rotary positions with {rotary.dims} dims need a head width that is a multiple of "
            f"{rotary.dims}, got {d}"
        )
    w = jnp.asarray(np.tile(rotary.frequencies, half // count), q.dtype)
    angle = jnp.arange(q.shape[-2], dtype=q.dtype)[:, None] * w
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    a, b = q[..., :half], q[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
