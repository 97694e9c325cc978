"""Finite networks on their way to the limit."""

from __future__ import annotations

import numpy as np

from limitformer.plot.axes import COLOURS, NAMES, Axes, axes_or_new
from limitformer.report.convergence import KINDS, Convergence


def plot_convergence(result: Convergence, ax: Axes | None = None) -> Axes:
    """Relative errors of single twins against their width, on logarithmic axes.

    Faint points are twins, points with bars are means with standard errors, and the dashed line
    falls as 1/sqrt(width).

    Args:
        result: of `limitformer.report.convergence.convergence`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    widths = np.array([w.width for w in result.widths])
    shifts = {"nngp": 2**-0.07, "ntk": 2**0.07}  # side by side, so that bars do not overlap
    for kind in KINDS:
        x, colour = widths * shifts[kind], COLOURS[kind]
        for place, w in zip(x, result.widths, strict=True):
            errors = w.errors[kind]
            ax.plot(
                np.full(len(errors), place), errors, ".", color=colour, alpha=0.25, markersize=4
            )
        label = NAMES[kind]
        if len(widths) > 1:
            fit = result.slope(kind)
            label = f"{label}: slope {fit.slope:.2f} ± {fit.slope_sem:.2f}".replace("-", "−")
        ax.errorbar(
            x,
            [w.mean(kind) for w in result.widths],
            yerr=[w.sem(kind) for w in result.widths],
            fmt="o",
            color=colour,
            markersize=5,
            capsize=2.5,
            label=label,
        )
    # Through the centre of all means.
    means = [w.mean(kind) for kind in KINDS for w in result.widths]
    centre = np.exp(np.mean(np.log(means)) + 0.5 * np.mean(np.log(widths)))
    ends = np.array([widths[0] / 1.25, widths[-1] * 1.25])
    ax.plot(
        ends,
        centre * ends**-0.5,
        "--",
        color=ax.xaxis.label.get_color(),
        alpha=0.6,
        linewidth=1.1,
        label="1/√width",
    )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(widths, [str(w) for w in widths])
    low, high = ax.get_ylim()
    ax.set_yticks([tick for tick in _TICKS if low <= tick <= high])
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    ax.minorticks_off()
    ax.grid(axis="y")
    ax.set_xlabel("width of the network")
    ax.set_ylabel("relative error of its kernel")
    ax.legend(loc="lower left")
    return ax


_TICKS = [m * 10.0**e for e in range(-6, 3) for m in (1, 2, 5)]
