"""What an argument may be, from its annotation, and the nearest known name to a wrong one."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable
from typing import Any

from .. import duals
from .kinds import Kind

_NAMES = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a string",
    tuple: "a list of numbers",
}


def check_argument(kind: Kind, name: str, value: Any) -> str | None:
    """What was expected of an argument, or None if its constructor is to decide.

    Only annotations made of numbers, strings, bools and lists of numbers are judged; a list of
    numbers may be given as one number, for the constructor to accept or refuse.
    """
    members = judged(kind, name)
    if members is None or any(_fits(value, member) for member in members):
        return None
    return "expected " + " or ".join(text for member, text in _NAMES.items() if member in members)


def judged(kind: Kind, name: str) -> set[Any] | None:
    """The plain types that an argument may have; None if only its constructor can tell."""
    members = {_judged(part, kind) for part in _parts(kind.hints.get(name, Any))}
    return None if None in members else members


def takes_list(kind: Kind, name: str) -> bool:
    """Whether an argument is annotated as a tuple, so that a list of layers is not a sequence."""
    parts = _parts(kind.hints.get(name, Any))
    return any((typing.get_origin(part) or part) is tuple for part in parts)


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if union else (hint,)


def _judged(hint: Any, kind: Kind) -> Any:
    """The plain type that an annotation stands for, None if it is not judged here."""
    if hint is Any and isinstance(kind.cls, type) and issubclass(kind.cls, duals.Dual):
        return float  # numbers that may be traced are not annotated more closely
    if typing.get_origin(hint) is tuple:
        return tuple if set(typing.get_args(hint)) <= {int, float, Any, ...} else None
    return hint if hint in _NAMES or hint is type(None) else None


def _fits(value: Any, member: type) -> bool:
    if member is float:
        return _is_number(value)
    if member is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if member is tuple:
        items = value if isinstance(value, tuple) else (value,)
        return all(_is_number(item) for item in items)
    return isinstance(value, member)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_written(value: Any) -> str:
    """A value as the file writes it, shortened.

    >>> as_written({"type": "Dense"}), as_written(True), as_written("a")
    ('a Dense', 'true', '"a"')
    """
    if isinstance(value, dict):
        return f"a {value.get('type', 'table')}"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def closest(name: str, known: Iterable[str]) -> str:
    """A question after the nearest known name, or nothing.

    >>> closest("dens", ["Dense", "Conv"])
    ', did you mean "Dense"?'
    """
    folded = {option.lower().replace("_", ""): option for option in known}
    found = difflib.get_close_matches(name.lower().replace("_", ""), folded, 1, 0.6)
    return f', did you mean "{folded[found[0]]}"?' if found else ""
