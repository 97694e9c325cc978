"""Scales that several plots need: round ticks on logarithmic axes, a second axis on the right."""

from __future__ import annotations

import numpy as np

from limitformer.extras import optional
from limitformer.plot.axes import Axes


def log_ticks(ax: Axes, which: str, low: float, high: float) -> None:
    """Limits of a logarithmic axis, with ticks at round numbers.

    Args:
        ax: matplotlib axes.
        which: "x" or "y".
        low, high: positive limits.
    """
    axis = ax.xaxis if which == "x" else ax.yaxis
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    few = bool(high / low < 1e4)
    steps = (1, 2, 5) if few else (1,)
    every = 1 if few else int(np.ceil(len(decades) / 7))
    ticks = [m * 10.0**e for e in decades[::every] for m in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    (ax.set_xscale if which == "x" else ax.set_yscale)("log")
    (ax.set_xlim if which == "x" else ax.set_ylim)(low, high)
    axis.set_ticks(ticks, labels=[written(tick, plain=few) for tick in ticks])
    axis.set_minor_locator(optional("matplotlib.ticker", "plot").NullLocator())


def second_axis(ax: Axes, colour: str, label: str) -> Axes:
    """Axes on top of others that share x and have their own y axis, in their colour, on the right.

    Args:
        ax: matplotlib axes.
        colour: of the axis, its label and its ticks.
        label: what its values are.
    """
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    right.spines[["left", "top", "bottom"]].set_visible(False)
    right.spines["right"].set_color(colour)
    right.tick_params(axis="y", which="both", colors=colour)
    right.set_ylabel(label, color=colour)
    return right


def written(value: float, plain: bool = True) -> str:
    """A number as people write it: 0.02, 500, 10⁻⁶, in matplotlib's own mathematics.

    Args:
        value: a positive number.
        plain: without a power of ten where that is as short.

    Example:
        >>> written(0.02), written(1e-6), written(3.2e-7), written(0.01, plain=False)
        ('0.02', '$10^{−6}$', '$3.2·10^{−7}$', '$10^{−2}$')
    """
    if (plain or value == 1) and 1e-3 <= value < 1e5:
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    exponent = int(np.floor(np.log10(value) + 1e-9))
    factor = f"{value / 10.0**exponent:.2g}"
    power = f"10^{{{exponent}}}".replace("-", "−")
    return f"${power}$" if factor == "1" else f"${factor}·{power}$"
