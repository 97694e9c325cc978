"""Finite networks on their way to the limit law, in width or in heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from limitformer.plot.axes import COLOURS, Axes, axes_or_new
from limitformer.plot.scales import log_ticks, written


def plot_distance_to_limit(points: Sequence[Any], ax: Axes | None = None, along: str = "n") -> Axes:
    """KL divergence of finite networks from their limit law, and the estimator's floor.

    Points with bars are means over seeds with two standard errors; crosses are reference numbers;
    below the band of the floor nothing is resolved.

    Args:
        points: anything with `kl`, `floor` (with `mean` and `sem`), `reference` (or None), and the
            attribute `along`: those of `limitformer.reproduce.sakai`.
        ax: matplotlib axes; None: new ones.
        along: "n" or "heads".

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    place = np.array([getattr(p, along) for p in points], float)
    kl, floor = (np.array([[v.mean, v.sem] for v in part]).T for part in _two(points))
    ink = ax.xaxis.label.get_color()
    ax.fill_between(
        place,
        np.maximum(floor[0] - 2 * floor[1], 1e-12),
        floor[0] + 2 * floor[1],
        color=ink,
        alpha=0.2,
        linewidth=0,
        label="floor: limit against limit",
    )
    ax.errorbar(
        place,
        kl[0],
        yerr=2 * kl[1],
        fmt="o-",
        color=COLOURS["nngp"],
        markersize=5,
        capsize=2.5,
        label="finite networks",
    )
    known = [(x, p.reference) for x, p in zip(place, points, strict=True) if p.reference]
    if known:
        ax.plot(
            *zip(*known, strict=True), "x", color=COLOURS["ntk"], markersize=8, label="reference"
        )
    shown = np.concatenate([kl[0], floor[0], [value for _, value in known]])
    log_ticks(ax, "y", shown.min() / 2, shown.max() * 2)
    _places(ax, place, along)
    ax.set_ylabel("KL divergence from the limit")
    ax.grid(axis="y")
    ax.legend(fontsize="small")
    return ax


def plot_second_moment(points: Sequence[Any], ax: Axes | None = None, along: str = "n") -> Axes:
    """Relative standard deviation of a layer's second moment, and where it goes: not to 0.

    Args:
        points: anything with `signature` (with `mean` and `sem`), `limit` (value, standard error)
            and the attribute `along`.
        ax: matplotlib axes; None: new ones.
        along: "n" or "heads".

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    place = np.array([getattr(p, along) for p in points], float)
    value, sem = np.array([[p.signature.mean, p.signature.sem] for p in points]).T
    ax.errorbar(
        place,
        value,
        yerr=2 * sem,
        fmt="o-",
        color=COLOURS["nngp"],
        markersize=5,
        capsize=2.5,
        label="finite networks",
    )
    limit = np.array([p.limit[0] for p in points])
    ax.plot(place, limit, "--", color=COLOURS["ntk"], label="limit, CV/√H")
    log_ticks(ax, "y", limit.min() / 1.6, value.max() * 1.6)
    _places(ax, place, along)
    ax.set_ylabel("relative std of the second moment")
    ax.grid(axis="y")
    ax.legend(fontsize="small")
    return ax


def _two(points: Sequence[Any]) -> tuple[list, list]:
    return [p.kl for p in points], [p.floor for p in points]


def _places(ax: Axes, place: np.ndarray, along: str) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(place, [written(x) for x in place])
    ax.minorticks_off()
    ax.set_xlabel({"n": "width", "heads": "heads"}.get(along, along))
