"""From tables and TOML text to a network, with errors that say where."""

from __future__ import annotations

import functools
import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import equinox as eqx

from ..layers.base import Layer
from ..layers.combine import Serial
from .errors import NetworkFileError, path_text
from .expected import as_written, check_argument, closest, takes_list
from .kinds import Kind, kinds
from .lines import lines_of
from .write import FORMAT

_HELD = (bool, int, float, str)


def load(path: str | os.PathLike[str], *, types: Iterable[Any] = ()) -> Layer:
    """The network of a TOML file. Nothing in the file is executed.

    Args:
        path: the file, UTF-8.
        types: the caller's own layers, activations or functions that give layers, to be known by
            their names beside limitformer's.

    Raises:
        NetworkFileError: with file name, line, place in the network and what was expected.
    """
    return loads(text_of(path), file=str(path), types=types)


def text_of(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file, or a `NetworkFileError` with the line that is not."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NetworkFileError(
            f"this is not UTF-8 text (byte {data[error.start]:#04x}); save the file as UTF-8",
            file=str(path),
            line=data.count(b"\n", 0, error.start) + 1,
        ) from None


def tables_of(text: str, file: str) -> dict[str, Any]:
    """The tables of TOML text, or a `NetworkFileError` with the line that is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _where_not_toml(str(error), text)
        raise NetworkFileError(f"this is not TOML: {message}", file=file, line=line) from None
    except RecursionError:
        raise NetworkFileError("tables and lists are nested too deep", file=file) from None


def loads(text: str, *, file: str = "<text>", types: Iterable[Any] = ()) -> Layer:
    """The network of TOML text.

    Args:
        text: the document.
        file: its name in errors.
        types: as for `load`.

    Raises:
        NetworkFileError: as for `load`.

    Example:
        >>> from limitformer.files import loads, one_line
        >>> one_line(loads('limitformer = 1\\n[[layers]]\\ntype = "Dense"\\nw_std = 1.5'))
        'Serial(Dense(1.5))'
    """
    tables = tables_of(text, file)
    return Reader(kinds(tuple(types)), file, text).network(tables)


def from_dict(tables: Mapping[str, Any], *, types: Iterable[Any] = ()) -> Layer:
    """The network of a dictionary such as `to_dict` gives.

    Args:
        tables: the dictionary.
        types: as for `load`.

    Raises:
        NetworkFileError: with the place in the network and what was expected.

    Example:
        >>> from limitformer.files import from_dict, one_line
        >>> one_line(from_dict({"limitformer": 1, "type": "Dense", "w_std": 1.5}))
        'Dense(1.5)'
    """
    if not isinstance(tables, Mapping):
        raise TypeError(f"expected a dictionary as to_dict gives it, got {tables!r}")
    return Reader(kinds(tuple(types)), None, None).network(tables)


def _where_not_toml(message: str, text: str) -> tuple[str, int]:
    place = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if place is None:
        return message.removesuffix(" (at end of document)"), text.rstrip("\n").count("\n") + 1
    return f"{message[: place.start()]} (column {place[2]})", int(place[1])


class Reader:
    """Makes layers of tables; `fail` raises with the line of a place in the text."""

    def __init__(self, known: dict[str, Kind], file: str | None, text: str | None):
        self.known, self.file, self.text = known, file, text

    @functools.cached_property
    def lines(self) -> dict[tuple, int]:
        return {} if self.text is None else lines_of(self.text)

    def fail(self, path: tuple, message: str) -> NoReturn:
        line, place = None, path
        if self.text is not None:
            while place and place not in self.lines:
                place = place[:-1]
            line = self.lines.get(place, 1)
        raise NetworkFileError(message, file=self.file, line=line, path=path_text(path))

    def network(self, tables: Mapping[str, Any]) -> Layer:
        """The network of a whole document; that of an experiment is its table `network`."""
        rest = self.checked_version(tables)
        inline = isinstance(rest.get("network"), Mapping) and "layers" not in rest
        return self.whole(rest["network"], ("network",)) if inline else self.whole(rest, ())

    def checked_version(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """The tables without the version of the format, which must be this one."""
        rest = dict(tables)
        if "limitformer" not in rest:
            self.fail((), f"expected the version of the format first: limitformer = {FORMAT}")
        version = rest.pop("limitformer")
        if isinstance(version, bool) or version != FORMAT:
            self.fail(
                ("limitformer",),
                f"the format is {version!r}, but this limitformer reads {FORMAT}; pip install -U "
                "limitformer gives the newest",
            )
        return rest

    def whole(self, rest: Mapping[str, Any], path: tuple) -> Layer:
        """The network of the tables at a place."""
        if "type" not in rest and "layers" not in rest:
            name = path_text((*path, "layers"))
            self.fail(path, f'expected layers: [[{name}]], then type = "Dense" and so on')
        try:
            net = self.layer({"type": "Serial", **rest}, path)
        except RecursionError:
            self.fail(path, "layers are nested too deep")
        if not isinstance(net, Layer):
            name = type(net).__name__
            self.fail(path, f"{name} belongs into a layer and is not a network itself")
        return net

    def layer(self, table: Mapping[str, Any], path: tuple) -> Any:
        kind = self.kind(table, path)
        for key in table:
            if key != "type" and key not in kind.arguments:
                takes = ", ".join(kind.arguments) or "no arguments"
                hint = closest(key, kind.arguments)
                self.fail((*path, key), f"unknown argument{hint}; {kind.name} takes {takes}")
        args = {
            k: self.value(table[k], (*path, k), takes_list(kind, k))
            for k in kind.parameters
            if k in table
        }
        for name, value in args.items():
            wrong = check_argument(kind, name, value)
            if wrong:
                self.fail((*path, name), f"{wrong}, got {as_written(table[name])}")
        missing = [name for name in kind.required if name not in args]
        if missing:
            self.fail(path, f"{kind.name} needs {', '.join(missing)}")
        layers = self.layers(table["layers"], (*path, "layers")) if "layers" in table else ()
        return self.made(kind, layers, args, path)

    def kind(self, table: Mapping[str, Any], path: tuple) -> Kind:
        name = table.get("type")
        if not isinstance(name, str):
            self.fail(path, 'expected type = "...", the name of a layer such as "Dense"')
        kind = self.known.get(name)
        if kind is None:
            hint = closest(name, self.known)
            hint = hint or "; known are " + ", ".join(sorted(self.known))
            self.fail((*path, "type"), f'no layer is called "{name}"{hint}')
        if "fn" in kind.required:
            instead = '"Gelu" or "Polynomial"' if name == "Activation" else '"Alibi"'
            self.fail(
                (*path, "type"),
                f"{name} takes a Python function, which a file cannot hold; use a named type such "
                f"as {instead}",
            )
        return kind

    def layers(self, items: Any, path: tuple) -> tuple[Layer, ...]:
        if not isinstance(items, (list, tuple)):
            self.fail(path, "expected a list of layers, each a table with a type")
        layers = [self.value(item, (*path, i)) for i, item in enumerate(items)]
        for i, layer in enumerate(layers):
            if isinstance(layer, eqx.Module) and not isinstance(layer, Layer):
                name = type(layer).__name__
                self.fail(
                    (*path, i), f"{name} is no layer by itself: it belongs into a layer's arguments"
                )
            if not isinstance(layer, Layer):
                self.fail(
                    (*path, i),
                    f'expected a layer, such as {{type = "Dense"}}, got {as_written(items[i])}',
                )
        return tuple(layers)

    def value(self, value: Any, path: tuple, listed: bool = False) -> Any:
        """A value of a table; a list of layers is their sequence, unless a list is wanted."""
        if isinstance(value, Mapping):
            return self.layer(value, path)
        if isinstance(value, (list, tuple)):
            if value and not listed and all(isinstance(item, Mapping) for item in value):
                return Serial(*self.layers(value, path))
            if value and all(isinstance(row, str) and re.fullmatch("[01]+", row) for row in value):
                return tuple(tuple(seen == "1" for seen in row) for row in value)
            return tuple(self.value(item, (*path, i)) for i, item in enumerate(value))
        if not isinstance(value, _HELD):
            self.fail(path, f"expected a number, string, bool, list or layer, got {value!r}")
        if isinstance(value, float) and math.isnan(value):
            self.fail(path, "nan is not a number")
        return float(value) if value in ("inf", "-inf") else value

    def made(self, kind: Kind, layers: tuple, args: dict[str, Any], path: tuple) -> Any:
        try:
            return kind.make(*layers, **args)
        except RecursionError:
            raise
        except Exception as error:
            message = str(error) or type(error).__name__
        blamed = _blamed(kind, layers, args)
        place = path if blamed is None else (*path, blamed)
        named = message if message.startswith(kind.name) else f"{kind.name}: {message}"
        self.fail(place, named)


def _blamed(kind: Kind, layers: tuple, args: dict[str, Any]) -> str | None:
    """The one argument that is at fault: without it the layer can be made, or it alone is left."""
    optional = [name for name in args if name not in kind.required]
    without = []
    for name in optional:
        try:
            kind.make(*layers, **{k: v for k, v in args.items() if k != name})
        except Exception:
            continue
        without.append(name)
    values = [n for n in kind.required if not isinstance(args[n], eqx.Module)]
    candidates = without or values
    return candidates[0] if len(candidates) == 1 else None
