"""A network on one line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .. import duals
from ..layers.activation import Activation
from ..layers.base import Layer
from .calls import call_of, weights_name
from .errors import NetworkFileError
from .kinds import Kind, kinds
from .write import is_mask, to_dict


def one_line(net: Layer, *, code: bool = False, types: Iterable[Any] = ()) -> str:
    """A network as the call that makes it, without what is at its default.

    Args:
        net: the network.
        code: an expression that gives the same network after `import limitformer as lf`, instead
            of a short form for people, which shows functions and arrays by their name and shape.
        types: as for `to_dict`; the short form needs none.

    Raises:
        NetworkFileError: for `code`, as `to_dict`.

    Example:
        >>> import limitformer as lf
        >>> from limitformer.files import one_line
        >>> net = lf.Serial(lf.Dense(1.5, 0.2), lf.Residual(lf.LayerNorm(), lf.Attention()))
        >>> one_line(net)
        'Serial(Dense(1.5, 0.2), Residual(LayerNorm(), Attention()))'
        >>> one_line(lf.Dense(1.5), code=True)
        'lf.Dense(1.5)'
    """
    types = tuple(types)
    if code:
        to_dict(net, types=types)  # raises for what cannot be written
    return _Line(kinds(types), code).module(net)


def argument_text(value: Any, name: str, known: dict[str, Kind]) -> str:
    """An argument in the short form of `one_line`."""
    return _Line(known, False).value(value, name)


class _Line:
    def __init__(self, known: dict[str, Kind], code: bool):
        self.known, self.code = known, code

    def module(self, module: eqx.Module) -> str:
        try:
            call = call_of(module, self.known)
        except NetworkFileError:  # somebody's own layer
            return f"{type(module).__name__}(...)"
        parts = [self.module(layer) for layer in call.layers]
        in_order = [n for n, p in call.kind.parameters.items() if p.kind != p.KEYWORD_ONLY]
        for i, (name, value) in enumerate(call.written.items()):
            text = self.value(value, name)
            leading = (
                not call.kind.takes_layers and in_order[: i + 1] == list(call.written)[: i + 1]
            )
            named = not leading or isinstance(value, bool) or value is None
            parts.append(f"{name}={text}" if named else text)
            if named:
                in_order = []  # what follows is named too
        text = f"{call.kind.name}({', '.join(parts)})"
        return self.qualified(text, module) if self.code else text

    def qualified(self, text: str, module: eqx.Module) -> str:
        """An expression with its name as `import limitformer as lf` gives it."""
        import limitformer as lf

        name = text.partition("(")[0]
        dual = f"lf.duals.{text}" if hasattr(duals, name) else text
        if isinstance(module, duals.Dual):
            return dual
        if name in lf.__all__:
            return f"lf.{text}"
        return f"lf.Activation({dual})" if isinstance(module, Activation) else text

    def value(self, value: Any, name: str) -> str:
        named = weights_name(value) if name == "weights" else None
        if named is not None:
            return json.dumps(named)
        if isinstance(value, eqx.Module):
            return self.module(value)
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, float) and value in (float("inf"), -float("inf")):
            return ("lf." if self.code else "") + "inf" if value > 0 else f'float("{value}")'
        if isinstance(value, tuple):
            if is_mask(value) and not self.code:
                return f"<{len(value)} x {len(value[0])}>"
            items = [self.value(item, name) for item in value]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if isinstance(value, (jax.Array, np.ndarray)):
            return f"<{value.dtype} {value.shape}>"
        return getattr(value, "__name__", None) or repr(value)
