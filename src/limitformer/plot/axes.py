"""What every plot shares: axes to draw on, and the colours of the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from limitformer.extras import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any  # matplotlib is an extra, imported by the first plot

# Readable on white and on black, and different in lightness as well as in hue.
COLOURS = {"nngp": "#3f83dd", "ntk": "#e0812f"}
NAMES = {"nngp": "NNGP", "ntk": "NTK"}


def axes_or_new(ax: Axes | None) -> Axes:
    """The axes given, or those of a new pyplot figure.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    if ax is not None:
        return ax
    return optional("matplotlib.pyplot", "plot").subplots(layout="constrained")[1]
