"""Results beside the published numbers: as text, as Markdown, as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from ..cli.table import text_table
from .fit import binomial_error
from .published import REFERENCE


@dataclasses.dataclass(frozen=True)
class Row:
    """One network and kernel.

    Args:
        network: its name.
        depth: its number of convolutions; None where there is only one depth.
        kind: "nngp" or "ntk".
        n: validation points so far; 0 before the first.
        fixed: validation accuracy with the ridge of 1e-6.
        chosen: validation accuracy with the ridge chosen by leave-one-out on training data.
        ridge: that ridge, relative to the mean diagonal.
        loo: accuracy of the leave-one-out predictions with it.
        best: validation accuracy with the ridge that is best on the validation points themselves.
        best_ridge: that ridge.
        published: the paper's accuracy, if it has one.
        published_n: on how many points; 0 if it is not to be compared with.
    """

    network: str
    depth: int | None
    kind: str
    n: int
    fixed: float
    chosen: float
    ridge: float
    loo: float
    best: float
    best_ridge: float
    published: float | None = None
    published_n: int = 0

    @property
    def fixed_error(self) -> float:
        """Binomial standard error of `fixed`."""
        return binomial_error(self.fixed, self.n) if self.n else math.nan

    @property
    def chosen_error(self) -> float:
        """Binomial standard error of `chosen`."""
        return binomial_error(self.chosen, self.n) if self.n else math.nan

    def difference(self, ours: float) -> tuple[float, float]:
        """Ours minus the published accuracy, with the binomial standard error of both."""
        if self.published is None or not self.n or not self.published_n:
            return math.nan, math.nan
        errors = binomial_error(ours, self.n), binomial_error(self.published, self.published_n)
        return ours - self.published, math.hypot(*errors)


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A table of the paper, computed again.

    Args:
        title: what it is.
        rows: one per network and kernel.
        settings: how it was computed, by name.
        seconds: the time it took.
        notes: what differs from the paper, and what to know.
        compared: which accuracy is compared with the published one: "fixed" or "best".
    """

    title: str
    rows: tuple[Row, ...]
    settings: Mapping[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()
    compared: str = "fixed"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        deep = any(row.depth is not None for row in self.rows)
        head = [
            "network",
            *(["convs"] if deep else []),
            "kernel",
            "n",
            "published",
            *(["ridge 1e-6"] if self.compared == "fixed" else ["best ridge", "at"]),
            "difference",
            "leave-one-out ridge",
            "at",
            "loo accuracy",
        ]
        lines = []
        for row in self.rows:
            ours = row.fixed if self.compared == "fixed" else row.best
            difference, error = row.difference(ours)
            shown = [_accuracy(ours, row.n)]
            if self.compared != "fixed":
                shown.append(f"{row.best_ridge:.0e}" if row.n else "")
            lines.append(
                [
                    row.network,
                    *([str(row.depth)] if deep else []),
                    row.kind.upper(),
                    str(row.n),
                    "" if row.published is None else f"{row.published:.3f}",
                    *shown,
                    "" if math.isnan(difference) else f"{difference:+.3f} ± {error:.3f}",
                    _accuracy(row.chosen, row.n),
                    f"{row.ridge:.0e}",
                    f"{row.loo:.3f}",
                ]
            )
        return head, lines

    def table(self) -> str:
        """The rows as text in columns."""
        return text_table(*self._cells())

    def markdown(self) -> str:
        """The whole result as Markdown: table, settings, notes, reference."""
        head, lines = self._cells()
        align = [":--" if i == 0 else "--:" for i in range(len(head))]
        rows = ["| " + " | ".join(cells) + " |" for cells in (head, align, *lines)]
        settings = [f"- {name}: {value}" for name, value in self.settings.items()]
        notes = [f"- {note}" for note in self.notes]
        parts = [f"# {self.title}", "\n".join(rows), _EXPLANATION[self.compared]]
        parts += ["## Run", "\n".join([*settings, f"- time: {self.seconds:.0f} s"])]
        if notes:
            parts += ["## Notes", "\n".join(notes)]
        return "\n\n".join([*parts, "## Reference", REFERENCE]) + "\n"

    @classmethod
    def read(cls, path: Path) -> Reproduction:
        """A result that `write` wrote, from its JSON."""
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(Row(**_known(row)) for row in content["rows"])
        return cls(
            content["title"],
            rows,
            content["settings"],
            content["seconds"],
            tuple(content["notes"]),
            content["compared"],
        )

    @classmethod
    def merge(cls, parts: Sequence[Reproduction]) -> Reproduction:
        """One table of several runs, such as one run for every depth; settings of all are kept."""
        titles = {part.title for part in parts}
        if len(titles) != 1 or len({part.compared for part in parts}) != 1:
            raise ValueError(f"these are runs of different tables: {sorted(titles)}")
        settings = {
            name: "; ".join(dict.fromkeys(str(part.settings.get(name, "-")) for part in parts))
            for name in dict.fromkeys(name for part in parts for name in part.settings)
        }
        rows = sorted((row for part in parts for row in part.rows), key=lambda row: row.depth or 0)
        notes = dict.fromkeys(note for part in parts for note in part.notes)
        seconds = sum(part.seconds for part in parts)
        return cls(parts[0].title, tuple(rows), settings, seconds, tuple(notes), parts[0].compared)

    def to_json(self) -> str:
        """Everything as JSON; numbers that are not there are null."""
        content = {
            "title": self.title,
            "settings": dict(self.settings),
            "seconds": self.seconds,
            "notes": list(self.notes),
            "compared": self.compared,
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "reference": REFERENCE,
        }
        return json.dumps(_plain(content), indent=1)

    def write(self, folder: Path, name: str) -> None:
        """Write `name`.md and `name`.json into a folder, which is made if it is not there."""
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, text in ((".md", self.markdown()), (".json", self.to_json() + "\n")):
            (folder / f"{name}{suffix}").write_text(text, encoding="utf-8")


_EXPLANATION = {
    "fixed": (
        "Accuracy on n validation images ± its binomial standard error. The difference is that "
        "of the ridge 1e-6 (times the mean diagonal) from the published number, with the binomial "
        "errors of both. The other ridge is the one with the best leave-one-out accuracy on the "
        "training images alone."
    ),
    "best": (
        "Accuracy on n validation reviews ± its binomial standard error. The best ridge is "
        "chosen on the validation reviews themselves, as in the paper, and its difference from the "
        "published number is shown. The other ridge is the one with the best leave-one-out "
        "accuracy on the training reviews alone."
    ),
}


def _accuracy(value: float, n: int) -> str:
    return f"{value:.3f} ± {binomial_error(value, n):.3f}" if n else ""


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the JSON with NaN again where a number is not there."""
    empty = {"published": None, "depth": None}
    return {k: empty.get(k, math.nan) if v is None else v for k, v in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def machine() -> str:
    """What the kernels were computed on."""
    device = jax.devices()[0]
    return f"{device.device_kind} ({device.platform}), jax {jax.__version__}"
