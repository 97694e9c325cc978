"""Eigenvalues of a Gram matrix, and the targets' power in its eigenvectors."""

from __future__ import annotations

import numpy as np

from limitformer.gp.spectrum import Spectrum
from limitformer.plot.axes import COLOURS, Axes, axes_or_new
from limitformer.plot.scales import second_axis

_NEGATIVE = "#d0453e"


def plot_spectrum(spectrum: Spectrum, ax: Axes | None = None) -> Axes:
    """Eigenvalues against their rank, with the fitted power law, on logarithmic axes.

    The power law is drawn if it explains nine tenths of the variance of log eigenvalues. Open
    circles are sizes of negative eigenvalues; below the dotted line there is only rounding. If the
    spectrum has targets, a second axis on the right shows their power in the leading eigenvectors.

    Args:
        spectrum: of `limitformer.gp.spectrum.spectrum`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    ink = ax.xaxis.label.get_color()
    values = spectrum.eigenvalues
    rank = np.arange(1, len(values) + 1)
    positive = values > 0
    shown = ax.plot(
        rank[positive],
        values[positive],
        "o",
        color=COLOURS["nngp"],
        markersize=3,
        label="eigenvalues",
    )
    if np.any(values < 0):
        count = np.count_nonzero(values < 0)
        shown += ax.plot(
            rank[values < 0],
            -values[values < 0],
            "o",
            markerfacecolor="none",
            color=_NEGATIVE,
            markersize=3.5,
            label=f"{count} negative, as −λ",
        )
    decay = spectrum.decay
    if decay is not None and decay.r2 > 0.9:
        ends = np.array([decay.first, decay.last])
        shown += ax.plot(
            ends,
            decay(ends),
            "--",
            color=ink,
            alpha=0.75,
            linewidth=1.3,
            label=f"rank$^{{−{decay.exponent:.2f}}}$, ± {decay.sem:.2f}",
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    if np.min(np.abs(values)) < 10 * spectrum.floor:
        shown.append(
            ax.axhline(
                spectrum.floor, color=ink, alpha=0.5, linestyle=":", linewidth=1, label="rounding"
            )
        )
    ax.set_xlabel("rank")
    ax.set_ylabel("eigenvalue")
    ax.grid(axis="y")
    if spectrum.total_power is not None:
        right = second_axis(ax, COLOURS["ntk"], "power of targets, cumulative (%)")
        right.plot(rank, 100 * spectrum.total_power, color=COLOURS["ntk"])
        right.set_ylim(0, 104)
    # Eigenvalues fall and power rises: below the crossing there is room.
    place = "lower left" if spectrum.total_power is None else "lower center"
    ax.legend(handles=shown, loc=place, fontsize="small")
    return ax
