"""Randomly initialised models: what a trained one is compared with."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from .plan import plan_of
from .spec import Model
from .specification import from_spec
from .weights import map_arrays


def reinitialised(model: Model, *, key, std: float | None = None) -> Model:
    """The same model with its weights drawn anew: N(0, std^2), biases 0, gains 1.

    Args:
        model: of any architecture.
        key: of the weights.
        std: None takes the configuration's `initializer_range`, or 0.02. Per-matrix rules, such as
            GPT-2's smaller last matrices, are left out; `initial` has them.
    """
    own = (model.config or {}).get("initializer_range", 0.02)
    size = own if std is None else std
    rng = _generator(key)

    def draw(name: str, w: np.ndarray) -> np.ndarray:
        leaf = name.rsplit(".", 1)[-1]
        if leaf == "gain":
            return np.ones_like(w)
        if leaf == "frequencies":
            return w
        if leaf in ("b", "bias", "projection_bias") or leaf.startswith("b_"):
            return np.zeros_like(w)
        kind = np.float32 if w.dtype == np.float32 else np.float64
        return (size * rng.standard_normal(w.shape, dtype=kind)).astype(w.dtype)

    return dataclasses.replace(
        model,
        name=f"{model.name}, initial",
        sublayers=tuple(map_arrays(s, draw) for s in model.sublayers),
        embedding=None if model.embedding is None else map_arrays(model.embedding, draw),
    )


def initial(config: Any, *, key, tokens: int = 512, vocabulary: int = 1000) -> Model:
    """A randomly initialised model of a configuration's own size, to run and take apart.

    The finite network of which `limit_of` is the limit.

    Args:
        config: as for `limit_of`, token models only.
        key: of the weights.
        tokens: longest input.
        vocabulary: rows of the table of tokens; at initialisation all are alike.

    Raises:
        ValueError: as `limit_of`, or a model of images.
    """
    p = plan_of(config)
    if p.patch is not None:
        raise ValueError(f"{p.kind} reads images; initial makes models of token ids")
    rng = _generator(key)
    d, H, m, dk = p.width, p.heads, p.hidden, p.channels
    groups = p.key_heads or H

    def draw(*shape: int, std: float = p.std) -> np.ndarray:
        return std * rng.standard_normal(shape)

    unit = {"gain": np.ones(d), "bias": np.zeros(d), "eps": p.eps}
    rotary = None
    if p.gated:
        unit = {"gain": np.ones(d), "centred": False, "eps": p.eps}
        rotary = {"frequencies": p.base ** (-np.arange(0, dk, 2) / dk)}
    layers = [
        {
            "attention": {
                "W_Q": draw(H, d, dk),
                "W_K": draw(groups, d, dk),
                "W_V": draw(groups, d, dk),
                "W_O": draw(H, dk, d, std=p.last_std),
                "causal": p.causal,
                "rotary": rotary,
            },
            "mlp": {
                "W_in": draw(d, m),
                "W_out": draw(m, d, std=p.last_std),
                "W_gate": draw(d, m) if p.gated else None,
                "activation": p.activation,
            },
            "attention_norm": unit,
            "mlp_norm": unit,
        }
        for _ in range(p.depth)
    ]
    table = {
        "tokens": draw(vocabulary, d),
        "positions": None if p.gated else draw(tokens, d),
        "types": draw(d) if p.types else None,
        "norm": unit if p.input_norm else None,
    }
    spec = {
        "name": f"{p.kind}, initial",
        "placement": p.placement,
        "layers": layers,
        "final": unit if p.final_norm else None,
        "embedding": table,
        "max_tokens": tokens,
    }
    return from_spec(spec)


def _generator(key) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
