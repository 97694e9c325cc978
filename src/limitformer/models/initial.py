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

    Weights that layers share are drawn once.

    Args:
        model: of any architecture.
        key: of the weights.
        std: None takes the configuration's `initializer_range`, or 0.02. Per-matrix rules, such as
            GPT-2's smaller last matrices, are left out; `initial` has them.
    """
    own = (model.config or {}).get("initializer_range", 0.02)
    size = own if std is None else std
    rng = _generator(key)
    drawn: dict[int, np.ndarray] = {}

    def draw(name: str, w: np.ndarray) -> np.ndarray:
        if id(w) not in drawn:
            drawn[id(w)] = fresh(name.rsplit(".", 1)[-1], w)
        return drawn[id(w)]

    def fresh(leaf: str, w: np.ndarray) -> np.ndarray:
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

    def norm(channels: int = d) -> dict:
        gain = {"gain": np.ones(channels), "eps": p.eps}
        return gain | ({"centred": False} if p.gated else {"bias": np.zeros(channels)})

    rotary = {"frequencies": p.base ** (-np.arange(0, dk, 2) / dk)} if p.gated else None
    by_head = norm(dk) if p.qk_norm else None
    distinct = p.distinct or p.depth
    layers = [
        {
            "attention": {
                "W_Q": draw(H, d, dk),
                "W_K": draw(groups, d, dk),
                "W_V": draw(groups, d, dk),
                "W_O": draw(H, dk, d, std=p.last_std),
                "causal": p.causal,
                "rotary": rotary,
                "query_norm": by_head,
                "key_norm": by_head,
            },
            "mlp": {
                "W_in": draw(d, m),
                "W_out": draw(m, d, std=p.last_std),
                "W_gate": draw(d, m) if p.gated else None,
                "activation": p.activation,
            },
            "attention_norm": norm(),
            "mlp_norm": norm(),
        }
        for _ in range(distinct)
    ]
    e = p.table or d
    table = {
        "tokens": draw(vocabulary, e),
        "positions": None if p.gated else draw(tokens, e),
        "types": draw(e) if p.types else None,
        "norm": norm(e) if p.input_norm else None,
        "projection": None if p.table is None else draw(e, d),
    }
    spec = {
        "name": f"{p.kind}, initial",
        "placement": p.placement,
        "layers": [layers[i * distinct // p.depth] for i in range(p.depth)],
        "final": norm() if p.final_norm else None,
        "embedding": table,
        "max_tokens": tokens,
    }
    return from_spec(spec)


def _generator(key) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
