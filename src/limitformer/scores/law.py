"""What every law of attention scores gives: averages of products of attention weights."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array


class Kernels(NamedTuple):
    """Kernels of a block of pairs that attention reads: queries, keys (scores), values.

    T-kernels may be None for zero. In self-attention without positions all three are the same.
    """

    Kq: Array
    Tq: Array | None
    Kk: Array
    Tk: Array | None
    Kv: Array
    Tv: Array | None


class Averages(NamedTuple):
    """Averages over scores (theory 2.2).

    K = sum_cd Kv_cd E[A_ac A~_bd], T the same with Tv, and the score gradients
    S_K = S(Kk), S_T = S(Tk), S_ab(B) = E[sum_cdgh Kv_cd B_gh dA_ac/dG_ag dA~_bd/dG~_bh].
    None stands for zero.
    """

    K: Array
    T: Array | None = None
    S_K: Array | None = None
    S_T: Array | None = None
