"""The reproduced experiments of Dong 2021 as Markdown, JSON and PNG."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REFERENCE = (
    "Dong, Cordonnier, Loukas (2021), Attention is not all you need: pure attention loses rank "
    "doubly exponentially with depth, arXiv 2103.03404"
)


@dataclasses.dataclass(frozen=True)
class Table:
    """One table of a result: a caption, the head, and rows of text."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The caption over the table."""
        align = [":--"] + ["--:"] * (len(self.head) - 1)
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.head, align, *self.rows)]
        return "\n".join([f"{self.caption}\n", *lines])


@dataclasses.dataclass(frozen=True, eq=False)
class DongResult:
    """An experiment of the paper, computed again.

    Args:
        name: "residual", "paths", "circle" or "tasks".
        title: what it shows.
        explanation: what the numbers are.
        tables: the numbers as text.
        data: the numbers themselves, of which the figure is drawn.
        settings: how they were computed, by name.
        notes: what differs from the paper, what to know.
        seconds: the time it took.
    """

    name: str
    title: str
    explanation: str
    tables: Sequence[Table]
    data: Mapping[str, Any]
    settings: Mapping[str, Any]
    notes: Sequence[str]
    seconds: float

    def markdown(self) -> str:
        """Tables, figure, settings, notes and reference."""
        settings = [f"- {name}: {value}" for name, value in self.settings.items()]
        settings.append(f"- time: {self.seconds:.0f} s")
        parts = [f"# Dong 2021, {self.title}", self.explanation]
        parts += [table.markdown() for table in self.tables]
        parts += [f"![{self.title}](dong-{self.name}.png)", "## Run", "\n".join(settings)]
        parts += ["## Notes", "\n".join(f"- {note}" for note in self.notes)]
        return "\n\n".join([*parts, "## Reference", REFERENCE]) + "\n"

    def to_json(self) -> str:
        """All numbers."""
        content = {
            "title": f"Dong 2021, {self.title}",
            "settings": dict(self.settings),
            "seconds": round(self.seconds, 1),
            "notes": list(self.notes),
            "data": _plain(self.data),
            "reference": REFERENCE,
        }
        return json.dumps(content, indent=1, allow_nan=False)

    def write(self, folder: Path) -> None:
        """Write dong-NAME.md, .json and .png into a folder, which is made if it is not there."""
        from .dong_figures import draw

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"dong-{self.name}"
        path.with_suffix(".md").write_text(self.markdown(), encoding="utf-8")
        path.with_suffix(".json").write_text(self.to_json() + "\n", encoding="utf-8")
        draw(self).savefig(path.with_suffix(".png"), dpi=110)


def number(value: float, sem: float | None = None) -> str:
    """A number as the tables print it: three decimals, or a power of ten where those show none.

    Example:
        >>> number(0.3127), number(4.2e-9), number(0.5, 0.0123)
        ('0.313', '4e-09', '0.500 ± 0.012')
    """
    text = f"{value:.3f}" if abs(value) >= 5e-4 or value == 0 else f"{value:.0e}"
    return text if sem is None else f"{text} ± {number(sem)}"


def mean_sem(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis; the error of one value is 0."""
    n = len(values)
    spread = values.std(axis=0, ddof=1) if n > 1 else np.zeros(values.shape[1:])
    return np.asarray(values.mean(axis=0)), np.asarray(spread / np.sqrt(n))


def _plain(value: Any) -> Any:
    """Arrays and numbers as JSON has them, to six digits."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
