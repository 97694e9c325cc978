"""Experiment files as options of commands: the schema comes from the commands themselves."""

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limitformer.files.experiment import Key

SHELL = ("net", "force", "picture", "toml")  # not settings of an experiment
FILES = ("x", "y", "mask", "test", "test_y", "test_mask", "against", "out", "store", "fit")
DATA = {
    "name": (str,),
    "rows": (int,),
    "x": (str,),
    "y": (str,),
    "mask": (str,),
    "test": (str,),
    "test_y": (str,),
    "test_mask": (str,),
    "classes": (bool,),
}
TRAINING = {
    "data": "name",
    "rows": "rows",
    "x": "x",
    "y": "y",
    "mask": "mask",
    "classes": "classes",
}
INPUTS = {"data": "name", "rows": "rows", "x": "x", "mask": "mask"}
TESTING = {"data": "name", "rows": "rows", "x": "test", "y": "test_y", "mask": "test_mask"}

_DECLARED: dict[str, list[inspect.Parameter]] = {}


def declare(name: str, options: Sequence[inspect.Parameter], data: Mapping[str, str]) -> None:
    """Make the options of a command, beside those of [data], a section of experiments."""
    _DECLARED[name] = [p for p in options if p.name not in (*data, *SHELL)]


def schema() -> dict[str, dict[str, "Key"]]:
    """The keys of every section: [data], and one section per command."""
    from limitformer.files.experiment import Key

    found = {"data": {k: Key(kinds, path=k in FILES) for k, kinds in DATA.items()}}
    for name, options in _DECLARED.items():
        found[name] = {p.name: _key(p) for p in options}
    return found


def settings(name: str, file: Path, data: Mapping[str, str], given: set[str]) -> dict[str, Any]:
    """What an experiment says for the options that are not on the command line.

    Inputs on the command line replace the section [data] as a whole.

    Raises:
        NetworkFileError: the file, with the line.
    """
    from limitformer.files.experiment import read_experiment

    if not Path(file).is_file():
        raise FileNotFoundError(f"--experiment {file}: there is no file {Path(file).absolute()}")
    found = read_experiment(file, schema())
    options = dict(found.sections.get(name, {}))
    if not given & {"data", "x"}:
        section = found.sections.get("data", {})
        options |= {option: section[key] for option, key in data.items() if key in section}
    if found.network is not None and name != "predict":
        options["net"] = found.network
    kinds = {p.name: _members(p) for p in _DECLARED[name]}
    return {
        option: _converted(value, kinds.get(option, ()))
        for option, value in options.items()
        if option not in given
    }


def _members(parameter: inspect.Parameter) -> tuple[Any, ...]:
    """The types that an option may have."""
    hint = typing.get_args(parameter.annotation)[0]
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return tuple(h for h in (typing.get_args(hint) if union else (hint,)) if h is not type(None))


def _converted(value: Any, kinds: tuple[Any, ...]) -> Any:
    """A value of the file as the command line would give it."""
    if isinstance(value, str):
        return Path(value) if Path in kinds else value
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (
        str(value) if number and kinds == (str,) else float(value) if kinds == (float,) else value
    )


def _key(parameter: inspect.Parameter) -> "Key":
    from limitformer.files.experiment import Key

    members = _members(parameter)
    named = [h for h in members if typing.get_origin(h) is typing.Literal]
    kinds = tuple(h if h in (int, float, bool) else str for h in members)
    if parameter.name == "noise":  # "auto", or a variance
        kinds = (str, float)
    choices = tuple(choice for h in named for choice in typing.get_args(h))
    return Key(kinds, choices, parameter.name in FILES)
