"""From a configuration to the network whose limits are those of its architecture."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from ..layers import named
from ..layers.attention import Attention
from ..layers.combine import Parallel, Repeat, Residual, Serial
from ..layers.conv import Conv
from ..layers.dense import Dense
from ..layers.embed import ClassToken, Embed
from ..layers.norm import LayerNorm, RMSNorm
from ..layers.position import OneHot, Position, Rotary
from ..layers.product import Product
from .plan import Plan, plan_of

_ACTIVATIONS = {
    "gelu": named.Gelu,
    "gelu_tanh": named.GeluTanh,
    "relu": named.Relu,
    "silu": named.Silu,
    "tanh": named.Tanh,
}


def limit_of(config: Any, *, untied: bool = False) -> Serial:
    """The network whose limits are those of an architecture at its own initialisation.

    A matrix of entries N(0, std^2) and fan-in d is a Dense of w_std = std sqrt(d); so
    s_QK = std^2 d, s_OV = std std_O d. Tables of tokens and positions are N(0, std^2); depth,
    heads, norms and activation are the configuration's. Dropout is off.

    Args:
        config: a dictionary as in `config.json`, a transformers configuration, or a model that
            has one: BERT, RoBERTa, DistilBERT, GPT-2, OPT, LLaMA, Mistral, Qwen 2 and 3, ViT.
            Groups of query heads that share keys and values have the limit of heads that do not; a
            sliding window is left out (inputs shorter than it). Qwen 3 divides queries and keys by
            their norms, which become sure with the width of a head: s_QK = 1.
        untied: of a model whose layers share weights (ALBERT), the limit of the same layers with
            weights of their own; `shared_profile` follows the shared ones.

    Returns:
        A network of token ids (n, tokens), or of images (n, height, width, channels) for ViT,
        without readout. It has the configuration's heads; `lf.depth_profile` reads it with
        infinitely many, and `net.with_heads(lf.inf).kernel(ids)` too.

    Raises:
        ValueError: an architecture whose limit is not known here, with the reason.

    Example:
        >>> limit_of({"model_type": "gpt2", "n_layer": 2})
        Serial(Embed(0.02), Position(weight=0.0004), ... Attention(heads=12, qk_std=0.307...
    """
    p = plan_of(config)
    if p.distinct is not None and not untied:
        raise ValueError(
            f"{p.kind} uses {p.distinct} set{'s' * (p.distinct > 1)} of weights in {p.depth} "
            "layers, so what they add to the stream is correlated and no sequence of independent "
            "layers has its limit; use lf.models.shared_profile(config, ids), or "
            "limit_of(config, untied=True) for the same layers with weights of their own"
        )
    ends = (_norm(p),) if p.final_norm else ()
    return Serial(*inputs_of(p), Repeat(_block(p), p.depth), *ends)


def _norm(p: Plan) -> Any:
    return RMSNorm(eps=p.eps) if p.gated else LayerNorm(eps=p.eps)


def inputs_of(p: Plan) -> tuple:
    """Tables of tokens, positions and segments, or patches with a class token."""
    if p.gated:
        return (Embed(p.std),)
    places = Position(OneHot(), weight=p.std**2)
    if p.patch is not None:
        side = (p.patch_side, p.patch_side)
        first = Conv(side, p.std * math.sqrt(p.patch), stride=side, padding="valid")
        return first, ClassToken(p.std), places
    types = (Position(jnp.ones_like, weight=p.std**2),) if p.types else ()
    norm = (LayerNorm(eps=p.eps),) if p.input_norm else ()
    into = () if p.table is None else (Dense(p.std * math.sqrt(p.table)),)
    return Embed(p.std), places, *types, *norm, *into


def branches_of(p: Plan) -> tuple[Attention, tuple]:
    """Attention and the layers of the MLP, with the standard deviations of their matrices."""
    if p.activation not in _ACTIVATIONS:
        raise ValueError(f"no dual of {p.activation!r}; there are {', '.join(_ACTIVATIONS)}")
    d, m = p.width, p.hidden
    qk = p.std**2 * d  # the variance of queries and keys of unit tokens as well
    attention = Attention(
        heads=p.heads,
        qk_std=qk / (qk + p.eps) if p.qk_norm else qk,
        ov_std=p.std * p.last_std * math.sqrt(d * p.heads * p.channels),
        causal=p.causal,
        position=Rotary(p.channels, p.base) if p.gated else None,
    )
    into, out = Dense(p.std * math.sqrt(d)), Dense(p.last_std * math.sqrt(m))
    mlp: tuple = (into, _ACTIVATIONS[p.activation](), out)
    if p.gated:
        mlp = (Parallel(Serial(*mlp[:2]), into), Product(), out)
    return attention, mlp


def _block(p: Plan) -> Serial:
    """One layer."""
    attention, mlp = branches_of(p)
    norm = _norm(p)
    if p.placement == "pre":
        return Serial(Residual(norm, attention), Residual(norm, *mlp))
    return Serial(Residual(attention), norm, Residual(*mlp), norm)
