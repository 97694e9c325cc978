"""LLaMA, Mistral and Qwen: pre-norm decoders with RMSNorm, rotary positions and gated MLPs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .named import Named, pair
from .spec import Embedding, Model, Rotary, Sublayer


def llama(config: Mapping[str, Any], w: Named, name: str) -> Model:
    """LLaMA; Mistral (sliding window), Qwen 2 (biases), Qwen 3 (norms of queries and keys)."""
    eps, heads = config.get("rms_norm_eps", 1e-6), config["num_attention_heads"]
    width = w["layers.0.self_attn.q_proj.weight"].shape[0] // heads
    rotary = Rotary(frequencies(config, width))
    sublayers: list[Sublayer] = []
    for i in range(config["num_hidden_layers"]):
        at = f"layers.{i}"
        maps = [f"{at}.self_attn.{part}_proj" for part in "qkvo"]
        by_head = {}
        if f"{at}.self_attn.q_norm.weight" in w:
            by_head["query_norm"] = w.norm(f"{at}.self_attn.q_norm", eps, centred=False)
            by_head["key_norm"] = w.norm(f"{at}.self_attn.k_norm", eps, centred=False)
        window = _window(config, i)
        attention = w.attention(maps, heads, causal=True, window=window, rotary=rotary, **by_head)
        up, down, gate = (f"{at}.mlp.{part}_proj" for part in ("up", "down", "gate"))
        mlp = w.mlp(up, down, config.get("hidden_act", "silu"), gate)
        names = (f"{at}.input_layernorm", f"{at}.post_attention_layernorm")
        norms = (w.norm(names[0], eps, centred=False), w.norm(names[1], eps, centred=False))
        sublayers += pair(i, attention, mlp, norms, (maps[3], down), "pre")
    final = w.norm("norm", eps, centred=False)
    sublayers.append(Sublayer("final norm", None, after=final, module="norm"))
    longest = config.get("max_position_embeddings")
    return Model(name, tuple(sublayers), Embedding(w.table("embed_tokens.weight")), longest)


def frequencies(config: Mapping[str, Any], width: int) -> np.ndarray:
    """(J,) rotary frequencies theta^{-2j / width}, as a configuration of transformers 4 or 5 says.

    Raises:
        ValueError: the configuration rescales them in a way other than "default" or "linear".

    Example:
        >>> frequencies({"rope_theta": 100.0}, 4)
        array([1. , 0.1])
    """
    rope = dict(config.get("rope_scaling") or {})
    rope.update(config.get("rope_parameters") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear"):
        raise ValueError(f"rotary type {kind!r} is not supported; supported: default, linear")
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor") or 1.0)
    turned = int(width * part)
    slow = rope.get("factor", 1.0) if kind == "linear" else 1.0
    return float(theta) ** (-np.arange(0, turned, 2) / turned) / slow


def _window(config: Mapping[str, Any], layer: int) -> int | None:
    """How far layer i looks back, or None."""
    window = config.get("sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return None
    kinds = config.get("layer_types")
    if kinds is not None and kinds[layer] != "sliding_attention":
        return None
    if kinds is None and layer < config.get("max_window_layers", 0):
        return None
    return window
