"""Scores that do not fluctuate: scale "linear", A(x) = zeta(s_QK K(x,x)) (theory 2.1)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .law import Averages, Kernels


def average(A, B, k: Kernels, ntk: bool, diag: bool) -> Averages:
    """mean_h A_h Kv B_h^T and the same with Tv; no gradient passes through the scores.

    Args:
        A, B: attention weights of the two sides, `(*n, heads, Sq, Sk)`.
        diag: give the token diagonal only, at half the work.
    """
    T = None if k.Tv is None or not ntk else _between(A, k.Tv, B, diag)
    return Averages(_between(A, k.Kv, B, diag), T)


def _between(A, K, B, diag: bool) -> Any:
    heads = A.shape[-3]
    total: Any = None
    for h in range(heads):
        left = jnp.matmul(A[..., h, :, :], K)
        right = B[..., h, :, :]
        if diag:
            term = jnp.sum(left * right, axis=-1)
        else:
            term = jnp.matmul(left, jnp.swapaxes(right, -1, -2))
        total = term if total is None else total + term
    return total / heads if heads > 1 else total
