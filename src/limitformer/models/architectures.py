"""From a configuration and named weights, as Hugging Face writes them, to a `Model`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import bert, gpt, llama, vit, xlnet
from .named import Named
from .spec import Model

ARCHITECTURES: dict[str, Callable[[Mapping[str, Any], Named, str], Model]] = {
    "bert": bert.bert,
    "roberta": bert.bert,
    "distilbert": bert.distilbert,
    "albert": bert.albert,
    "gpt2": gpt.gpt2,
    "opt": gpt.opt,
    "llama": llama.llama,
    "mistral": llama.llama,
    "qwen2": llama.llama,
    "qwen3": llama.llama,
    "vit": vit.vit,
    "xlnet": xlnet.xlnet,
}

# A weight that every checkpoint of the type has: what stands before its name is the prefix.
_LANDMARKS: dict[str, Sequence[str]] = {
    "gpt2": ("wte.weight",),
    "opt": ("decoder.embed_tokens.weight",),
    "llama": ("embed_tokens.weight",),
    "mistral": ("embed_tokens.weight",),
    "qwen2": ("embed_tokens.weight",),
    "qwen3": ("embed_tokens.weight",),
    "vit": ("embeddings.patch_embeddings.projection.weight",),
    "xlnet": ("word_embedding.weight",),
}


def from_config(
    config: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    *,
    dtype=np.float64,
    name: str | None = None,
) -> Model:
    """A `Model` from a configuration and its weights by name.

    Args:
        config: as in `config.json`; its `model_type` says which architecture.
        weights: arrays by their names in the checkpoint; a prefix such as "bert." is found.
        dtype: in which the model will be computed.
        name: for reports; the configuration's `_name_or_path` or type by default.

    Raises:
        ValueError: the type is unknown, or a weight is missing, misshapen or not finite.
    """
    kind = str(config.get("model_type"))
    if kind not in ARCHITECTURES:
        raise ValueError(
            f"unknown model_type {kind!r}; known are {', '.join(ARCHITECTURES)}. Any other model "
            "can be given as a specification: limitformer.models.from_spec"
        )
    landmark = _LANDMARKS.get(kind, ("embeddings.word_embeddings.weight",))[0]
    named = Named.find(weights, landmark, np.dtype(dtype))
    made = ARCHITECTURES[kind](config, named, name or str(config.get("_name_or_path") or kind))
    return dataclasses.replace(made, config=dict(config))
