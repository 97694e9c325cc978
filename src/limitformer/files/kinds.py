"""What may stand after `type =`: every layer, position scheme, activation and ready-made network.

The names are those of `limitformer` itself, so a new layer is known here as soon as it is public,
and its arguments are those of its constructor. A file can name nothing else: reading one imports
nothing and runs no code of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import equinox as eqx

from .. import duals
from ..layers.activation import Activation
from ..layers.base import Layer

_HOME = "limitformer.layers."
_EMPTY = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """A layer type.

    Attributes:
        name: what stands in the file.
        make: builds it, from layers in sequence and keyword arguments.
        cls: whose instances are written under this name, None for functions such as `Block`.
        parameters: its arguments by name, in order, without the sequence of layers.
        takes_layers: whether it is made of a sequence, `*layers`.
        hints: annotations of the arguments, where there are any.
    """

    name: str
    make: Callable[..., Any]
    cls: type | None
    parameters: dict[str, inspect.Parameter]
    takes_layers: bool
    hints: dict[str, Any]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Every key that a table of this type may have, beside `type`."""
        return (*self.parameters, *(("layers",) if self.takes_layers else ()))

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.parameters.items() if p.default is _EMPTY)


@functools.cache
def kinds(types: tuple[Any, ...] = ()) -> dict[str, Kind]:
    """Every known type by name.

    Args:
        types: the caller's own layers, activations (`duals.Dual`) or functions that give layers.
    """
    import limitformer as lf

    public = [getattr(lf, name) for name in lf.__all__]
    things = [thing for thing in public if _is_ours(thing)]
    things += [getattr(duals, name) for name in duals.__all__ if _is_dual(getattr(duals, name))]
    found = {thing.__name__: _kind(thing) for thing in things}
    for thing in types:
        if not callable(thing) or not hasattr(thing, "__name__"):
            raise TypeError(f"types must be classes or functions that give layers, got {thing!r}")
        if thing.__name__ in found:
            raise ValueError(f"{thing.__name__} is the name of another type; rename your own")
        found[thing.__name__] = _kind(thing)
    return found


def _is_ours(thing: Any) -> bool:
    home = getattr(thing, "__module__", "")
    if not home.startswith(_HOME) or home == _HOME + "named" or thing is Layer:
        return False
    return inspect.isfunction(thing) or (isinstance(thing, type) and issubclass(thing, eqx.Module))


def _is_dual(thing: Any) -> bool:
    if not isinstance(thing, type) or not issubclass(thing, duals.Dual):
        return False
    return thing not in (duals.Dual, duals.Generic)


def _kind(thing: Any) -> Kind:
    """Introspect a class or function."""
    signature, source, make = inspect.signature(thing), thing, thing
    if thing is Activation:  # its arguments are those of the quadrature that it makes
        source = duals.Generic
        signature = inspect.signature(source)
        fn, *rest = signature.parameters.values()
        signature = signature.replace(parameters=[fn.replace(name="fn"), *rest])
    elif _is_dual(thing):
        make = functools.partial(_activation, thing)
    kept, takes_layers = {}, False
    for name, parameter in signature.parameters.items():
        if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            takes_layers = True
        elif name == "type":
            raise TypeError(f"{thing.__name__} has an argument `type`, which files use; rename it")
        elif parameter.kind != inspect.Parameter.VAR_KEYWORD:
            kept[name] = parameter
    try:
        hints = typing.get_type_hints(source)
    except (NameError, TypeError):  # names known to a type checker only
        hints = {}
    cls = thing if isinstance(thing, type) else None
    return Kind(thing.__name__, make, cls, kept, takes_layers, hints)


def _activation(dual: Callable[..., duals.Dual], **args: Any) -> Activation:
    """The activation layer of a dual; duals among its arguments come as layers too."""
    bare = {k: v.dual if isinstance(v, Activation) else v for k, v in args.items()}
    return Activation(dual(**bare))
