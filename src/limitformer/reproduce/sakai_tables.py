"""The reproduced figures of Sakai 2025 as Markdown, JSON and PNG."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cli.table import text_table
from .sakai import REFERENCE_FLOOR, Point, Series

REFERENCE = (
    "Sakai, Karakida, Imaizumi (2025), Infinite-width limit of a single attention layer: analysis "
    "via Tensor Programs, arXiv 2506.00846"
)

_OUTPUTS = (
    "KL is that of kernel density estimates of y_11 (Scott's bandwidth, 500 grid points) of the "
    "finite layers from the limit law, mean ± standard error over seeds; the floor is the same "
    "number between two samples of the limit. {reference}The second moment (1/n) sum_i y_1i^2 is "
    "the stronger signature: its relative standard deviation goes to CV/sqrt(H), not to 0. The "
    "last column is the KL divergence of the limit law from the Gaussian of the same variance, of "
    "the mixture itself."
)
_COMPARED = (
    "The reference numbers are those of an exact-in-law replication ({floor:.2g} between two "
    "samples of the limit); the difference is ours less theirs ± our standard error, and in "
    "parentheses in standard deviations of one seed, since theirs come without errors. "
)
_SCORES = (
    "The score of token 1 with itself. KL is that of kernel density estimates from N(0, 1), mean ± "
    "standard error over seeds; the floor is that between two samples of N(0, 1). At 1/n the limit "
    "is a point mass, which has no density: the standard deviation is what goes to 0. At width n "
    "it is exactly (1 + 2/n) times 1 and n^(-1/2)."
)


@dataclasses.dataclass(frozen=True)
class SakaiFigure:
    """A figure of the paper, computed again.

    Args:
        name: "1", "2a", "2b", "3" or "5".
        title: what it shows.
        points: its points.
        settings: how it was computed, by name.
        notes: what to know.
        seconds: the time it took.
    """

    name: str
    title: str
    points: Sequence[Point]
    settings: Mapping[str, Any]
    notes: Sequence[str]
    seconds: float

    @property
    def scores(self) -> bool:
        """Whether it is about scores, not outputs."""
        return self.points[0].to_gaussian is None

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        compared = any(p.reference is not None for p in self.points)
        head = ["", "KL", *(["reference", "difference"] if compared else []), "floor"]
        head += ["std", "exact", "limit"] if self.scores else ["second moment", "limit", "Gaussian"]
        rows = []
        for p in self.points:
            row = [p.label, _pm(p.kl)]
            if compared and p.reference is None:
                row += ["", ""]
            elif compared and p.reference is not None and p.kl is not None:
                gap = p.kl.mean - p.reference
                row += [
                    f"{p.reference:.2g}",
                    f"{gap:+.1e} ± {p.kl.sem:.0e} ({gap / p.kl.std:+.1f})",
                ]
            row += [_pm(p.floor), _pm(p.signature)]
            if p.to_gaussian is None:
                exact = (1 + 2 / p.n) * (1 if p.limit[0] else p.n**-0.5)
                row += [f"{exact:.4f}", f"{p.limit[0]:g}"]
            else:
                row += [_two(*p.limit), _two(*p.to_gaussian)]
            rows.append(row)
        return head, rows

    def table(self) -> str:
        """The points as text in columns."""
        return text_table(*self._cells())

    def markdown(self) -> str:
        """Table, figure, settings, notes and reference."""
        head, rows = self._cells()
        align = [":--"] + ["--:"] * (len(head) - 1)
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in (head, align, *rows))
        compared = _COMPARED.format(floor=REFERENCE_FLOOR) if "reference" in head else ""
        explanation = _SCORES if self.scores else _OUTPUTS.format(reference=compared)
        settings = [f"- {name}: {value}" for name, value in self.settings.items()]
        settings.append(f"- time: {self.seconds:.0f} s")
        parts = [f"# Sakai 2025, {self.title}", table, explanation]
        parts += [f"![{self.title}](sakai-{self.name}.png)", "## Run", "\n".join(settings)]
        if self.notes:
            parts += ["## Notes", "\n".join(f"- {note}" for note in self.notes)]
        return "\n\n".join([*parts, "## Reference", REFERENCE]) + "\n"

    def to_json(self) -> str:
        """The numbers of every seed; densities are left to the figure."""
        left_out = ("grid", "density", "density_limit")
        points = []
        for p in self.points:
            fields = {f.name: getattr(p, f.name) for f in dataclasses.fields(p)}
            points.append({k: _plain(v) for k, v in fields.items() if k not in left_out})
        content = {
            "title": f"Sakai 2025, {self.title}",
            "settings": dict(self.settings),
            "seconds": round(self.seconds, 1),
            "notes": list(self.notes),
            "points": points,
            "reference": REFERENCE,
        }
        return json.dumps(content, indent=1)

    def write(self, folder: Path) -> None:
        """Write sakai-NAME.md, .json and .png into a folder, which is made if it is not there."""
        from .sakai_figures import draw

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"sakai-{self.name}"
        path.with_suffix(".md").write_text(self.markdown(), encoding="utf-8")
        path.with_suffix(".json").write_text(self.to_json() + "\n", encoding="utf-8")
        draw(self).savefig(path.with_suffix(".png"), dpi=110)


def _plain(value: Any) -> Any:
    if isinstance(value, Series):
        sem = None if math.isnan(value.sem) else value.sem
        return {"mean": value.mean, "sem": sem, "seeds": list(value.values)}
    return list(value) if isinstance(value, tuple) else value


def _pm(series: Series | None) -> str:
    return "" if series is None else _two(series.mean, series.sem)


def _two(value: float, sem: float) -> str:
    """A value and its standard error with as many digits as that has."""
    if not math.isfinite(sem) or sem <= 0 or value <= 0:
        return f"{value:.3g}"
    if value < 0.01:
        exponent = math.floor(math.log10(abs(value)))
        digits = max(0, exponent - math.floor(math.log10(sem)))
        return f"({value / 10**exponent:.{digits}f} ± {sem / 10**exponent:.{digits}f})e{exponent}"
    digits = max(0, 1 - math.floor(math.log10(sem)))
    return f"{value:.{digits}f} ± {sem:.{digits}f}"
