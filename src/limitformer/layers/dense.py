"""Fully connected layers on each token's channels."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from ..kernel.functional import Functional
from ..kernel.state import Cross, Marginal, Need, scaled
from .base import Context, Leaf, choice, hyper


class Dense(Leaf):
    """f_a = w_std / sqrt(fan_in) W h_a + b_std b, with W, b standard normal.

    NTK parametrisation:      K' = w^2 K + b^2,  T' = K' + w^2 T.
    Standard parametrisation: K' the same,       T' = fan_in K + w^2 T + [b > 0],
    where `width` gives fan_in, the number of input channels of the finite network that is meant.

    Example:
        >>> import numpy as np, limitformer as lf
        >>> float(lf.Dense(w_std=2.0).kernel(np.ones((1, 3))).nngp[0, 0])
        4.0
    """

    makes_channels: ClassVar[bool] = True

    w_std: float = eqx.field(converter=hyper, default=1.0)
    b_std: float = eqx.field(converter=hyper, default=0.0)
    parametrisation: str = eqx.field(static=True, default="ntk")
    width: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_parametrisation(self.parametrisation, self.width)

    @property
    def fan_in(self) -> int | None:
        return self.width

    def needs(self, out: Need) -> Need:
        return out

    def marginal(self, state: Marginal, ctx: Context):
        K = None
        if state.K is not None:
            K = self.w_std**2 * state.K + bias(self.b_std, state)
        F = None
        if state.F is not None:
            F = jnp.concatenate([self.w_std * state.F, bias_feature(self.b_std, state)], axis=-1)
        facts = state.facts.fresh(ctx.path)
        new = dataclasses.replace(state, facts=facts, K=K, m=None, F=F, raw=None)
        return new, state.mask

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        b2 = k.masked(self.b_std**2 * jnp.ones((), k.K.dtype), rx, ry)
        linear = self.w_std**2 * k.K
        return Cross(
            linear + b2, weight_T(self, k, linear, scaled(self.w_std**2, k.T), b2, ctx), k.diag
        )

    @property
    def pull_rank(self) -> int:
        return 1 if self.parametrisation == "ntk" else 0

    def pull(self, functional: Functional, record) -> Functional:
        return functional.plus(self.b_std * jnp.sum(functional.u, axis=-1)).reads(
            self.w_std * functional.u, 1.0
        )

    def init(self, key, acts, ctx):
        fan_in = acts.h.shape[-1]
        return init_weights(self, key, (fan_in, ctx.channels), fan_in, acts.h.dtype)

    def apply(self, params, acts, ctx):
        w, b = weights(self, params, acts.h.shape[-1])
        return acts.fresh(acts.h @ w + b)


def check_parametrisation(parametrisation: str, width: int | None) -> None:
    """Raise for an unknown parametrisation, or a standard one without its width."""
    choice("parametrisation", parametrisation, ("ntk", "standard"))
    if parametrisation == "standard" and width is None:
        raise ValueError(
            "the standard parametrisation has an NTK that grows with the width: "
            "give width=, the number of input channels of the finite network"
        )
    if width is not None and (isinstance(width, bool) or not isinstance(width, int) or width < 1):
        raise ValueError(f"width must be a whole number of at least 1, got {width!r}")


def bias(b_std, state: Marginal):
    """b^2 on pairs of valid tokens, in the form of K."""
    if state.mask is None:
        return b_std**2
    return b_std**2 * state.tokenwise(state.mask.astype(state.K.dtype))


def bias_feature(b_std, state: Marginal):
    """One more feature, which is b at every valid token."""
    ones = jnp.ones_like(state.F[..., :1])
    if state.mask is not None:
        ones = jnp.where(state.mask[..., None], ones, 0.0)
    return b_std * ones


def weight_T(layer, k: Cross, linear, through, b2, ctx: Context):
    """T' of a linear layer: its own weights and bias, and what came before (`through`).

    `linear` is K' - b^2. In the standard parametrisation the weights are larger by
    sqrt(fan_in) / w, so their share is fan_in / w^2 times as large.
    """
    if not ctx.ntk:
        return None
    if layer.parametrisation == "ntk":
        own = linear + b2
    else:
        has_bias = jnp.where(b2 > 0, jnp.ones((), k.K.dtype), jnp.zeros((), k.K.dtype))
        own = layer.fan_in * linear / layer.w_std**2 + has_bias
    return own if through is None else own + through


def init_weights(layer, key, shape, fan_in: int, dtype):
    """Weights and bias in the layer's own parametrisation."""
    key_w, key_b = jax.random.split(key)
    w = jax.random.normal(key_w, shape, dtype)
    b = jax.random.normal(key_b, shape[-1:], dtype)
    if layer.parametrisation == "standard":
        w, b = w * (layer.w_std / fan_in**0.5), b * layer.b_std
    return {"w": w, "b": b}


def weights(layer, params, fan_in: int):
    """The weights and bias that act on the input."""
    if layer.parametrisation == "standard":
        b = params["b"]
        return params["w"], jnp.where(jnp.asarray(layer.b_std, b.dtype) > 0, b, jnp.zeros_like(b))
    return params["w"] * (layer.w_std / fan_in**0.5), params["b"] * layer.b_std
