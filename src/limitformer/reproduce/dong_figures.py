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
    panels = {"residual": _residual}[result.name]
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
            ax.errorbar(l, np.maximum(curve["mean"], 1e-17), curve["sem"], color=colour, label=name)
        ax.set_title(model, fontsize="medium")
    paper = axes[len(data["layers"])]
    for colour, (_, values) in zip(_COLOURS, data["published"].items(), strict=True):
        positive = [v for v in values if v > 0]
        paper.plot(positive, "o--", color=colour, markersize=3)
    paper.set_title("BERT, pretrained: the paper (zeros left out)", fontsize="medium")
    for i, ax in enumerate(axes):
        ax.set_yscale("log")
        ax.set_ylim(1e-17, 3)
        if i >= 3:
            ax.set_xlabel("layer")
        if i % 3 == 0:
            ax.set_ylabel("relative residual")
    axes[0].legend(fontsize="small", loc="lower left")
