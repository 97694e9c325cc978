"""A layer as the call that makes it: its type and the arguments that are not at their defaults.

Arguments are read from the fields of the same name. What a constructor stores elsewhere is listed
in `_STORED`, the only place with rules for single layers. An argument is left out if a layer made
without it has the same field; every call is checked by making the layer again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .. import duals
from ..layers.activation import Activation
from ..layers.attention_scores import Softmax
from ..layers.base import Composite, Layer
from ..layers.combine import Residual, Sum
from ..layers.position import Decay
from ..layers.residual_attention import ResidualAttention
from .errors import NetworkFileError
from .kinds import Kind

_STORED: dict[tuple[type, str], Callable[[Any], Any]] = {
    (Residual, "layers"): lambda layer: layer.body.layers,
    (Sum, "layers"): lambda layer: () if layer.branches is None else layer.branches.layers,
    (ResidualAttention, "decay"): lambda layer: layer.position.decay,
    (duals.Generic, "fn"): lambda dual: dual.function,
}
_MISSING = object()


@dataclasses.dataclass(frozen=True)
class Call:
    """`kind(*layers, **written)`.

    Attributes:
        kind: the layer's type.
        layers: the layers in sequence that it is made of.
        arguments: every argument with its value.
        written: those that differ from their defaults.
    """

    kind: Kind
    layers: tuple[Layer, ...]
    arguments: dict[str, Any]
    written: dict[str, Any]


def call_of(module: eqx.Module, known: dict[str, Kind], path: str = "") -> Call:
    """The call that makes a layer.

    Raises:
        NetworkFileError: the type is not known, or its arguments cannot be told from its fields.
    """
    module = Activation(module) if isinstance(module, duals.Dual) else module
    source = module.dual if isinstance(module, Activation) else module
    name = "Activation" if isinstance(source, duals.Generic) else type(source).__name__
    kind = known.get(name)
    if kind is None or kind.cls not in (type(source), type(module)):
        raise NetworkFileError(
            f"{name} is not one of limitformer's layers; pass the class along as "
            f"types=({name},), to read and to write",
            path=path,
        )
    values = {argument: _stored(source, argument) for argument in kind.arguments}
    lost = [argument for argument, value in values.items() if value is _MISSING]
    if lost:
        raise NetworkFileError(
            f"{name} does not keep its argument {lost[0]!r} in a field of that name; store it, so "
            "that the layer can be written",
            path=path,
        )
    layers = values.pop("layers") if kind.takes_layers else ()
    for written in (_changed(kind, layers, values, source), _given(values)):
        if _makes(kind, layers, written, module):
            return Call(kind, layers, values, written)
    raise NetworkFileError(
        f"{name} made again from the arguments in its fields is another layer; store the arguments "
        "as they were given, so that the layer can be written",
        path=path,
    )


def _stored(source: Any, argument: str) -> Any:
    """The argument that a layer was made with: a Python number rather than a scalar array."""
    read = _STORED.get((type(source), argument))
    value = getattr(source, argument, _MISSING) if read is None else read(source)
    return value if argument == "layers" else plain(value)


def _changed(kind: Kind, layers, values: dict[str, Any], source) -> dict[str, Any]:
    """The arguments whose fields differ from those of a layer without them."""
    required = {name: values[name] for name in kind.required}
    try:
        bare = kind.make(*layers, **required)
    except Exception:  # some argument must be given
        return _given(values)
    bare = bare.dual if isinstance(bare, Activation) else bare
    return {
        name: value
        for name, value in values.items()
        if name in required or exact(value) != exact(_stored(bare, name))
    }


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _makes(kind: Kind, layers, written: dict[str, Any], module: eqx.Module) -> bool:
    try:
        return exact(kind.make(*layers, **written)) == exact(module)
    except Exception:
        return False


def plain(value: Any) -> Any:
    """Scalar arrays and NumPy numbers as the Python number of the same value, bit for bit."""
    if isinstance(value, np.generic) or (
        isinstance(value, (jax.Array, np.ndarray)) and value.shape == ()
    ):
        try:
            return value.item()
        except TypeError:  # traced
            return value
    if isinstance(value, (tuple, list)):
        if set(map(type, value)) <= {bool}:  # a row of a mask, of which there can be many
            return tuple(value)
        return tuple(plain(item) for item in value)
    return value.fn if isinstance(value, Decay) else value


def exact(value: Any) -> Any:
    """Equal exactly for values that are the same to the last bit, array types apart."""
    value = plain(value)
    if isinstance(value, eqx.Module):
        fields = dataclasses.fields(value)
        return (type(value), *(exact(getattr(value, field.name)) for field in fields))
    if isinstance(value, tuple):
        if set(map(type, value)) <= {bool}:
            return value
        return tuple(exact(item) for item in value)
    if isinstance(value, float):
        return float, value.hex()  # tells 0.0 from -0.0 and knows nan
    if isinstance(value, (jax.Array, np.ndarray)):
        try:
            return value.shape, str(value.dtype), np.asarray(value).tobytes()
        except TypeError:
            return id(value)
    return type(value), value


def weights_name(value: Any) -> str | None:
    """Attention weights that have a name: "softmax", or an activation without options."""
    if isinstance(value, Softmax):
        return "softmax"
    if isinstance(value, Activation):
        for name, dual in duals.DUALS.items():
            if type(value.dual) is dual and name not in ("generic", "polynomial"):
                return name if exact(value.dual) == exact(dual()) else None  # pyright: ignore[reportCallIssue]
    return None


def layer_paths(net: Layer) -> dict[int, str]:
    """The path of every layer, as in `net.trace` and `net.plan`, by the layer's id."""
    found: dict[int, str] = {}

    def visit(layer: Layer, path: str) -> None:
        found.setdefault(id(layer), path or type(layer).__name__)
        if isinstance(layer, Composite):
            for name, child in layer.children().items():
                visit(child, f"{path}/{name}" if path else name)

    visit(net, "")
    return found
