"""Reads a network's description into the naive oracle, so that every network has one.

Only the fields of the layers are used, nothing of the engine.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from tests import naive

import limitformer as lf
from limitformer import duals

_GELU_TANH = math.sqrt(2 / math.pi)


def _gelu_tanh(z):
    return 0.5 * z * (1 + np.tanh(_GELU_TANH * (z + 0.044715 * z**3)))


def _gelu_tanh_slope(z):
    t = np.tanh(_GELU_TANH * (z + 0.044715 * z**3))
    return 0.5 * (1 + t) + 0.5 * z * (1 - t**2) * _GELU_TANH * (1 + 3 * 0.044715 * z**2)


_MAPS = {
    duals.Identity: naive.IDENTITY,
    duals.Relu: naive.RELU,
    duals.Abs: naive.ABS,
    duals.Sign: naive.SIGN,
    duals.Erf: naive.ERF,
    duals.Gelu: naive.GELU,
    duals.GeluTanh: naive.Map(_gelu_tanh, _gelu_tanh_slope),
    duals.Silu: naive.SILU,
    duals.Tanh: naive.TANH,
    duals.Sigmoid: naive.SIGMOID,
    duals.Softplus: naive.SOFTPLUS,
    duals.Elu: naive.ELU,
    duals.Sin: naive.SIN,
    duals.Cos: naive.COS,
    duals.Gaussian: naive.GAUSSIAN,
}


def map_of(dual, functions=None) -> naive.Map:
    """The naive map of an activation; `functions` gives those of plain functions."""
    if isinstance(dual, duals.LeakyRelu):
        return naive.leaky(dual.slope)
    if isinstance(dual, duals.Polynomial):
        return naive.polynomial(*dual.coefficients)
    if isinstance(dual, duals.Generic):
        return (functions or {})[dual.function]
    return _MAPS[type(dual)]


@dataclasses.dataclass(frozen=True)
class Stream:
    """A pair of inputs on its way through a network, with the raw inputs while they are raw."""

    pair: naive.Pair
    raw: tuple | None = None


class Reader:
    """Applies a network to a pair of inputs.

    Args:
        functions: naive maps of the plain functions in `Activation(fn)`.
        rng, draws: for softmax at scale "sqrt", by plain Monte Carlo.
    """

    def __init__(self, functions=None, rng=None, draws=0):
        self.functions, self.rng, self.draws = functions, rng, draws

    def __call__(self, net, x, y=None) -> naive.Pair:
        """K and T of one pair of inputs, without padding; y=None: x itself."""
        return self.run(net, self.start(net, x, y)).pair

    def start(self, net, x, y):
        if isinstance(x, tuple):
            ys = (None,) * len(x) if y is None else y
            return tuple(self.start(net, a, b) for a, b in zip(x, ys, strict=True))
        if np.asarray(x).dtype.kind == "i":
            return Stream(None, (x, x if y is None else y, y is None))
        return Stream(naive.raw(x, y), (x, x if y is None else y))

    def run(self, layer, s):
        return getattr(self, type(layer).__name__)(layer, s)

    # composites

    def Serial(self, layer, s):
        for child in layer.layers:
            s = self.run(child, s)
        return s

    def Residual(self, layer, s):
        branch = self.run(layer.body, s)
        return Stream(naive.add([s.pair, branch.pair], [layer.skip, layer.branch]))

    def Parallel(self, layer, s):
        streams = s if isinstance(s, tuple) else (s,) * len(layer.layers)
        return tuple(self.run(f, t) for f, t in zip(layer.layers, streams, strict=True))

    def Sum(self, layer, s):
        streams = s if layer.branches is None else self.run(layer.branches, s)
        return Stream(naive.add([t.pair for t in streams], layer.weights))

    def Product(self, layer, s):
        return Stream(naive.product(*(t.pair for t in s)))

    def Repeat(self, layer, s):
        for _ in range(layer.n):
            s = self.run(layer.layer, s)
        return s

    # linear layers

    def Embed(self, layer, s):
        x, y, same = s.raw
        return Stream(naive.embed(x, None if same else y, layer.w_std))

    def Dense(self, layer, s):
        fan_in = layer.width if layer.parametrisation == "standard" else None
        return Stream(naive.dense(s.pair, layer.w_std, layer.b_std, standard_fan_in=fan_in))

    def Conv(self, layer, s):
        width = layer.width if layer.parametrisation == "standard" else None
        return Stream(
            naive.conv(
                s.pair,
                layer.window,
                layer.w_std,
                layer.b_std,
                layer.stride,
                layer.padding,
                standard_width=width,
            )
        )

    def AvgPool(self, layer, s):
        return Stream(naive.avg_pool(s.pair, layer.window, layer.stride, layer.padding))

    def ClassToken(self, layer, s):
        return Stream(naive.class_token(s.pair, layer.w_std))

    def Dropout(self, layer, s):
        return Stream(naive.dropout(s.pair, layer.keep))

    def MeanPool(self, layer, s):
        return Stream(naive.mean_pool(s.pair))

    def SumPool(self, layer, s):
        return Stream(naive.sum_pool(s.pair))

    def FirstToken(self, layer, s):
        return Stream(naive.first_token(s.pair))

    def LastToken(self, layer, s):
        return Stream(naive.last_token(s.pair))

    def Flatten(self, layer, s):
        return Stream(naive.flatten(s.pair))

    # activations and norms

    def Activation(self, layer, s):
        return Stream(naive.activation(s.pair, map_of(layer.dual, self.functions)))

    def LayerNorm(self, layer, s):
        over = "channels" if layer.over == "channels" else "tokens and channels"
        return Stream(naive.layer_norm(s.pair, over, layer.eps))

    def RMSNorm(self, layer, s):
        return Stream(naive.rms_norm(s.pair, layer.eps))

    # positions and attention

    def code(self, decay, pair):
        if isinstance(decay, lf.OneHot):
            return naive.one_hot(pair)
        if isinstance(decay, lf.SquaredExponential):
            return naive.squared_exponential(pair, decay.phi, decay.rho)
        with jax.enable_x64(True):
            return naive.decay_of_index(pair, lambda d2: float(decay.fn(jnp.asarray(d2, float))))

    def Position(self, layer, s):
        R = self.code(layer.decay, s.pair)
        return Stream(naive.position(s.pair, R, layer.content, layer.weight, layer.trained))

    def zeta(self, weights):
        return map_of(weights.dual, self.functions) if hasattr(weights, "dual") else "softmax"

    def seen(self, layer, n):
        """(n, n) keys that each query sees."""
        seen = np.ones((n, n), bool)
        if callable(layer.mask):
            seen = seen & layer.mask(n)
        elif layer.mask is not None:
            seen = seen & np.array(layer.mask)[:n, :n]
        return seen & naive.causal(n) if layer.causal else seen

    def Attention(self, layer, s):
        p, options, position = s.pair, {}, layer.position
        nx, ny = len(p.mx), len(p.my)
        options["mask_x"], options["mask_y"] = self.seen(layer, nx), self.seen(layer, ny)
        if isinstance(position, lf.Position):
            options["R"] = self.code(position.decay, p)
            for name in ("content", "weight", "values", "trained"):
                options[name] = getattr(position, name)
        elif isinstance(position, lf.Rotary):
            frequencies = naive.rotary_frequencies(position.dims, position.base)
            options["rho"] = naive.rotary(frequencies)
        elif isinstance(position, lf.Alibi):
            for side, n in (("x", nx), ("y", ny)):
                options[f"bias_{side}"] = [naive.alibi(n, slope) for slope in position.slopes]
        elif isinstance(position, lf.RelativeBias):
            for side, n in (("x", nx), ("y", ny)):
                index = np.arange(n)
                options[f"bias_{side}"] = [position.fn(index[:, None] - index[None])]
        zeta, stds = self.zeta(layer.weights), (layer.qk_std, layer.ov_std, layer.b_std)
        if "bias_x" in options and zeta is naive.IDENTITY:
            zeta = naive.polynomial(0.0, 1.0)  # smooth, for the quadrature with a mean
        if layer.scale == "linear":
            tied = layer.tied is not False
            new = naive.attention_linear(
                p, zeta, *stds, per_key=layer.per_key, tied=tied, **options
            )
        elif zeta == "softmax":
            new, _ = naive.attention_softmax(p, *stds, rng=self.rng, draws=self.draws, **options)
        else:
            new = naive.attention_sqrt(p, zeta, *stds, per_key=layer.per_key, **options)
        return Stream(new)

    def ResidualAttention(self, layer, s):
        p = s.pair
        Rxx, _, Ryy = self.code(layer.position.decay, p)
        zeta = self.zeta(layer.weights)
        Ax, Ay = (
            np.stack(
                [naive._row(zeta, layer.qk_std * row, np.ones(len(row), bool), False) for row in R]
            )
            for R in (Rxx, Ryy)
        )
        return Stream(naive.residual_attention(p, layer.alpha, Ax, Ay))

    def CrossAttention(self, layer, s):
        queries, context = s
        q, k = queries.pair, context.pair
        zeta, stds = self.zeta(layer.weights), (layer.qk_std, layer.ov_std, layer.b_std)
        if layer.scale == "sqrt" and zeta == "softmax":
            new, _ = naive.cross_attention_softmax(q, k, *stds, rng=self.rng, draws=self.draws)
        elif layer.scale == "sqrt":
            new = naive.cross_attention_sqrt(q, k, zeta, *stds, per_key=layer.per_key)
        else:
            between = []
            for side, nq, nk in ((0, len(q.mx), len(k.mx)), (1, len(q.my), len(k.my))):
                if queries.raw is None or context.raw is None:
                    between.append(np.zeros((nq, nk)))
                else:
                    u, v = queries.raw[side], context.raw[side]
                    between.append(u @ v.T / u.shape[-1])
            new = naive.cross_attention_linear(
                q,
                k,
                zeta,
                *stds,
                scores_x=between[0],
                scores_y=between[1],
                per_key=layer.per_key,
                tied=layer.tied is not False,
            )
        return Stream(new)
