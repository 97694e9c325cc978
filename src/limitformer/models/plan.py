"""What a configuration says about a transformer at its own initialisation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from .gates import activation_name

_GATED = ("llama", "mistral", "qwen2", "qwen3")
_KINDS = ("bert", "roberta", "distilbert", "albert", "gpt2", "opt", "vit", *_GATED)
_NO_LIMIT = {
    "xlnet": "xlnet adds q_i . r_{i-j}, scores of a query and a distance, whose covariance is no "
    "product of a kernel of queries and one of keys; there is no such score law here"
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes, norms and initial standard deviations of a transformer; made by `plan_of`.

    Weights are N(0, std^2) entry by entry, biases 0, gains 1.

    Attributes:
        kind: `model_type`.
        depth, heads, width, hidden: L, H, d, and the MLP's width m.
        placement: "pre" or "post".
        activation: a name in `limitformer.models.gates`.
        causal: of attention.
        eps: of the norms.
        std: of every weight and table, except
        last_std: of the last matrix of every branch, W_O and W_out.
        input_norm: a norm after the embedding.
        final_norm: a norm at the end.
        types: a segment code is added to every token.
        patch: values in one image patch; None for token ids.
        patch_side: of the square patches.
        key_heads: heads of keys and values, which groups of query heads share; None: all.
        head_width: channels of a head; None for width / heads.
        gated: the MLP is act(W_gate h) * (W_in h); norms are RMS, positions rotary.
        base: of the rotary frequencies.
        qk_norm: queries and keys of every head are divided by their root mean square.
        table: width of the embedding tables, if a matrix takes them to `width`; else None.
        distinct: layers with weights of their own, each used `depth / distinct` times in a row;
            None: all.
    """

    kind: str
    depth: int
    heads: int
    width: int
    hidden: int
    placement: str
    activation: str
    causal: bool
    eps: float
    std: float
    last_std: float
    input_norm: bool
    final_norm: bool
    types: bool
    patch: int | None = None
    patch_side: int = 0
    key_heads: int | None = None
    head_width: int | None = None
    gated: bool = False
    base: float = 10000.0
    qk_norm: bool = False
    table: int | None = None
    distinct: int | None = None

    @property
    def channels(self) -> int:
        """Of one head."""
        return self.head_width or self.width // self.heads


def plan_of(config: Any) -> Plan:
    """Read a configuration.

    Args:
        config: a dictionary as in `config.json`, a transformers configuration, or a model that
            has one.

    Raises:
        ValueError: an architecture whose limit is not known here, with the reason.

    Example:
        >>> plan_of({"model_type": "gpt2", "n_layer": 12}).last_std.__round__(5)
        0.00408
    """
    given = getattr(config, "config", config)
    given = given.to_dict() if hasattr(given, "to_dict") else given
    if not isinstance(given, Mapping):
        raise TypeError(
            f"expected a configuration or a model that has one, got {type(config).__name__}"
        )
    kind = str(given.get("model_type"))
    if kind in _NO_LIMIT:
        raise ValueError(f"{_NO_LIMIT[kind]}; known are {', '.join(_KINDS)}")
    if kind not in _KINDS:
        raise ValueError(f"unknown model_type {kind!r}; limits are known of {', '.join(_KINDS)}")
    if kind in _GATED:
        return _llama(given, kind)
    known = {"gpt2": _gpt2, "opt": _opt, "vit": _vit, "albert": _albert}
    return known.get(kind, _bert)(given, kind)


def _bert(c: Mapping[str, Any], kind: str) -> Plan:
    width = c.get("hidden_size", c.get("dim", 768))
    std = c.get("initializer_range", 0.02)
    return Plan(
        kind,
        c.get("num_hidden_layers", c.get("n_layers", 12 if kind != "distilbert" else 6)),
        c.get("num_attention_heads", c.get("n_heads", 12)),
        width,
        c.get("intermediate_size", c.get("hidden_dim", 4 * width)),
        "post",
        activation_name(c.get("hidden_act", c.get("activation", "gelu"))),
        False,
        c.get("layer_norm_eps", 1e-12),
        std,
        std,
        True,
        False,
        kind != "distilbert",
    )


def _albert(c: Mapping[str, Any], kind: str) -> Plan:
    if c.get("inner_group_num", 1) != 1:
        raise ValueError(f"albert with inner_group_num {c['inner_group_num']} is not supported")
    width = c.get("hidden_size", 4096)
    own = {
        "num_attention_heads": 64,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "hidden_act": "gelu_new",
    }
    return dataclasses.replace(
        _bert(own | dict(c), kind),
        table=c.get("embedding_size", 128),
        distinct=c.get("num_hidden_groups", 1),
    )


def _gpt2(c: Mapping[str, Any], kind: str) -> Plan:
    depth, width = c.get("n_layer", 12), c.get("n_embd", 768)
    std = c.get("initializer_range", 0.02)
    activation = activation_name(c.get("activation_function", "gelu_new"))
    return Plan(
        kind,
        depth,
        c.get("n_head", 12),
        width,
        c.get("n_inner") or 4 * width,
        "pre",
        activation,
        True,
        c.get("layer_norm_epsilon", 1e-5),
        std,
        std / math.sqrt(2 * depth),
        False,
        True,
        False,
    )


def _opt(c: Mapping[str, Any], kind: str) -> Plan:
    width, std = c.get("hidden_size", 768), c.get("init_std", 0.02)
    if c.get("word_embed_proj_dim", width) != width:
        raise ValueError("opt with word_embed_proj_dim other than hidden_size is not supported")
    before = c.get("do_layer_norm_before", True)
    return Plan(
        kind,
        c.get("num_hidden_layers", 12),
        c.get("num_attention_heads", 12),
        width,
        c.get("ffn_dim", 4 * width),
        "pre" if before else "post",
        activation_name(c.get("activation_function", "relu")),
        True,
        1e-5,
        std,
        std,
        False,
        bool(before),
        False,
    )


def _llama(c: Mapping[str, Any], kind: str) -> Plan:
    width, std = c.get("hidden_size", 4096), c.get("initializer_range", 0.02)
    heads = c.get("num_attention_heads", 32)
    rope = dict(c.get("rope_scaling") or {}) | dict(c.get("rope_parameters") or {})
    scaled = rope.get("rope_type", rope.get("type", "default"))
    if scaled != "default" or c.get("partial_rotary_factor", 1.0) not in (None, 1.0):
        raise ValueError(f"{kind} with rotary type {scaled!r}: only default rotary positions here")
    return Plan(
        kind,
        c.get("num_hidden_layers", 32),
        heads,
        width,
        c.get("intermediate_size", 11008),
        "pre",
        activation_name(c.get("hidden_act", "silu")),
        True,
        c.get("rms_norm_eps", 1e-6),
        std,
        std,
        False,
        True,
        False,
        key_heads=c.get("num_key_value_heads") or heads,
        head_width=c.get("head_dim"),
        gated=True,
        base=float(rope.get("rope_theta", c.get("rope_theta", 10000.0))),
        qk_norm=kind == "qwen3",
    )


def _vit(c: Mapping[str, Any], kind: str) -> Plan:
    width, std = c.get("hidden_size", 768), c.get("initializer_range", 0.02)
    side = c.get("patch_size", 16)
    return Plan(
        kind,
        c.get("num_hidden_layers", 12),
        c.get("num_attention_heads", 12),
        width,
        c.get("intermediate_size", 4 * width),
        "pre",
        activation_name(c.get("hidden_act", "gelu")),
        False,
        c.get("layer_norm_eps", 1e-12),
        std,
        std,
        False,
        True,
        False,
        side * side * c.get("num_channels", 3),
        side,
    )
