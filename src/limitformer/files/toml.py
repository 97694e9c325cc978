"""Networks as TOML text: a small writer for the tables that networks are made of."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from ..layers.base import Layer
from .write import to_dict

_WIDTH = 88
_STEP = "  "


def to_toml(net: Layer, *, types: Iterable[Any] = ()) -> str:
    """A network as TOML that people can read and change; `loads` gives the same network.

    Args:
        net, types: as for `to_dict`, which says what is raised.

    Example:
        >>> import limitformer as lf
        >>> from limitformer.files import to_toml
        >>> print(to_toml(lf.Serial(lf.Dense(1.5), lf.Residual(lf.LayerNorm(), lf.Attention()))))
        limitformer = 1  # version of the format
        <BLANKLINE>
        [[layers]]
        type = "Dense"
        w_std = 1.5
        <BLANKLINE>
        [[layers]]
        type = "Residual"
        layers = [{type = "LayerNorm"}, {type = "Attention"}]
        <BLANKLINE>
    """
    table = to_dict(net, types=types)
    layers = table.pop("layers", None)
    lines = [f"limitformer = {table.pop('limitformer')}  # version of the format"]
    lines += _pairs(table)
    if layers == []:
        lines.append("layers = []")
    for layer in layers or ():
        lines += ["", "[[layers]]", *_pairs(layer)]
    return "\n".join(lines) + "\n"


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value, '', len(key) + 3)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _string(value) if isinstance(value, str) else repr(value)


def _value(value: Any, indent: str, used: int = 0) -> str:
    """A value, with lists broken over lines where it is long (tables may not be, lists may)."""
    line = _inline(value)
    picture = isinstance(value, list) and len(value) > 1 and isinstance(value[0], str)
    if len(indent) + used + len(line) <= _WIDTH and not picture:
        return line
    if isinstance(value, dict):
        pairs = (f"{_key(k)} = {_value(v, indent, _WIDTH // 2)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if not isinstance(value, list) or not value:
        return line
    deeper = indent + _STEP
    if all(isinstance(item, (int, float)) for item in value):
        rows = textwrap.wrap(line[1:-1] + ",", _WIDTH - len(deeper), break_on_hyphens=False)
    else:
        rows = [_value(item, deeper, 1) + "," for item in value]
    return "\n".join(["[", *(deeper + row for row in rows), indent + "]"])
