"""Densities of outputs on a logarithmic scale, where tails are seen, against the Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np

from limitformer.heads.law import Law
from limitformer.heads.two_sample import kde
from limitformer.plot.axes import COLOURS, Axes, axes_or_new

_GROUPS = 10
_POINTS = 241


def plot_density(
    source: Law | Any,
    ax: Axes | None = None,
    *,
    point: int = 0,
    label: str | None = None,
    colour: str | None = None,
    gaussian: bool = True,
) -> Axes:
    """Density of one output coordinate in standard deviations, with a band of two standard errors.

    Of a law it is the mixture itself; of samples a kernel density estimate, with errors over ten
    groups of samples (rows, if they have several). The dashed line is the Gaussian.

    Args:
        source: of `net.law`; or samples, `(runs,)` or `(seeds, runs)`.
        ax: matplotlib axes; None: new ones. Call again with the same axes to compare.
        point: which input of a law.
        label: for the legend.
        colour: of the line.
        gaussian: draw the Gaussian.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    y = np.linspace(-5, 5, _POINTS)
    if isinstance(source, Law):
        scale = float(np.sqrt(source.variances[:, point].mean()))
        found = source.density(scale * y, point)
        mean, sem = scale * np.asarray(found.value), scale * np.asarray(found.sem)
    else:
        samples = np.asarray(source, float)
        groups = np.array_split(samples, _GROUPS) if samples.ndim == 1 else list(samples)
        scale = float(np.sqrt(np.mean(samples**2)))
        mean = _estimate(samples.ravel() / scale, y)
        each = np.array([_estimate(group / scale, y) for group in groups])
        sem = np.nan_to_num(each).std(axis=0, ddof=1) / np.sqrt(len(each))
    draw_density(ax, y, mean, sem, label=label, colour=colour or COLOURS["nngp"])
    if gaussian:
        ink = ax.xaxis.label.get_color()
        normal = np.exp(-0.5 * y * y) / np.sqrt(2 * np.pi)
        ax.plot(y, normal, "--", color=ink, alpha=0.7, linewidth=1.1, label="Gaussian", zorder=1)
    ax.set_xlim(y[0], y[-1])
    ax.set_ylim(1e-6, 1.0)
    ax.set_xlabel("output, in standard deviations")
    ax.set_ylabel("density")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize="small", loc="lower center")
    return ax


def _estimate(samples: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A kernel density estimate between the least and the greatest sample, nan elsewhere."""
    inside = np.mean((samples >= y[0]) & (samples <= y[-1]))
    p = kde(samples, y) * inside / (y[1] - y[0])
    return np.where((y >= samples.min()) & (y <= samples.max()), p, np.nan)


def draw_density(ax: Axes, y, mean, sem, *, label, colour, line: str = "-") -> None:
    """A density on a logarithmic axis with a band of two standard errors."""
    ax.plot(y, mean, line, color=colour, linewidth=1.3, label=label)
    low = np.maximum(mean - 2 * sem, 1e-12)
    ax.fill_between(y, low, mean + 2 * sem, color=colour, alpha=0.25, linewidth=0)
    ax.set_yscale("log")
    ax.grid(axis="y")
