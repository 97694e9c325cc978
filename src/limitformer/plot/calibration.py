"""Whether probabilities are what they say."""

from __future__ import annotations

import numpy as np

from limitformer.gp import Reliability
from limitformer.plot.axes import COLOURS, Axes, axes_or_new


def plot_reliability(table: Reliability, ax: Axes | None = None) -> Axes:
    """Accuracy against confidence, bin by bin, with standard errors and the line of equality.

    Larger points stand for more inputs.

    Args:
        table: of `limitformer.gp.reliability`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    low = float(min(table.confidence.min(), table.accuracy.min(), 0.95))
    low = max(0.0, low - 0.08)
    ax.plot([low, 1], [low, 1], color="0.6", linewidth=1, zorder=1)
    ax.errorbar(
        table.confidence,
        table.accuracy,
        yerr=table.accuracy_sem,
        fmt="none",
        ecolor=COLOURS["nngp"],
        elinewidth=1,
        zorder=2,
    )
    share = table.count / table.count.max()
    ax.scatter(
        table.confidence,
        table.accuracy,
        s=12 + 60 * np.sqrt(share),
        color=COLOURS["nngp"],
        zorder=3,
    )
    ax.set_xlim(low, 1.01)
    ax.set_ylim(low, 1.02)
    ax.set_aspect("equal")
    ax.grid()
    ax.set_xlabel("confidence")
    ax.set_ylabel("part that is right")
    return ax
