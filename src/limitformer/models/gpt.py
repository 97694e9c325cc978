"""GPT-2 and OPT: causal decoders with learned positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .named import Named, join, pair, split, split_bias
from .spec import Attention, Embedding, Mlp, Model, Sublayer


def gpt2(config: Mapping[str, Any], w: Named, name: str) -> Model:
    """GPT-2: pre-norm, with queries, keys and values in one matrix stored as (in, out)."""
    eps, heads = config.get("layer_norm_epsilon", 1e-5), config["n_head"]
    sublayers: list[Sublayer] = []
    for i in range(config["n_layer"]):
        at = f"h.{i}"
        W, b = w[f"{at}.attn.c_attn.weight"], w[f"{at}.attn.c_attn.bias"]
        W_Q, W_K, W_V = (split(part, heads) for part in np.split(W, 3, axis=1))
        b_Q, b_K, b_V = (split_bias(part, heads) for part in np.split(b, 3))
        scale = W_Q.shape[-1] ** -0.5 if config.get("scale_attn_weights", True) else 1.0
        if config.get("scale_attn_by_inverse_layer_idx"):
            scale /= i + 1
        W_O = join(w[f"{at}.attn.c_proj.weight"], heads)
        b_O = w[f"{at}.attn.c_proj.bias"]
        attention = Attention(W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O, scale=scale, causal=True)
        names = [f"{at}.mlp.{m}.{n}" for n in ("weight", "bias") for m in ("c_fc", "c_proj")]
        activation = config.get("activation_function", "gelu_new")
        mlp = Mlp(*(w[n] for n in names), activation=activation)
        norms = (w.norm(f"{at}.ln_1", eps), w.norm(f"{at}.ln_2", eps))
        modules = (f"{at}.attn.c_proj", f"{at}.mlp.c_proj")
        sublayers += pair(i, attention, mlp, norms, modules, "pre")
    sublayers.append(Sublayer("final norm", None, after=w.norm("ln_f", eps), module="ln_f"))
    positions = w.table("wpe.weight")
    return Model(
        name, tuple(sublayers), Embedding(w.table("wte.weight"), positions), len(positions)
    )


def opt(config: Mapping[str, Any], w: Named, name: str) -> Model:
    """OPT: pre-norm, or post-norm in its 350M size; positions start at index 2 of their table.

    The 350M size projects the stream to the vocabulary's width at its end; the output here is the
    stream before that.
    """
    before = config.get("do_layer_norm_before", True)
    sublayers: list[Sublayer] = []
    for i in range(config["num_hidden_layers"]):
        at = f"decoder.layers.{i}"
        maps = [f"{at}.self_attn.{part}_proj" for part in ("q", "k", "v", "out")]
        attention = w.attention(maps, config["num_attention_heads"], causal=True)
        mlp = w.mlp(f"{at}.fc1", f"{at}.fc2", config.get("activation_function", "relu"))
        names = (f"{at}.self_attn_layer_norm", f"{at}.final_layer_norm")
        modules = (maps[3], f"{at}.fc2") if before else names
        norms = (w.norm(names[0], 1e-5), w.norm(names[1], 1e-5))
        sublayers += pair(i, attention, mlp, norms, modules, "pre" if before else "post")
    final = "decoder.final_layer_norm"
    if before and f"{final}.weight" in w:
        sublayers.append(Sublayer("final norm", None, after=w.norm(final, 1e-5), module=final))
    positions = w.table("decoder.embed_positions.weight")
    projection = w.get("decoder.project_in.weight")
    embedding = Embedding(
        w.table("decoder.embed_tokens.weight"),
        positions,
        offset=2,
        projection=None if projection is None else projection.T,
        positions_last=True,
    )
    return Model(name, tuple(sublayers), embedding, len(positions) - 2)
