"""Scores of finitely many heads at scale "sqrt": drawn, not averaged over (theory, section 3).

Given the scores of H independent heads, every sum over keys is a mean over heads.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..duals import Dual
from .law import Averages, Kernels
from .softmax import draw_scores, ntk_sum, value_sum
from .weights import attend, key_count


class Heads(eqx.Module):
    """One input's attention in every head.

    Attributes:
        A: `(*n, heads, Sq, Sk)` attention weights.
        slope: `(*n, heads, Sq, Sk)` dA_ac / dG_ac of an elementwise map; None for softmax, whose
            derivative follows from A.
    """

    A: jax.Array
    slope: Any


def prepare(
    zeta: Dual | None, Fq, Fk, qk_std, *, normals, heads: int, seen, biases, phases, per_key: bool
) -> Heads:
    """Attention weights of `heads` independent heads.

    Args:
        zeta: the elementwise map, or None for softmax.
        Fq, Fk: features of the queries' and keys' score kernels.
        normals: standard normals of a shape and type.
        seen, biases, phases: as in `sampled.prepare`; head h has bias h modulo their number.
    """
    shape = (Fq.shape[-1], Fk.shape[-1])
    terms = () if phases is None else (phases.shape[0],)
    Z = normals((heads, *terms, *shape), Fq.dtype)
    G = draw_scores(Fq, Fk, Z, qk_std, phases)
    if biases is not None:
        if heads % len(biases):
            raise ValueError(
                f"{len(biases)} head slopes do not fit {heads} heads; use a multiple of "
                f"{len(biases)} heads"
            )
        G = G + jnp.tile(jnp.asarray(biases, G.dtype), (heads // len(biases), 1, 1))
    A = attend(zeta, G, seen, per_key)
    if zeta is None:
        return Heads(A, None)
    slope = jax.jvp(zeta.fn, (G,), (jnp.ones_like(G),))[1]
    if seen is not None:
        slope = jnp.where(seen[..., None, :, :], slope, jnp.zeros((), G.dtype))
    if per_key:
        count = key_count(seen, G.shape, G.dtype)
        slope = slope / (count[..., None, :, :] if count.ndim else count)
    return Heads(A, slope)


def average(x: Heads, y: Heads, k: Kernels, phases_x, phases_y, ntk: bool) -> Averages:
    """Means over heads of the sums over keys."""
    chunk = max(1, min(32, x.A.shape[-3]))
    if not ntk:
        return Averages(value_sum(x.A, y.A, k.Kv, chunk=chunk))
    if x.slope is None:

        def same(K) -> Any:
            return None if K is None else jnp.broadcast_to(K, k.Kv.shape)

        sums = ntk_sum(
            x.A, y.A, k.Kv, k.Tv, same(k.Kk), same(k.Tk), phases_x, phases_y, chunk=chunk
        )
        return Averages(sums.K, sums.T, sums.S_K, sums.S_T)

    def through(B) -> Any:
        """S_ab(B) = mean_h sum_cd Kv_cd B_cd zeta'(G_ac) zeta'(G~_bd), with the rotary factor."""
        if B is None:
            return None
        pairs = [(None, None)] if phases_x is None else zip(phases_x, phases_y, strict=True)
        total: Any = 0.0
        for px, py in pairs:
            left = x.slope if px is None else x.slope * px
            right = y.slope if py is None else y.slope * py
            total = total + value_sum(left, right, k.Kv * B, chunk=chunk)
        return total

    T = None if k.Tv is None else value_sum(x.A, y.A, k.Tv, chunk=chunk)
    return Averages(value_sum(x.A, y.A, k.Kv, chunk=chunk), T, through(k.Kk), through(k.Tk))
