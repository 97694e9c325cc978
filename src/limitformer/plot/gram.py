"""A kernel as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limitformer.plot.axes import Axes, axes_or_new


def plot_gram(
    K: np.ndarray,
    ax: Axes | None = None,
    *,
    labels: Sequence | np.ndarray | None = None,
    limits: tuple[float, float] | None = None,
    colours: str = "viridis",
    label: str = "",
) -> Axes:
    """A Gram matrix, with inputs of one label side by side.

    Args:
        K: (n, n), or (n, m) without labels.
        ax: matplotlib axes; None: new ones.
        labels: (n,) classes; rows and columns are sorted by them (the order within a class is
            kept), and classes are told apart by lines and named.
        limits: values of the first and the last colour; None: smallest and largest.
        colours: a matplotlib colour map.
        label: what the colours mean, beside the colour bar; empty: no colour bar.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    K = np.asarray(K)
    if K.ndim != 2:
        raise ValueError(f"K must be (n, m), got shape {K.shape}; take k.nngp or k.ntk")
    low, high = limits if limits is not None else (None, None)
    if labels is not None:
        classes = np.asarray(labels)
        if K.shape != (len(classes), len(classes)):
            raise ValueError(f"K has shape {K.shape}, but there are {len(classes)} labels")
        order = np.argsort(classes, kind="stable")
        K = K[np.ix_(order, order)]
        names, starts, counts = np.unique(classes[order], return_index=True, return_counts=True)
        middles = starts + (counts - 1) / 2
        if len(names) < len(classes):
            for start in starts[1:]:
                ax.axhline(start - 0.5, color="white", linewidth=0.4, alpha=0.7)
                ax.axvline(start - 0.5, color="white", linewidth=0.4, alpha=0.7)
        ax.set_xticks(middles, [str(name) for name in names])
        ax.set_yticks(middles, [str(name) for name in names])
        ax.tick_params(length=0)
    image = ax.imshow(K, cmap=colours, vmin=low, vmax=high, interpolation="none")
    ax.spines[:].set_visible(False)
    ax.set_anchor("N")
    if label and ax.figure is not None:
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.85, pad=0.02)
        if np.max(image.get_clim()) < 1:
            bar.ax.yaxis.set_major_formatter("{x:.3f}")  # plots side by side get the same size
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        bar.set_label(label)
    return ax
