"""The schema of network files, for editors that complete and check TOML by a JSON Schema."""

from __future__ import annotations

from typing import Any

from .expected import judged, takes_list
from .kinds import Kind, kinds
from .write import FORMAT

_JSON = {
    float: {"type": ["number", "string"]},  # "inf" is a string
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    tuple: {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]},
    type(None): None,
}
_LAYER = {"$ref": "#/$defs/layer"}
_LAYERS = {"type": "array", "items": _LAYER}


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a network file.

    It knows the types of layers, their arguments and which of them are needed. What else an
    argument must satisfy, only `lf.load` knows.

    Example:
        >>> sorted(schema()["$defs"]["Dense"]["properties"])
        ['b_std', 'parametrisation', 'type', 'w_std', 'width']
    """
    known = kinds()
    version = {"limitformer": {"const": FORMAT}}
    whole = {
        "type": "object",
        "properties": version | {"layers": _LAYERS},
        "required": ["limitformer", "layers"],
        "additionalProperties": False,
    }
    single = [_of(kind, version) for kind in known.values()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "limitformer network",
        "anyOf": [whole, *single],
        "$defs": {
            "layer": {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in known]},
            **{name: _of(kind, {}) for name, kind in known.items()},
        },
    }


def _of(kind: Kind, more: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {"type": {"const": kind.name}}
    properties |= {name: _value(kind, name) for name in kind.parameters}
    if kind.takes_layers:
        properties["layers"] = _LAYERS
    return {
        "type": "object",
        "properties": more | properties,
        "required": ["type", *more, *kind.required],
        "additionalProperties": False,
    }


def _value(kind: Kind, name: str) -> dict[str, Any]:
    """What an argument may be; anything, where only its constructor can tell."""
    members = judged(kind, name)
    if members is None or takes_list(kind, name):
        return {}
    return {"anyOf": [_JSON[member] for member in members if _JSON[member] is not None]}
