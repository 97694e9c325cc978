"""The reproduced figures of Dong 2021, drawn from the numbers of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..extras import optional

if TYPE_CHECKING:
    from .dong_tables import DongResult

_COLOURS = ("#3f83dd", "#8a63c9", "#cf4f6d", "#e0812f")


def draw(result: DongResult) -> Any:
    """A matplotlib figure of the result."""
    each = {"residual": _residual, "paths": _paths, "circle": _circle, "tasks": _tasks}
    panels = each[result.name]
    with optional("matplotlib").rc_context({"grid.alpha": 0.3, "axes.grid": True}):
        made = optional("matplotlib.figure").Figure(layout="constrained")
        panels(made, result.data)
        made.suptitle(f"Dong 2021, {result.title}", fontsize="medium")
        return made


def _residual(made, data) -> None:
    made.set_size_inches(12, 6.4)
    axes = made.subplots(2, 3, sharey=True).ravel()
    for ax, (model, curves) in zip(axes, data["layers"].items(), strict=False):
        for colour, (name, curve) in zip(_COLOURS, curves.items(), strict=True):
            l = np.arange(len(curve["mean"]))
            style = "--" if name == "attention + MLP" else "-"  # often on top of attention only
            ax.errorbar(l, curve["mean"], curve["sem"], fmt=style, color=colour, label=name)
        ax.set_title(model, fontsize="medium")
    paper = axes[len(data["layers"])]
    for colour, (_, values) in zip(_COLOURS, data["published"].items(), strict=True):
        positive = [v for v in values if v > 0]
        paper.plot(positive, "o--", color=colour, markersize=3)
    paper.set_title("BERT, pretrained: the paper (zeros left out)", fontsize="medium")
    for i, ax in enumerate(axes):
        ax.set_yscale("log")
        ax.set_ylim(1e-17, 3)
        ax.axhspan(1e-17, 1e-15, color="grey", alpha=0.2, linewidth=0)
        if i >= 3:
            ax.set_xlabel("layer")
        if i % 3 == 0:
            ax.set_ylabel("relative residual")
    axes[0].legend(fontsize="small", loc="lower left")
    paper.text(0.98, 0.03, "rounding", transform=paper.transAxes, ha="right", fontsize="small")


def _paths(made, data) -> None:
    made.set_size_inches(12, 3.6)
    counts, residual, share = made.subplots(1, 3)
    for shift, colour, (name, values) in zip(
        (-0.2, 0.2), _COLOURS[::2], data["counts"].items(), strict=True
    ):
        k, fraction = np.arange(len(values)), np.array(values, float) / float(sum(values))
        label = f"{name}: {float(sum(values)):.1e} paths"
        counts.bar(k + shift, fraction, 0.4, color=colour, label=label)
    counts.set_ylabel("fraction of all paths")
    counts.legend(fontsize="small", loc="upper left")
    readings = {k: v for k, v in data["by length"].items() if k not in ("share", "rms")}
    for colour, (name, curve) in zip(_COLOURS, readings.items(), strict=False):
        k = np.arange(len(curve["mean"]))
        residual.errorbar(k, curve["mean"], curve["sem"], fmt="o-", color=colour, label=name)
    residual.set_yscale("log")
    residual.set_ylabel("relative residual of a path")
    residual.legend(fontsize="small")
    curve = data["by length"]["share"]
    share.bar(np.arange(len(curve["mean"])), curve["mean"], yerr=curve["sem"], color=_COLOURS[0])
    share.set_ylabel("share of the output, all paths")
    counts.set_ylim(0, 0.85)
    for ax in (counts, residual, share):
        _by_length(ax)


def _circle(made, data) -> None:
    made.set_size_inches(11, 4.1)
    angle = np.linspace(0, 2 * np.pi, 200)
    every = data["paths of the first seed"]
    axes = made.subplots(1, len(every), sharey=True, squeeze=False)[0]
    for ax, (name, paths) in zip(axes, every.items(), strict=True):
        ax.plot(0.3 * np.cos(angle), 0.3 * np.sin(angle), ":", color="grey", label="circle")
        for colour, (width, path) in zip(_COLOURS, paths.items(), strict=False):
            ax.plot(path[:, 0, 0], path[:, 0, 1], color=colour, label=f"width {width}")
            ax.plot(path[:, 1, 0], path[:, 1, 1], color=colour)
            ax.plot(path[-1, :, 0], path[-1, :, 1], "o", color=colour, markersize=4)
        ax.set_aspect("equal")
        ax.set_xlim(-0.45, 0.45)
        ax.set_ylim(-0.45, 0.45)
        ax.set_title(name, fontsize="medium")
    axes[0].legend(fontsize="small", loc="center")


def _tasks(made, data) -> None:
    made.set_size_inches(11, 3.6)
    axes = made.subplots(1, len(data), sharey=True, squeeze=False)[0]
    for ax, (task, found) in zip(axes, data.items(), strict=True):
        curves = {n: c for n, c in found.items() if n.startswith(("frozen", "recomputed"))}
        for colour, (name, curve) in zip(_COLOURS, curves.items(), strict=False):
            k = np.arange(len(curve["mean"]))
            ax.errorbar(k, curve["mean"], curve["sem"], fmt="o-", color=colour, label=name)
        ax.axhline(found["model"]["mean"], color=_COLOURS[3], linestyle="--", label="whole model")
        ax.axhline(found["chance"], color="grey", linestyle=":", label="chance")
        ax.set_title(task, fontsize="medium")
        ax.set_ylim(0, 1.03)
        _by_length(ax)
    axes[0].set_ylabel("token accuracy")
    axes[0].legend(fontsize="small", loc="center right", bbox_to_anchor=(1, 0.58))


def _by_length(ax) -> None:
    ax.set_xlabel("path length")
    ax.xaxis.get_major_locator().set_params(integer=True)
