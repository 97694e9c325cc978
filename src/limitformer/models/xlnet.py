"""XLNet: a post-norm encoder with relative positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .named import Named, pair
from .spec import Attention, Embedding, Model, Relative, Sublayer


def xlnet(config: Mapping[str, Any], w: Named, name: str) -> Model:
    """XLNet reading one whole text in both directions, without memory or permutation."""
    kinds = {"attn_type": "bi", "untie_r": True, "bi_data": False, "clamp_len": -1}
    for key, expected in kinds.items():
        if config.get(key, expected) != expected:
            raise ValueError(f"{name}: {key} = {config[key]!r} is not supported, only {expected!r}")
    eps = config.get("layer_norm_eps", 1e-12)
    sublayers: list[Sublayer] = []
    for i in range(config["n_layer"]):
        at = f"layer.{i}"
        q, k, v, o, r = (w[f"{at}.rel_attn.{part}"] for part in "qkvor")
        relative = Relative(_by_head(r), w[f"{at}.rel_attn.r_w_bias"], w[f"{at}.rel_attn.r_r_bias"])
        W_O = np.ascontiguousarray(o.transpose(1, 2, 0))
        W_Q, W_K, W_V = (_by_head(W) for W in (q, k, v))
        attention = Attention(W_Q, W_K, W_V, W_O, relative=relative)
        mlp = w.mlp(f"{at}.ff.layer_1", f"{at}.ff.layer_2", config.get("ff_activation", "gelu"))
        modules = (f"{at}.rel_attn.layer_norm", f"{at}.ff.layer_norm")
        norms = (w.norm(modules[0], eps), w.norm(modules[1], eps))
        sublayers += pair(i, attention, mlp, norms, modules, "post")
    return Model(name, tuple(sublayers), Embedding(w.table("word_embedding.weight")))


def _by_head(W: np.ndarray) -> np.ndarray:
    """(d, H, dk) to (H, d, dk)."""
    return np.ascontiguousarray(W.transpose(1, 0, 2))
