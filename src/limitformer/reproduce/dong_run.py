"""One call per experiment of Dong 2021."""

from __future__ import annotations

from typing import Any

from ..layers.base import choice
from .dong_tables import DongResult

NAMES = ("residual", "paths", "circle", "tasks")


def dong(name: str, **settings: Any) -> DongResult:
    """An experiment by name, with the settings of `dong_residual`, `dong_paths`, ...

    Raises:
        ValueError: a name that is not one of these, or settings out of range.
    """
    choice("name", name, NAMES)
    if name == "residual":
        from .dong_residual import dong_residual

        return dong_residual(**settings)
    if name == "paths":
        from .dong_paths import dong_paths

        return dong_paths(**settings)
    if name == "circle":
        from .dong_circle import dong_circle

        return dong_circle(**settings)
    from .dong_tasks import dong_tasks

    return dong_tasks(**settings)
