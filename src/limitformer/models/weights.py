"""The weights of a part of a model: walked by name, replaced, checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# Shapes in the letters of `spec`; one letter has one size within a sublayer.
_SHAPES = {
    "gain": "d",
    "bias": "d",
    "W_Q": "Hdk",
    "W_K": "Gdk",
    "W_V": "Gdv",
    "W_O": "Hvd",
    "b_Q": "Hk",
    "b_K": "Gk",
    "b_V": "Gv",
    "b_O": "d",
    "W_R": "Hdk",
    "b_W": "Hk",
    "b_R": "Hk",
    "W_in": "dm",
    "W_gate": "dm",
    "W_out": "md",
    "b_in": "m",
    "b_gate": "m",
    "b_out": "d",
}
_HEAD_NORMS = ("query_norm", "key_norm")


def arrays(part: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """(name, array) of every weight in a part of a model."""
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        name = f"{path}.{field.name}" if path else field.name
        if isinstance(value, np.ndarray):
            yield name, value
        elif dataclasses.is_dataclass(value):
            yield from arrays(value, name)


def map_arrays(part: Any, fn: Callable[[str, np.ndarray], np.ndarray], path: str = "") -> Any:
    """A part of a model with every weight w replaced by fn(name, w)."""
    changes = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        name = f"{path}.{field.name}" if path else field.name
        if isinstance(value, np.ndarray):
            changes[field.name] = fn(name, value)
        elif dataclasses.is_dataclass(value):
            changes[field.name] = map_arrays(value, fn, name)
    return dataclasses.replace(part, **changes)


def check_weights(sublayer: Any, width: int, where: str) -> None:
    """Raise unless every weight is finite and its shape fits the others.

    Raises:
        ValueError: the weight, its shape and the shape it should have, or how many of its values
            are not finite.
    """
    sizes = {"d": width}
    for name, w in arrays(sublayer):
        *parents, leaf = name.split(".")
        letters = _SHAPES.get(leaf)
        if letters is None:
            continue
        if parents and parents[-1] in _HEAD_NORMS:
            letters = "k"
        expected = tuple(
            sizes.setdefault(letter, size) for letter, size in zip(letters, w.shape, strict=False)
        )
        if w.ndim != len(letters) or w.shape != expected:
            axes = ", ".join(f"{letter}={sizes.get(letter, '?')}" for letter in letters)
            raise ValueError(f"{where}: {name} has shape {w.shape}, expected ({axes})")
        bad = int(np.sum(~np.isfinite(w)))
        if bad:
            raise ValueError(
                f"{where}: {bad} of {w.size} values of {name} are not finite (NaN or infinite); "
                "the checkpoint is damaged or its training diverged"
            )
    if sizes.get("H", 1) % sizes.get("G", 1):
        raise ValueError(
            f"{where}: {sizes['H']} query heads cannot share {sizes['G']} key and value groups; "
            "the number of heads must be a multiple of the number of groups"
        )
