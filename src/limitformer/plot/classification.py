"""What a classifier gets right, and whether it knows."""

from __future__ import annotations

import numpy as np

from limitformer.plot.axes import COLOURS, Axes, axes_or_new
from limitformer.report.classify import Classification


def plot_confusion(result: Classification, ax: Axes | None = None) -> Axes:
    """Counts of true (rows) against predicted (columns) classes; mistakes are coloured.

    Args:
        result: of `limitformer.report.classify.classify`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    counts = result.confusion
    right = np.eye(len(counts), dtype=bool)
    mistakes = np.where(right, 0, counts)
    shade = np.zeros((*counts.shape, 4))
    shade[right] = (0.25, 0.51, 0.87, 0.22)
    strength = 0.3 + 0.7 * mistakes / max(mistakes.max(), 1)
    shade[mistakes > 0] = [(0.85, 0.3, 0.25, a) for a in strength[mistakes > 0]]
    ax.imshow(shade, interpolation="none")
    for i, j in np.argwhere(counts > 0):
        ax.text(j, i, str(counts[i, j]), ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(counts)))
    ax.set_yticks(range(len(counts)))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("predicted")
    ax.set_ylabel("true")
    return ax


def plot_refusal(result: Classification, ax: Axes | None = None) -> Axes:
    """Accuracy on the inputs that are left when the least confident are refused.

    Args:
        result: of `limitformer.report.classify.classify`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    order = np.argsort(-result.confidence, kind="stable")
    count = np.arange(1, len(order) + 1)
    mistakes = np.cumsum(~result.correct[order])
    refused = 1 - count / len(order)
    part = mistakes / count
    flawless = refused[mistakes == 0].min(initial=1.0)
    ax.plot(100 * refused, 100 * part, color=COLOURS["nngp"], drawstyle="steps-post")
    ax.fill_between(
        100 * refused, 100 * part, step="post", color=COLOURS["nngp"], alpha=0.15, linewidth=0
    )
    ax.set_xlim(0, min(100, max(5, 250 * flawless)))
    ax.set_ylim(0, None)
    ax.grid(axis="y")
    ax.set_xlabel("inputs refused, least confident first (%)")
    ax.set_ylabel("mistakes among the others (%)")
    return ax
