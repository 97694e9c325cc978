"""Activations: the dual map K' = Phi(K_aa, K_bb, K_ab), T' = T Phi'(K_aa, K_bb, K_ab)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from .. import duals
from ..kernel.state import Cross, Form, Marginal, Need
from .base import Context, Leaf, Work, kernel_entries


class Activation(Leaf):
    """An elementwise function phi of Gaussian channels.

    K'_ab = Phi(K_aa(x,x), K_bb(y,y), K_ab(x,y)) = E[phi(u) phi(v)] and T'_ab = T_ab E[phi'(u)
    phi'(v)], in closed form where there is one and by converged quadrature otherwise.

    Args:
        fn: a function of a JAX array, elementwise and differentiable by JAX, or a
            `limitformer.duals.Dual`.
        options: passed on to `limitformer.duals.Generic` for a plain function (`kinks`, places
            where it is not smooth; `terms`, `nodes`).

    Example:
        >>> import jax.numpy as jnp, limitformer as lf
        >>> net = lf.Serial(lf.Dense(), lf.Activation(jnp.tanh), lf.Dense())
    """

    dual: duals.Dual

    def __init__(self, fn: Callable | duals.Dual, **options):
        if isinstance(fn, duals.Dual):
            self.dual = fn
        elif callable(fn):
            self.dual = duals.Generic(function=fn, **options)
        else:
            raise TypeError(f"Activation needs a function of an array, got {fn!r}")

    @property
    def label(self) -> str:
        return type(self.dual).__name__

    def needs(self, out: Need) -> Need:
        return out.at_least(marginal=Form.DIAG)

    def marginal(self, state: Marginal, ctx: Context):
        if not state.facts.gaussian:
            raise ValueError(
                f"the activation {ctx.path.lstrip('/')} does not act on Gaussian channels (it "
                "follows the raw input, a dropout or another activation), so its dual formula does "
                "not hold; put a Dense (or Conv, Embed, Attention) layer before it"
            )
        v, mask = state.variance, state.mask
        prepared = self.dual.prepare(v)
        K = None
        if state.diag:
            K = on_valid(self.dual.second(v), mask)
        elif state.K is not None:
            rows = laid(prepared, v.ndim, lambda u: u[..., :, None])
            cols = laid(prepared, v.ndim, lambda u: u[..., None, :])
            K, _ = self.dual.mix(state.K, rows, cols, derivative=False)
            equal = jnp.eye(v.shape[-1], dtype=bool)
            K = jnp.where(equal, self.dual.second(v)[..., :, None], K)
            if mask is not None:
                K = jnp.where(mask[..., :, None] & mask[..., None, :], K, 0.0)
        m = on_valid(self.dual.mean(v), mask)
        facts = state.facts.passed(self.label, gaussian=False)
        new = dataclasses.replace(state, facts=facts, K=K, m=m, F=None, raw=None)
        return new, (prepared, mask)

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        (px, mask_x), (py, mask_y) = rx, ry
        ndim = k.K.ndim - (0 if k.diag else 1)
        rows, cols = laid(px, ndim, k.rows), laid(py, ndim, k.cols)
        derivative = ctx.ntk and k.T is not None
        K, slope = self.dual.mix(k.K, rows, cols, derivative=derivative)
        T = None if slope is None else k.T * slope
        return Cross(k.masked(K, mask_x, mask_y), T, k.diag)

    def apply(self, params, acts, ctx):
        return acts.passed(acts.on_valid(self.dual.fn(acts.h)))

    def work(self, S1, S2, out, draws):
        entries = kernel_entries(S1, S2, out)
        terms = 3 if self.dual.exact else 40  # a quadrature dual sums a series per entry
        return Work(elements=terms * entries, moved=4 * entries)


def on_valid(values, mask):
    """Values on valid tokens, zero elsewhere."""
    return values if mask is None else jnp.where(mask, values, 0.0)


def laid(prepared, ndim: int, lay):
    """Lay per-token arrays `(*n, S, *extra)` out against a kernel, keeping the extra axes last."""

    def move(leaf):
        if leaf.ndim == ndim:
            return lay(leaf)
        extra = leaf.ndim - ndim
        flat = jnp.moveaxis(leaf, range(ndim, leaf.ndim), range(extra))
        return jnp.moveaxis(lay(flat), range(extra), range(-extra, 0))

    return jax.tree.map(move, prepared)
