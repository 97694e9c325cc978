"""Which keys a query sees: padding, causal and arbitrary pair masks."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np


def pairs_of(queries, keys):
    """Pairs of valid tokens, or None if all are valid."""
    if queries is None and keys is None:
        return None
    if queries is None:
        return keys[..., None, :]
    if keys is None:
        return queries[..., :, None]
    return queries[..., :, None] & keys[..., None, :]


def seen_keys(causal: bool, mask, S: int, valid):
    """Keys that each query sees under a causal or pair mask, `(*n, S, S)`; None without either."""
    if not causal and mask is None:
        return None
    if mask is None:
        seen = jnp.ones((S, S), bool)
    elif callable(mask):
        if valid is None:
            seen = jnp.asarray(_mask_of_length(mask, S, S))
        else:
            table = np.stack([_mask_of_length(mask, n, S) for n in range(1, S + 1)])
            seen = jnp.asarray(table)[jnp.maximum(jnp.sum(valid, axis=-1), 1) - 1]
    else:
        array = np.asarray(mask, bool)
        if min(array.shape) < S:
            raise ValueError(
                f"the pair mask has shape {array.shape}, but the input has {S} tokens; give at "
                f"least ({S}, {S}), or a function of the length"
            )
        seen = jnp.asarray(array[:S, :S])
    if causal:
        seen = seen & jnp.asarray(np.tril(np.ones((S, S), bool)))
    pairs = pairs_of(valid, valid)
    return seen if pairs is None else seen & pairs


def _mask_of_length(fn, n: int, S: int) -> np.ndarray:
    given = np.asarray(fn(n))
    if given.shape != (n, n) or given.dtype != bool:
        raise ValueError(
            f"the mask function must give a bool array of shape ({n}, {n}) for length {n}, got "
            f"{given.dtype} {given.shape}"
        )
    check_all_see(given, f" of length {n}")
    return np.pad(given, (0, S - n))


def check_pair_mask(mask):
    """A pair mask as nested tuples (so that it is hashable), or a function of the length."""
    if mask is None or callable(mask):
        return mask
    array = np.asarray(mask)
    if array.dtype != bool or array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(
            "mask must be a square bool array (query, key), True where the query sees the key, or "
            f"a function of the length; got {array.dtype} {array.shape}"
        )
    check_all_see(array)
    return tuple(tuple(row) for row in array.tolist())


def check_all_see(mask: np.ndarray, of: str = "") -> None:
    """Raise if a query sees no key."""
    blind = np.flatnonzero(~mask.any(axis=1)).tolist()
    if blind:
        raise ValueError(f"the pair mask{of} leaves queries {blind} without any key to see")
