"""Softmax of Gaussian scores at scale "sqrt": averages over draws (theory 2.2)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .law import Averages, Kernels
from .shells import score_normals
from .softmax import attention_draws, draw_scores, ntk_sum, value_sum


def prepare(Fq, Fk, qk_std, *, key, draws: int, seen, biases, phases):
    """Attention weights of every draw, `(*n, draws, Sq, Sk)`.

    Args:
        Fq, Fk: features of the queries' and keys' score kernels.
        seen: `(*n, Sq, Sk)` visible keys, or None.
        biases: `(heads, Sq, Sk)` score biases, shared out evenly among the draws, or None.
        phases: `(terms, Sq, Sk)` rotary phases, or None.
    """
    terms = None if phases is None else phases.shape[0]
    Z = score_normals(
        key=key, draws=draws, rows=Fq.shape[-1], cols=Fk.shape[-1], dtype=Fq.dtype, terms=terms
    )
    G = draw_scores(Fq, Fk, Z, qk_std, phases)
    if biases is not None:
        heads = biases.shape[0]
        if draws % heads:
            raise ValueError(
                f"{draws} draws a replicate cannot be shared out evenly among {heads} head slopes; "
                f"use a number of draws that is a multiple of {heads} times the replicates"
            )
        G = G + jnp.tile(jnp.asarray(biases, G.dtype), (draws // heads, 1, 1))
    return attention_draws(G, seen)


def average(P, R, k: Kernels, phases_x, phases_y, ntk: bool) -> Averages:
    """Means over draws of the sums over keys."""
    chunk = max(1, min(32, P.shape[-3]))
    if not ntk:
        return Averages(value_sum(P, R, k.Kv, chunk=chunk))

    def shape(K) -> Any:
        return None if K is None else jnp.broadcast_to(K, k.Kv.shape)

    sums = ntk_sum(P, R, k.Kv, k.Tv, shape(k.Kk), shape(k.Tk), phases_x, phases_y, chunk=chunk)
    return Averages(sums.K, sums.T, sums.S_K, sums.S_T)
