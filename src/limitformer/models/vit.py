"""ViT: a pre-norm encoder of image patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .named import Named, pair
from .spec import Model, Patches, Sublayer

# Module paths of a layer: in checkpoints on disk and in transformers 4, and in transformers 5.
_OLD = {
    "at": "encoder.layer.{}",
    "maps": (
        "attention.attention.query",
        "attention.attention.key",
        "attention.attention.value",
        "attention.output.dense",
    ),
    "mlp": ("intermediate.dense", "output.dense"),
}
_NEW = {
    "at": "layers.{}",
    "maps": ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
    "mlp": ("mlp.fc1", "mlp.fc2"),
}


def vit(config: Mapping[str, Any], w: Named, name: str) -> Model:
    """ViT with its class token."""
    eps = config.get("layer_norm_eps", 1e-12)
    paths = _NEW if "layers.0.layernorm_before.weight" in w else _OLD
    sublayers: list[Sublayer] = []
    for i in range(config["num_hidden_layers"]):
        at = paths["at"].format(i)
        maps = [f"{at}.{part}" for part in paths["maps"]]
        first, last = (f"{at}.{part}" for part in paths["mlp"])
        attention = w.attention(maps, config["num_attention_heads"])
        mlp = w.mlp(first, last, config.get("hidden_act", "gelu"))
        norms = (w.norm(f"{at}.layernorm_before", eps), w.norm(f"{at}.layernorm_after", eps))
        sublayers += pair(i, attention, mlp, norms, (maps[3], last), "pre")
    final = w.norm("layernorm", eps)
    sublayers.append(Sublayer("final norm", None, after=final, module="layernorm"))
    W = w["embeddings.patch_embeddings.projection.weight"].transpose(2, 3, 1, 0)
    patches = Patches(
        W,
        w.get("embeddings.patch_embeddings.projection.bias"),
        w["embeddings.cls_token"][0, 0],
        w["embeddings.position_embeddings"][0],
    )
    return Model(name, tuple(sublayers), patches, len(patches.positions))
