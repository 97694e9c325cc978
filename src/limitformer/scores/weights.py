"""From scores to attention weights: the row-wise map zeta."""

from __future__ import annotations

import jax.numpy as jnp

from ..duals import Dual
from .softmax import attention_draws


def key_count(seen, shape, dtype):
    """Keys that each query sees, `(*n, Sq, 1)`."""
    if seen is None:
        return jnp.asarray(shape[-1], dtype)
    return jnp.maximum(jnp.sum(seen, axis=-1, keepdims=True, dtype=dtype), 1)


def attend(zeta: Dual | None, scores, seen, per_key: bool):
    """A = zeta(G) on the keys that each query sees, 0 elsewhere; softmax if zeta is None.

    Args:
        scores: `(*n, heads, Sq, Sk)`.
        seen: `(*n, Sq, Sk)` or None.
        per_key: divide by the number of keys that the query sees.
    """
    if zeta is None:
        return attention_draws(scores, seen)
    A = zeta.fn(scores)
    if seen is not None:
        A = jnp.where(seen[..., None, :, :], A, jnp.zeros((), A.dtype))
    if per_key:
        count = key_count(seen, scores.shape, A.dtype)
        A = A / (count[..., None, :, :] if count.ndim else count)
    return A
