"""The product of two independent streams, channel by channel: gated networks."""

from __future__ import annotations

from typing import ClassVar

from ..kernel.passes import check_independent
from ..kernel.state import Cross, Marginal, Need, scaled
from .base import Context, Leaf, Work, kernel_entries


class Product(Leaf):
    """f = g h of two streams, which must not share weights: K' = K_g K_h, m' = m_g m_h.

    T' = T_g K_h + K_g T_h. Channels of a product are not Gaussian; a Dense layer after it makes
    them so. The gated MLP of LLaMA is
    `Serial(Parallel(Serial(Dense(), Silu()), Dense()), Product(), Dense())`.

    Example:
        >>> import numpy as np, limitformer as lf
        >>> gate = lf.Parallel(lf.Serial(lf.Dense(), lf.Relu()), lf.Dense(2.0))
        >>> float(lf.Serial(gate, lf.Product()).kernel(np.ones((1, 3))).nngp[0, 0])
        2.0

    Reference:
        Shazeer 2020, arXiv 2002.05202 (gated linear units).
    """

    random_scores: ClassVar[bool] = False

    def needs(self, out: Need) -> Need:
        return out

    def marginal(self, state, ctx: Context):
        a, b = _two(state, ctx.path)
        check_independent((a, b), ctx.path)
        form = min(a.form, b.form)
        a, b = a.reduced(form), b.reduced(form)
        K = None if a.K is None else a.K * b.K
        m = None if a.m is None or b.m is None else a.m * b.m
        facts = a.facts.fresh(ctx.path, gaussian=False)
        return Marginal(facts, a.unit, K, a.diag, m, mask=a.mask, index=a.index), ()

    def cross(self, k, rx, ry, ctx: Context) -> Cross:
        a, b = k
        parts = [scaled(b.K, a.T), scaled(a.K, b.T)] if ctx.ntk else []
        given = [part for part in parts if part is not None]
        return Cross(a.K * b.K, sum(given[1:], given[0]) if given else None, a.diag)

    def apply(self, params, acts, ctx):
        a, b = _two(acts, ctx.path)
        return a.passed(a.h * b.h)

    def work(self, S1, S2, out, draws):
        entries = kernel_entries(S1, S2, out)
        return Work(elements=4 * entries, moved=6 * entries)


def _two(state, path: str):
    if not isinstance(state, tuple) or len(state) != 2:
        raise ValueError(
            f"{path.lstrip('/')} multiplies two streams: put lf.Parallel(...) of two branches "
            "before it"
        )
    return state
