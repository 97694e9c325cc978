"""All ridges at a glance."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from limitformer.plot.axes import COLOURS, Axes, axes_or_new
from limitformer.plot.scales import log_ticks, second_axis, written


@runtime_checkable
class RidgePath(Protocol):
    """What `plot_ridge_path` reads; a path has one entry per ridge.

    Attributes:
        ridges: positive numbers.
        loo_mse: leave-one-out mean squared errors.
        log_evidence: log marginal likelihoods, or None.
        chosen: the ridge that was chosen, or its index in `ridges` if it is a whole number.
    """

    @property
    def ridges(self) -> np.ndarray: ...

    @property
    def loo_mse(self) -> np.ndarray: ...

    @property
    def log_evidence(self) -> np.ndarray | None: ...

    @property
    def chosen(self) -> float | int: ...


def plot_ridge_path(path: RidgePath, ax: Axes | None = None) -> Axes:
    """Leave-one-out error, and the log evidence if there is one, against the ridge.

    The circle is the ridge that was chosen. The evidence has an axis of its own on the right.

    Args:
        path: anything with `ridges`, `loo_mse`, `log_evidence` (or None) and `chosen`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    ridges, error = (np.asarray(v, float) for v in (path.ridges, path.loo_mse))
    order = np.argsort(ridges)
    ridges, error = ridges[order], error[order]
    chosen = path.chosen
    if isinstance(chosen, int | np.integer):
        chosen = float(np.asarray(path.ridges, float)[chosen])
    ax.plot(ridges, error, color=COLOURS["nngp"])
    at = float(np.exp(np.interp(np.log(chosen), np.log(ridges), np.log(error))))
    ax.plot(chosen, at, "o", color=COLOURS["nngp"], markersize=6)
    ax.annotate(
        written(chosen),
        (chosen, at),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
        va="bottom",
    )
    log_ticks(ax, "x", ridges[0] / 1.4, ridges[-1] * 1.4)
    log_ticks(ax, "y", error.min() / 1.25, error.max() * 1.15)
    ax.set_xlabel("ridge")
    ax.set_ylabel("leave-one-out mean squared error", color=COLOURS["nngp"])
    ax.tick_params(axis="y", which="both", colors=COLOURS["nngp"])
    ax.grid(axis="y")
    if path.log_evidence is not None:
        right = second_axis(ax, COLOURS["ntk"], "log evidence")
        right.plot(ridges, np.asarray(path.log_evidence, float)[order], color=COLOURS["ntk"])
    return ax
