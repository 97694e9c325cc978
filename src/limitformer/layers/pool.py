"""Readouts: pools over tokens, first and last token, flatten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernel.functional import Functional, contract
from ..kernel.state import Cross, Form, Marginal, Need
from .base import Composite, Context, Layer, Leaf, Work


class Readout(Leaf):
    """A weighted sum of the token channels, f = sum_a u_a f_a: K' = sum_ab u_a(x) u_b(y) K_ab."""

    def weights(self, mask, shape, dtype) -> Float[Array, "*n S"]:
        """u for the valid tokens of each input."""
        raise NotImplementedError

    def of(self, state: Marginal) -> Functional:
        shape = (*state.unit.shape, state.facts.tokens)
        return Functional.of_weights(self.weights(state.mask, shape, state.unit.dtype))

    def pooled(self, state: Marginal, functional: Functional, K, out: Form) -> Marginal:
        """The state after the readout, given the kernel `K` that `functional` reads."""
        variance = None if out == Form.NONE else functional.own(K)
        if variance is not None and out == Form.FULL:
            variance = variance[..., None]
        u = self.of(state).u[..., 0, :]
        m = None if state.m is None else jnp.sum(u * state.m, axis=-1, keepdims=True)
        F = None if state.F is None else jnp.matmul(u[..., None, :], state.F)
        facts = state.facts.passed(type(self).__name__, grid=(1,), readout=True)
        return Marginal(facts, state.unit, variance, out == Form.DIAG, m, F, index=state.index)

    def needs(self, out: Need) -> Need:
        return Need(Form.FULL, Form.FULL if out.marginal else Form.NONE)

    def marginal(self, state, ctx: Context):
        functional = self.of(state)
        return self.pooled(state, functional, state.K, ctx.need.marginal), functional

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        return contract(rx, ry, k, ctx.ntk)

    def apply(self, params, acts, ctx):
        shape = acts.h.shape[:-1]
        u = self.weights(acts.mask, shape, acts.h.dtype)
        return acts.pooled(jnp.sum(u[..., None] * acts.h, axis=-2, keepdims=True))


def _count(mask, shape, dtype):
    if mask is None:
        return jnp.full(shape[:-1], shape[-1], dtype)
    return jnp.sum(mask, axis=-1, dtype=dtype)


class MeanPool(Readout):
    """Mean over the valid tokens: K' = mean_ab K_ab, T' = mean_ab T_ab."""

    def weights(self, mask, shape, dtype):
        u = jnp.ones(shape, dtype) if mask is None else mask.astype(dtype)
        return u / _count(mask, shape, dtype)[..., None]


class SumPool(Readout):
    """Sum over the valid tokens: K' = sum_ab K_ab, T' = sum_ab T_ab."""

    def weights(self, mask, shape, dtype):
        return jnp.ones(shape, dtype) if mask is None else mask.astype(dtype)


class FirstToken(Readout):
    """The first valid token: K' = K_00."""

    def weights(self, mask, shape, dtype):
        if mask is None:
            return jnp.zeros(shape, dtype).at[..., 0].set(1.0)
        return (mask & (jnp.cumsum(mask, axis=-1) == 1)).astype(dtype)


class LastToken(Readout):
    """The last valid token of each input."""

    def weights(self, mask, shape, dtype):
        if mask is None:
            return jnp.zeros(shape, dtype).at[..., -1].set(1.0)
        rank = jnp.cumsum(mask, axis=-1)
        return (mask & (rank == rank[..., -1:])).astype(dtype)


class Flatten(Leaf):
    """All token channels side by side: K' = sum_a K_aa / sqrt(n_x n_y), and T' likewise.

    n_x is the number of valid tokens of x; tokens are matched by position.
    """

    def needs(self, out: Need) -> Need:
        return Need(Form.DIAG, Form.DIAG if out.marginal else Form.NONE)

    def marginal(self, state, ctx: Context):
        shape = (*state.unit.shape, state.facts.tokens)
        count = _count(state.mask, shape, state.unit.dtype)
        scale = 1 / jnp.sqrt(count)
        K = None
        if ctx.need.marginal:
            K = jnp.sum(state.variance, axis=-1, keepdims=True) * (scale * scale)[..., None]
            K = K[..., None] if ctx.need.marginal == Form.FULL else K
        m = None
        if state.m is not None:
            m = jnp.sum(state.m, axis=-1, keepdims=True) / count[..., None]
        facts = state.facts.passed("Flatten", grid=(1,), readout=True)
        diag = ctx.need.marginal == Form.DIAG
        new = Marginal(facts, state.unit, K, diag, m, index=state.index)
        return new, scale

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        k = k.reduced(Form.DIAG)

        def total(value) -> Any:
            if value is None:
                return None
            ones = jnp.ones((value.shape[-1], 1), value.dtype)  # a product: see kernel.functional
            return (jnp.matmul(value, ones)[..., 0] * rx * ry)[..., None, None]

        return Cross(total(k.K), total(k.T))

    def apply(self, params, acts, ctx):
        n, S, C = acts.h.shape
        count = _count(acts.mask, (n, S), acts.h.dtype)
        h = acts.h if acts.mask is None else jnp.where(acts.mask[..., None], acts.h, 0.0)
        h = h * jnp.sqrt(S / count)[:, None, None]
        return acts.pooled(h.reshape(n, 1, S * C))

    def work(self, S1, S2, out, draws):
        return Work(elements=2 * max(S1, S2), moved=2 * max(S1, S2))


class Pulled(Composite):
    """A readout together with the linear layers before it, as one functional (theory 2.4)."""

    chain: tuple[tuple[str, Layer], ...] = eqx.field(static=False)
    name: str = eqx.field(static=True)
    readout: Readout

    def children(self) -> Mapping[str, Layer]:
        return dict(self.chain) | {self.name: self.readout}

    def flow(self, state, run):
        return run.pooled(self, state)

    def needs(self, out: Need, ask) -> Need:
        need = Need(Form.NONE, Form.NONE)
        for name, layer in reversed(self.chain):
            need = ask(layer, need, name)
        ask(self.readout, out, self.name)
        return need.at_least(Form.FULL, Form.FULL if out.marginal else Form.NONE)

    def functional(self, state: Marginal, records) -> Functional:
        """The readout's functional of the state after the chain, as one of the state before."""
        functional = self.readout.of(state)
        for name, layer in reversed(self.chain):
            functional = layer.pull(functional, records[name])
        return functional
