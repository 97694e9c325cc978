"""Experiments in TOML files: a network, data, and the settings of commands.

    limitformer = 1            # version of the format

    [network]                  # file = "net.toml", or layers as in a network file
    file = "net.toml"

    [data]
    x = "train.npz:x"
    y = "train.npz:y"

    [fit]                      # the options of a command, by its name
    noise = 0.01

Which sections and keys there are is a schema that the caller gives; everything else in the file is
an error with its line. Paths are relative to the file.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .expected import as_written, closest
from .read import Reader, tables_of, text_of

_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a string"}


@dataclasses.dataclass(frozen=True)
class Key:
    """What a key of a section may be.

    Attributes:
        types: of its value: of `str`, `int`, `float`, `bool`.
        choices: the strings that it may be; empty: any.
        path: whether its strings are paths, which are relative to the file.
    """

    types: tuple[type, ...]
    choices: tuple[str, ...] = ()
    path: bool = False

    def wrong(self, value: Any) -> str | None:
        """What was expected instead of a value, None if it fits."""
        if isinstance(value, str) and self.choices and value not in self.choices:
            return "expected " + " or ".join(f'"{choice}"' for choice in self.choices)
        numeric = isinstance(value, int) and not isinstance(value, bool) and float in self.types
        if type(value) in self.types or numeric:
            return None
        return "expected " + " or ".join(_WORDS[kind] for kind in _WORDS if kind in self.types)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment file; made by `read_experiment`.

    Attributes:
        path: the file.
        network: the network's file (this one if it holds the layers), None without a network.
        sections: settings by section, without `network`; paths are resolved.
    """

    path: Path
    network: str | None
    sections: dict[str, dict[str, Any]]


def read_experiment(
    path: str | os.PathLike[str], schema: Mapping[str, Mapping[str, Key]]
) -> Experiment:
    """Read and check an experiment.

    Args:
        path: the file, UTF-8.
        schema: the keys of every section beside `network`.

    Raises:
        NetworkFileError: with file name, line, place and what was expected.
    """
    text = text_of(path)
    tables = tables_of(text, str(path))
    reader = Reader({}, str(path), text)
    rest = reader.checked_version(tables)
    network = _network(reader, rest.pop("network", None), Path(path))
    sections: dict[str, dict[str, Any]] = {}
    for name, section in rest.items():
        if name not in schema:
            known = ", ".join(("network", *schema))
            hint = closest(name, ("network", *schema))
            reader.fail((name,), f"unknown section{hint}; an experiment has {known}")
        if not isinstance(section, Mapping):
            reader.fail((name,), f"expected a table, [{name}], got {as_written(section)}")
        sections[name] = {
            key: _value(reader, (name, key), value, schema[name], Path(path).parent)
            for key, value in section.items()
        }
    return Experiment(Path(path), network, sections)


def _network(reader: Reader, table: Any, path: Path) -> str | None:
    if table is None:
        return None
    if not isinstance(table, Mapping):
        reader.fail(
            ("network",),
            f'expected a table, [network], got {as_written(table)}; write file = "..."',
        )
    if "file" not in table:
        return str(path)  # its layers are checked when the network is loaded
    if len(table) > 1 or not isinstance(table["file"], str):
        other = next((key for key in table if key != "file"), "file")
        reader.fail(
            ("network", other), 'expected either file = "net.toml" alone, or layers, not both'
        )
    return str(path.parent / table["file"])


def _value(reader: Reader, place: tuple, value: Any, keys: Mapping[str, Key], folder: Path) -> Any:
    name, key = place
    if key not in keys:
        known = ", ".join(keys) or "no keys"
        reader.fail(place, f"unknown key{closest(key, keys)}; [{name}] takes {known}")
    wrong = keys[key].wrong(value)
    if wrong is not None:
        reader.fail(place, f"{wrong}, got {as_written(value)}")
    if keys[key].path and isinstance(value, str) and not Path(value).is_absolute():
        return str(folder / value)
    return value
