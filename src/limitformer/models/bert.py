"""BERT, RoBERTa, DistilBERT and ALBERT: post-norm encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .named import Named, pair
from .spec import Embedding, Model, Sublayer


def bert(config: Mapping[str, Any], w: Named, name: str) -> Model:
    """BERT and RoBERTa, which counts positions from the padding id on."""
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(
            f"{name}: position_embedding_type {config['position_embedding_type']!r} is not "
            "supported; supported is 'absolute'"
        )
    if config.get("is_decoder"):
        raise ValueError(f"{name} is a decoder (is_decoder); supported are BERT encoders")
    eps, heads = config.get("layer_norm_eps", 1e-12), config["num_attention_heads"]
    sublayers: list[Sublayer] = []
    for i in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{i}"
        modules = (f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm")
        parts = ("self.query", "self.key", "self.value", "output.dense")
        attention = w.attention([f"{at}.attention.{part}" for part in parts], heads)
        mlp = w.mlp(f"{at}.intermediate.dense", f"{at}.output.dense", config["hidden_act"])
        norms = (w.norm(modules[0], eps), w.norm(modules[1], eps))
        sublayers += pair(i, attention, mlp, norms, modules, "post")
    roberta = config["model_type"] == "roberta"
    return _encoder(name, sublayers, w, eps, config["pad_token_id"] + 1 if roberta else 0)


def distilbert(config: Mapping[str, Any], w: Named, name: str) -> Model:
    """DistilBERT: BERT without segment codes."""
    sublayers: list[Sublayer] = []
    for i in range(config["n_layers"]):
        at = f"transformer.layer.{i}"
        modules = (f"{at}.sa_layer_norm", f"{at}.output_layer_norm")
        maps = [f"{at}.attention.{part}_lin" for part in ("q", "k", "v", "out")]
        attention = w.attention(maps, config["n_heads"])
        mlp = w.mlp(f"{at}.ffn.lin1", f"{at}.ffn.lin2", config.get("activation", "gelu"))
        norms = (w.norm(modules[0], 1e-12), w.norm(modules[1], 1e-12))
        sublayers += pair(i, attention, mlp, norms, modules, "post")
    return _encoder(name, sublayers, w, 1e-12)


def albert(config: Mapping[str, Any], w: Named, name: str) -> Model:
    """ALBERT: layers of a group share their weights, and embeddings are projected."""
    eps, heads = config.get("layer_norm_eps", 1e-12), config["num_attention_heads"]
    depth, groups = config["num_hidden_layers"], config.get("num_hidden_groups", 1)
    inner = config.get("inner_group_num", 1)
    made = {}
    for g in range(groups):
        for j in range(inner):
            at = f"encoder.albert_layer_groups.{g}.albert_layers.{j}"
            modules = (f"{at}.attention.LayerNorm", f"{at}.full_layer_layer_norm")
            maps = [f"{at}.attention.{part}" for part in ("query", "key", "value", "dense")]
            made[g, j] = (
                w.attention(maps, heads),
                w.mlp(f"{at}.ffn", f"{at}.ffn_output", config["hidden_act"]),
                (w.norm(modules[0], eps), w.norm(modules[1], eps)),
                modules,
            )
    order = [(layer * groups // depth, j) for layer in range(depth) for j in range(inner)]
    sublayers: list[Sublayer] = []
    for i, key in enumerate(order):
        attention, mlp, norms, modules = made[key]
        sublayers += pair(i, attention, mlp, norms, modules, "post")
    return _encoder(name, sublayers, w, eps)


def _encoder(name: str, sublayers: list[Sublayer], w: Named, eps: float, offset: int = 0) -> Model:
    at = "embeddings"
    positions = w.table(f"{at}.position_embeddings.weight")
    types, projection, bias = f"{at}.token_type_embeddings.weight", None, None
    if "encoder.embedding_hidden_mapping_in.weight" in w:
        projection, bias = w.linear("encoder.embedding_hidden_mapping_in")
    embedding = Embedding(
        w.table(f"{at}.word_embeddings.weight"),
        positions,
        w[types][0] if types in w else None,
        w.norm(f"{at}.LayerNorm", eps),
        offset,
        projection,
        bias,
    )
    return Model(name, tuple(sublayers), embedding, len(positions) - offset)
