"""From a network to plain tables, and their fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..layers.base import Layer
from ..layers.combine import Serial
from .calls import call_of, layer_paths, plain, weights_name
from .errors import NetworkFileError
from .expected import takes_list
from .kinds import Kind, kinds

FORMAT = 1
"""Version of the format. A default that changes in the library is a new version."""

_INSTEAD = {
    "Activation.fn": "use a named activation such as lf.Gelu() or lf.Polynomial(coefficients)",
    "RelativeBias.fn": "use lf.Alibi(slopes)",
    "decay": "use lf.OneHot() or lf.SquaredExponential(phi, rho)",
    "mask": "give the array mask=fn(S) for the longest length S",
}


def to_dict(net: Layer, *, types: Iterable[Any] = ()) -> dict[str, Any]:
    """A network as nested dictionaries and lists of strings, numbers and bools.

    What is at its default is left out. Every hyper-parameter is kept bit for bit; scalar arrays
    become Python numbers.

    Args:
        net: the network.
        types: classes of the caller's own layers that it holds.

    Raises:
        NetworkFileError: the network holds a Python function or an array of hyper-parameters; the
            message names the layer and what to use instead.

    Example:
        >>> import limitformer as lf
        >>> from limitformer.files import to_dict
        >>> to_dict(lf.Serial(lf.Dense(1.5), lf.Relu()))
        {'limitformer': 1, 'layers': [{'type': 'Dense', 'w_std': 1.5}, {'type': 'Relu'}]}
    """
    if not isinstance(net, Layer):
        raise TypeError(f"expected a network such as lf.Serial(...), got {net!r}")
    table = _Writer(kinds(tuple(types)), layer_paths(net)).table(net, type(net).__name__)
    if isinstance(net, Serial):
        table = {"layers": table.get("layers", [])}
    return {"limitformer": FORMAT, **table}


def digest(net: Layer, *, types: Iterable[Any] = ()) -> str:
    """SHA-256 of a network: of its `to_dict` as JSON with sorted keys.

    Two networks have the same digest exactly if their files say the same, on every platform.

    Args:
        net, types: as for `to_dict`, which says what is raised.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> import jax.numpy as jnp, limitformer as lf
        >>> from limitformer.files import digest
        >>> digest(lf.Dense(0.5)) == digest(lf.Dense(jnp.asarray(0.5)))
        True
    """
    table = to_dict(net, types=types)
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class _Writer:
    def __init__(self, known: dict[str, Kind], paths: dict[int, str]):
        self.known, self.paths = known, paths

    def table(self, module: eqx.Module, path: str) -> dict[str, Any]:
        path = self.paths.get(id(module), path)
        call = call_of(module, self.known, path)
        table: dict[str, Any] = {"type": call.kind.name}
        values = {k: self.value(v, k, call.kind, path) for k, v in call.written.items()}
        table |= sorted(values.items(), key=lambda pair: _holds_layers(pair[1]))
        if call.layers:
            table["layers"] = [self.table(layer, path) for layer in call.layers]
        return table

    def value(self, value: Any, name: str, kind: Kind, path: str) -> Any:
        named = weights_name(value) if name == "weights" else None
        if named is not None:
            return named
        if isinstance(value, eqx.Module):
            table = self.table(value, f"{path}.{name}")
            sequence = isinstance(value, Serial) and value.layers and not takes_list(kind, name)
            return table["layers"] if sequence else table
        value = plain(value)
        if isinstance(value, tuple):
            if is_mask(value):
                return ["".join("01"[seen] for seen in row) for row in value]
            items = [self.value(item, name, kind, path) for item in value]
            if _holds_layers(items) and not takes_list(kind, name):
                raise NetworkFileError(
                    f"{name} is a tuple of layers, but a file's list means layers in sequence; "
                    f"annotate the field of {kind.name} as a tuple",
                    path=path,
                )
            return items
        if isinstance(value, float):
            if math.isnan(value):
                raise NetworkFileError(f"{name} is not a number (nan)", path=path)
            return value if math.isfinite(value) else f"{value}"
        if isinstance(value, (bool, int, str)):
            return value
        raise NetworkFileError(f"{name} {_why_not(value, name, kind)}", path=path)


def is_mask(value: Any) -> bool:
    """Whether a value is rows of bools."""
    return bool(value) and all(
        isinstance(row, tuple) and row and all(isinstance(item, bool) for item in row)
        for row in value
    )


def _holds_layers(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_holds_layers, value)))


def _why_not(value: Any, name: str, kind: Kind) -> str:
    if isinstance(value, (jax.Array, np.ndarray)):
        if value.shape:
            return (
                f"is an array of shape {value.shape}, but a file holds one network; take one entry,"
                " jax.tree.map(lambda v: v[i], net), or write one file per entry"
            )
        return "is traced by a JAX transformation; write the network outside of jit, grad and vmap"
    if callable(value):
        given = getattr(value, "__name__", repr(value))
        advice = _INSTEAD.get(f"{kind.name}.{name}") or _INSTEAD.get(
            name, "make it an activation or layer class of your own and pass that as types="
        )
        return f"is a Python function ({given}), which a file cannot hold; {advice}"
    if value is None:
        return "is None, which is not its default and which a file cannot hold"
    return f"is {value!r}, which a file cannot hold; use numbers, strings, bools and lists of them"
