"""Collapse against depth: profiles, correlation maps, phase diagrams, doubly exponential decay."""

from __future__ import annotations

import numpy as np

from limitformer.depth.bounds import Bound
from limitformer.depth.correlation import CorrelationMap
from limitformer.depth.critical import PhaseDiagram
from limitformer.depth.profile import DepthProfile
from limitformer.depth.split import Split
from limitformer.plot.axes import COLOURS, Axes, axes_or_new

_WORDS = {
    "residual": "relative residual",
    "cosine": "mean token cosine",
    "effective_rank": "effective rank",
    "stable_rank": "stable rank",
    "energy": "Dirichlet energy",
    "variance": "mean token variance",
    "tangent_ratio": "tr T / tr K",
    "tangent_cosine": "mean cosine of token gradients",
    "tangent_condition": "condition of the tangent kernel",
}


def plot_depth_profile(
    profile: DepthProfile,
    metric: str = "cosine",
    ax: Axes | None = None,
    log: bool = False,
    probability: float = 0.9,
) -> Axes:
    """One metric against depth: kernels (line), finite heads (band), finite networks (points).

    The band holds `probability` of the draws of finite heads, around their mean (dashed); points
    carry the standard error over networks.

    Args:
        profile: of `lf.depth_profile`.
        metric: its name.
        ax: matplotlib axes; None: new ones.
        log: logarithmic scale of the metric.
        probability: of the band.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    depth = np.arange(len(profile.layers))
    heads, twin = profile.heads, profile.twin
    if heads is not None and metric in heads.values:
        low, high = heads.band(metric, probability)
        ax.fill_between(depth, low, high, color=COLOURS["ntk"], alpha=0.22, linewidth=0)
        ax.plot(depth, heads.mean(metric), "--", color=COLOURS["ntk"], label=heads.label)
    ax.plot(depth, profile[metric], color=COLOURS["nngp"], label=profile.kernel.label)
    sem = profile.kernel.sem(metric)
    if sem is not None:
        low, high = profile[metric] - 2 * sem, profile[metric] + 2 * sem
        ax.fill_between(depth, low, high, color=COLOURS["nngp"], alpha=0.3, linewidth=0)
    if twin is not None and metric in twin.values:
        ax.errorbar(
            depth,
            twin.mean(metric),
            yerr=twin.sem(metric),
            fmt="o",
            color=ax.xaxis.label.get_color(),
            markersize=4,
            capsize=2,
            label=twin.label,
        )
    if log:
        ax.set_yscale("log")
    ax.set_xlabel(f"layer, of {len(depth) - 1}")
    ax.set_ylabel(_WORDS.get(metric, metric))
    ax.locator_params(axis="x", integer=True)
    ax.grid(axis="y")
    ax.legend()
    return ax


def plot_correlation_map(found: CorrelationMap, ax: Axes | None = None) -> Axes:
    """c' against c with the diagonal; full circles are stable fixed points, empty ones are not.

    Args:
        found: of `limitformer.depth.correlation_map`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    ink = ax.xaxis.label.get_color()
    ax.plot([found.c[0], 1], [found.c[0], 1], ":", color=ink, alpha=0.6, linewidth=1.1)
    error = None if found.sem is None else 2 * found.sem
    ax.errorbar(found.c, found.after, yerr=error, color=COLOURS["nngp"], capsize=2)
    for point in found.fixed_points:
        fill = COLOURS["nngp"] if point.stable else "none"
        ax.plot(point.c, point.c, "o", color=COLOURS["nngp"], markerfacecolor=fill, markersize=8)
        ax.annotate(
            f"slope {point.slope:.3g}",
            (point.c, point.c),
            xytext=(-10, -4),
            textcoords="offset points",
            ha="right",
            va="top" if point.c < 0.5 else "center",
        )
    ax.set_xlabel("token correlation c before the block")
    ax.set_ylabel("c' after it")
    ax.grid()
    return ax


def plot_phase_diagram(
    found: PhaseDiagram, ax: Axes | None = None, target: float | None = None
) -> Axes:
    """The metric as colours over two parameters, with the line on which it is `target`.

    Args:
        found: of `limitformer.depth.phase_diagram`.
        ax: matplotlib axes; None: new ones.
        target: level of the line; None: no line.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    mesh = ax.pcolormesh(
        found.second, found.first, found.values, shading="nearest", rasterized=True
    )
    ax.figure.colorbar(mesh, ax=ax, label=_WORDS.get(found.metric, found.metric))
    if target is not None and found.values.min() < target < found.values.max():
        line = ax.contour(found.second, found.first, found.values, [target], colors="white")
        ax.clabel(line, fmt=f"{target:g}")
    ax.set_xlabel(found.names[1])
    ax.set_ylabel(found.names[0])
    return ax


def plot_decay(found: Split, bounds: tuple[Bound, ...] = (), ax: Axes | None = None) -> Axes:
    """log10 of the residual of pure attention against depth, each layer's exponent beside it.

    Bounds are drawn where their hypothesis holds. The dotted line is where float64 tokens are
    equal.

    Args:
        found: of `limitformer.depth.split`.
        bounds: of `limitformer.depth.dong`, `measured`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    ten = np.log(10.0)
    log = found.log_distance("1inf") / ten
    depth = np.arange(len(log))
    ax.plot(depth, log, "o-", color=COLOURS["nngp"], markersize=5, label="residual")
    for l, exponent in enumerate(found.exponents, 1):
        if l > 1:
            ax.annotate(
                f"{exponent:.2f}",
                (depth[l], log[l]),
                xytext=(6, 2),
                textcoords="offset points",
            )
    ink = ax.xaxis.label.get_color()
    for bound, style in zip(bounds, ("--", "-.", (0, (1, 1))), strict=False):
        shown = np.where(bound.violated, np.nan, bound.log / ten)
        ax.plot(depth[1:], shown, linestyle=style, color=COLOURS["ntk"], label=bound.name)
    ax.axhline(-16, color=ink, alpha=0.6, linestyle=":", linewidth=1.1, label="float64 rounding")
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(top=max(1.0, float(log.max()) + 1))
    ax.set_xlabel("layer")
    ax.set_ylabel("log10 of the residual")
    ax.grid(axis="y")
    ax.legend()
    return ax
