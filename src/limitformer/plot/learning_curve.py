"""Error against the number of training points."""

from __future__ import annotations

import numpy as np

from limitformer.gp.learning_curve import LearningCurve
from limitformer.plot.axes import COLOURS, Axes, axes_or_new
from limitformer.plot.scales import log_ticks


def plot_learning_curve(curve: LearningCurve, ax: Axes | None = None) -> Axes:
    """Predicted (line) and measured (points with standard errors) error, on logarithmic axes.

    Crosses are leave-one-out estimates from the training points alone, and the dotted line is the
    error of predicting zero.

    Args:
        curve: of `limitformer.gp.learning_curve.learning_curve`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    ink = ax.xaxis.label.get_color()
    (line,) = ax.plot(
        curve.sizes, curve.predicted, color=COLOURS["nngp"], label="predicted from spectrum"
    )
    points = ax.errorbar(
        curve.sizes,
        curve.measured,
        yerr=curve.measured_sem,
        fmt="o",
        color=COLOURS["nngp"],
        markersize=5,
        capsize=2.5,
        label=f"measured, {curve.repeats} subsets",
    )
    (crosses,) = ax.plot(
        1.05 * curve.sizes,  # beside the points, so that both are seen
        curve.loo,
        "x",
        color=COLOURS["ntk"],
        markersize=6,
        markeredgewidth=1.6,
        zorder=3,
        label="leave-one-out",
    )
    handles: list = [points, line, crosses]
    values = np.concatenate([curve.predicted, curve.measured, curve.loo])
    low, high = values.min() / 1.15, values.max() * 1.15
    if curve.baseline < 2 * high:
        high = max(high, 1.15 * curve.baseline)
        zero = ax.axhline(curve.baseline, color=ink, alpha=0.6, linestyle=":", linewidth=1.1)
        zero.set_label("predict zero")
        handles.append(zero)
    log_ticks(ax, "x", curve.sizes.min() / 1.12, curve.sizes.max() * 1.12)
    log_ticks(ax, "y", low, high)
    ax.grid(axis="y")
    ax.set_xlabel(f"training points, of {curve.points}")
    ax.set_ylabel("mean squared error")
    ax.legend(handles=handles, loc="lower left")
    return ax
