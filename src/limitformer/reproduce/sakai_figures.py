"""The reproduced figures of Sakai 2025, drawn: densities, KL divergences, the second moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..extras import optional
from ..plot.density import draw_density
from ..plot.to_limit import plot_distance_to_limit, plot_second_moment

if TYPE_CHECKING:
    from .sakai_tables import SakaiFigure

_COLOURS = ("#3f83dd", "#8a63c9", "#cf4f6d", "#e0812f")


def draw(figure: SakaiFigure) -> Any:
    """A matplotlib figure of three panels; of two for scores."""
    with optional("matplotlib").rc_context({"grid.alpha": 0.3}):
        return _draw(figure)


def _draw(figure: SakaiFigure) -> Any:
    made = optional("matplotlib.figure").Figure(
        figsize=(7.4, 3.2) if figure.scores else (11, 3.3), layout="constrained"
    )
    panels = made.subplots(1, 2 if figure.scores else 3)
    if figure.scores:
        for ax, p in zip(panels, figure.points, strict=True):
            _scores(ax, p)
    else:
        along = "heads" if len({p.n for p in figure.points}) == 1 else "n"
        _densities(panels[0], figure.points)
        plot_distance_to_limit(figure.points, panels[1], along)
        plot_second_moment(figure.points, panels[2], along)
    made.suptitle(f"Sakai 2025, {figure.title}", fontsize="medium")
    return made


def _densities(ax, points) -> None:
    ink = ax.xaxis.label.get_color()
    seen = set()
    several = len({p.heads for p in points}) > 1
    for p, colour in zip(points, _COLOURS, strict=False):
        _line(ax, p.grid, p.density, p.label, colour)
        if p.heads not in seen:
            seen.add(p.heads)
            name = f"limit, H = {p.heads}" if several else "limit"
            limit = p.density_limit.mean(axis=0)
            ax.plot(p.grid, limit, "--", color=colour if several else ink, linewidth=1, label=name)
    ax.set_ylim(1e-4, 2)
    reach = max(np.abs(p.grid[p.density.mean(axis=0) > 5e-5]).max() for p in points)
    ax.set_xlim(-reach, reach)
    ax.set_xlabel("output $y_{11}$")
    ax.set_ylabel("density")
    ax.legend(fontsize="small", loc="lower center", ncols=1 + several)


def _scores(ax, p) -> None:
    _line(ax, p.grid, p.density, f"n = {p.n}", _COLOURS[0])
    if p.density_limit is None:
        ax.axvline(0, color=_COLOURS[3], linestyle="--", linewidth=1.2, label="limit: point mass")
    else:
        ax.plot(p.grid, p.density_limit[0], "--", color=_COLOURS[3], label="limit: N(0, 1)")
    ax.set_ylim(p.density.mean(axis=0).max() * 1e-5, p.density.mean(axis=0).max() * 3)
    ax.set_xlabel("score at " + {"1/sqrt(n)": "1/√n", "1/n": "1/n"}[p.label])
    ax.set_ylabel("density")
    ax.legend(fontsize="small", loc="lower center")


def _line(ax, grid, density, label, colour) -> None:
    sem = density.std(axis=0, ddof=1) / np.sqrt(len(density)) if len(density) > 1 else 0.0
    draw_density(ax, grid, density.mean(axis=0), sem, label=label, colour=colour)
