"""A picture of a network: boxes in order, sums and repeats around them, the cost beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limitformer.plot.axes import COLOURS, Axes, axes_or_new

if TYPE_CHECKING:
    from limitformer.files import Description

_HEIGHT = 0.42  # inches of a row
_INDENT = 0.18  # of a level, in units of the axes
_WIDTH = 4.0  # of the boxes
_BAR = 1.6  # longest bar of a cost
_LONGEST = 46  # characters of hyper-parameters

Nest = tuple[int, int, int]  # first row, last row, level


def figure_size(description: Description) -> tuple[float, float]:
    """Inches that a picture needs."""
    return 7.0, 0.6 + _HEIGHT * max(2, len(description.rows))


def depths(paths: list[str]) -> list[int]:
    """How many of the layers each layer is inside of.

    >>> depths(["0.Dense", "1.Repeat", "1.Repeat/loop", "1.Repeat/loop/branch/0.Relu"])
    [0, 0, 1, 2]
    """
    return [sum(path.startswith(f"{other}/") for other in paths) for path in paths]


def plot_architecture(description: Description, ax: Axes | None = None) -> Axes:
    """The layers of a network from top to bottom, with each one's share of the kernel's time.

    A layer is a box, with its hyper-parameters; a composite (`Residual`, `Repeat`, ...) is a frame
    around its layers, named in its first row. Bars are there if the description has costs.

    Args:
        description: of `limitformer.files.describe(net, x)`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.

    Example:
        >>> import limitformer as lf
        >>> found = lf.files.describe(lf.Serial(lf.Dense(), lf.Residual(lf.Attention())))
        >>> len(plot_architecture(found).patches)
        3
    """
    ax = axes_or_new(ax)
    from matplotlib.patches import FancyBboxPatch

    ink = ax.xaxis.label.get_color()
    rows = description.rows
    levels = depths([row.path for row in rows])
    round_box = "round,pad=0,rounding_size=0.08"
    for first, last, level in _nests(levels):
        ax.add_patch(
            FancyBboxPatch(
                (level * _INDENT, -last - 0.46),
                _WIDTH - 2 * level * _INDENT,
                last - first + 0.92,
                boxstyle=round_box,
                facecolor=COLOURS["nngp"],
                alpha=0.1,
                linewidth=0,
            )
        )
    framed = {first for first, _, _ in _nests(levels)}
    for i, (row, level) in enumerate(zip(rows, levels, strict=True)):
        left = level * _INDENT + 0.06
        if i not in framed:
            ax.add_patch(
                FancyBboxPatch(
                    (left, -i - 0.36),
                    _WIDTH - 2 * left,
                    0.72,
                    boxstyle=round_box,
                    facecolor="none",
                    edgecolor=ink,
                    linewidth=0.8,
                )
            )
        ax.text(left + 0.08, -i, row.layer, va="center", fontsize=9, fontweight="bold", color=ink)
        text = row.hyper_parameters
        text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        ax.text(left + 0.98, -i, text, va="center", fontsize=6.5, color=ink, clip_on=True)
    if description.plan is not None:
        _costs(ax, description, ink)
    ax.set_xlim(-0.05, _WIDTH + (_BAR + 0.55 if description.plan is not None else 0.05))
    ax.set_ylim(-len(rows) + 0.45, 0.95 if description.plan is not None else 0.55)
    ax.set_axis_off()
    return ax


def _nests(levels: list[int]) -> list[Nest]:
    """Frames around the rows below a row that are deeper than it, outer ones first."""
    found = []
    for i, level in enumerate(levels):
        last = i
        while last + 1 < len(levels) and levels[last + 1] > level:
            last += 1
        if last > i:
            found.append((i, last, level))
    return found


def _costs(ax: Axes, description: Description, ink) -> None:
    """Bars with the share of time, beside the boxes."""
    largest = max((row.share or 0.0 for row in description.rows), default=0.0) or 1.0
    ax.text(_WIDTH + 0.1, 0.75, "share of the kernel's time", fontsize=8, va="center", color=ink)
    for i, row in enumerate(description.rows):
        if row.share is None:
            continue
        length = _BAR * row.share / largest
        ax.barh(-i, length, 0.5, left=_WIDTH + 0.1, color=COLOURS["ntk"])
        percent = f"{100 * row.share:.0f} %"
        ax.text(_WIDTH + 0.15 + length, -i, percent, va="center", fontsize=8, color=ink)
