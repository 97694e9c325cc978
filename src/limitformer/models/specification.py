"""Any other transformer, from a plain dictionary of arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from .spec import Attention, Embedding, Mlp, Model, Norm, Patches, Relative, Rotary, Sublayer

_NESTED = {
    "rotary": Rotary,
    "relative": Relative,
    "query_norm": Norm,
    "key_norm": Norm,
    "norm": Norm,
}
_TOP = ("name", "placement", "layers", "final", "embedding", "patches", "max_tokens")
_LAYER = ("attention", "mlp", "attention_norm", "mlp_norm")


def from_spec(spec: Mapping[str, Any], *, dtype=np.float64) -> Model:
    """A `Model` from a specification.

    Args:
        spec: a dictionary with

            - "layers": a list of {"attention": {...}, "mlp": {...}, "attention_norm": {...},
              "mlp_norm": {...}}, each of them optional, with the fields of `Attention`, `Mlp` and
              `Norm` as keys;
            - "placement": "pre" (default) or "post", where the norms stand;
            - "final": a norm at the end;
            - "embedding" or "patches": the fields of `Embedding` or `Patches`;
            - "name", "max_tokens".
        dtype: in which the model will be computed.

    Raises:
        ValueError: an unknown or missing key, a shape that does not fit, values not finite.

    Example:
        >>> W = np.zeros((2, 4, 2))
        >>> heads = {"W_Q": W, "W_K": W, "W_V": W, "W_O": np.zeros((2, 2, 4))}
        >>> from_spec({"layers": [{"attention": heads}], "name": "nothing"})
        Model('nothing', 1 attention layers, heads 2, width 4, float64)
    """
    _check_keys(spec, _TOP, "the specification")
    placement = spec.get("placement", "pre")
    if placement not in ("pre", "post"):
        raise ValueError(f'placement must be "pre" or "post", got {placement!r}')
    where = {"pre": "before", "post": "after"}[placement]
    sublayers = []
    for i, layer in enumerate(spec.get("layers", ())):
        _check_keys(layer, _LAYER, f"layer {i}")
        for kind, make, label in (("attention", Attention, "attention"), ("mlp", Mlp, "MLP")):
            if kind not in layer:
                continue
            at = f"layer {i} {label}"
            norm = layer.get(f"{kind}_norm")
            norms = {} if norm is None else {where: _build(Norm, norm, f"{at} norm", dtype)}
            sublayers.append(Sublayer(at, _build(make, layer[kind], at, dtype), **norms))
    if spec.get("final") is not None:
        final = _build(Norm, spec["final"], "final norm", dtype)
        sublayers.append(Sublayer("final norm", None, after=final))
    embedding = None
    if "embedding" in spec:
        embedding = _build(Embedding, spec["embedding"], "embedding", dtype)
    elif "patches" in spec:
        embedding = _build(Patches, spec["patches"], "patches", dtype)
    name = spec.get("name", "specification")
    return Model(name, tuple(sublayers), embedding, spec.get("max_tokens"))


def _build(kind: type, given: Mapping[str, Any], at: str, dtype) -> Any:
    """A part of a model from a dictionary of its fields."""
    fields = dataclasses.fields(kind)
    _check_keys(given, [field.name for field in fields], at)
    required = [f.name for f in fields if f.default is dataclasses.MISSING]
    missing = [name for name in required if name not in given]
    if missing:
        raise ValueError(f"{at} needs {', '.join(missing)}")
    values = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            value = _build(_NESTED[name], value, f"{at} {name}", dtype)
        elif value is not None and not isinstance(value, bool | int | float | str):
            value = np.asarray(value).astype(dtype)
        values[name] = value
    return kind(**values)


def _check_keys(given: Any, known, at: str) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{at} must be a dictionary, got {type(given).__name__}")
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(f"{at} has unknown keys {unknown}; known are {', '.join(known)}")
