"""How non-Gaussian networks are: curves over one parameter, a phase map over two."""

from __future__ import annotations

import numpy as np

from limitformer.extras import optional
from limitformer.heads.sweep import Sweep
from limitformer.plot.axes import Axes, axes_or_new
from limitformer.plot.scales import written

NAMES = {
    "kl": "KL divergence from a Gaussian",
    "wasserstein": "Wasserstein distance from a Gaussian",
    "energy": "energy distance from a Gaussian",
    "kurtosis": "excess kurtosis",
    "spread": "relative std of the second moment",
    "heads": "heads",
    "tokens": "tokens",
    "qk_std": r"$s_{QK}$",
    "depth": "depth",
    "skip": "skip weight",
}


def plot_sweep(
    sweep: Sweep, ax: Axes | None = None, *, along: str = "heads", value: str = "kl"
) -> Axes:
    """A distance against one parameter, one line for each combination of the others.

    Bars are two standard errors; dashes are sizes of floors, where they are within reach.

    Args:
        sweep: of `limitformer.heads.sweep.sweep`.
        ax: matplotlib axes; None: new ones.
        along: the parameter.
        value: "kl", "wasserstein", "energy", "kurtosis" or "spread".

    Returns:
        The axes.

    Raises:
        ValueError: a parameter that was not swept over.
    """
    _check(sweep, along)
    ax = axes_or_new(ax)
    lines: dict[tuple, list] = {}
    for row, record in zip(sweep.rows, sweep.records(), strict=True):
        others = tuple((k, v) for k, v in row.parameters.items() if k != along)
        floor = record.get(f"{value}_floor", np.nan)
        entry = (record[along], record[value], record[f"{value}_sem"], floor)
        lines.setdefault(others, []).append(entry)
    colours = optional("matplotlib", "plot").colormaps["viridis"](
        np.linspace(0.1, 0.85, len(lines))
    )
    for (others, entries), colour in zip(lines.items(), colours, strict=True):
        x, y, sem, floor = np.array(sorted(entries), float).T
        label = ", ".join(f"{NAMES.get(k, k)} = {v:g}" for k, v in others) or None
        ax.errorbar(
            x, y, yerr=2 * sem, fmt="o-", color=colour, markersize=4, capsize=2, label=label
        )
        seen = np.abs(floor) > y.min() / 100
        ax.plot(x[seen], np.abs(floor[seen]), "_", color=colour, markersize=9)
    places = sorted({row.parameters[along] for row in sweep.rows})
    if places[0] > 0:
        ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(places, [f"{v:g}" for v in places])
    ax.minorticks_off()
    ax.set_xlabel(NAMES.get(along, along))
    ax.set_ylabel(NAMES.get(value, value))
    ax.grid(axis="y")
    if len(lines) > 1:
        ax.legend(fontsize="small")
    return ax


def plot_phase_map(
    sweep: Sweep,
    ax: Axes | None = None,
    *,
    x: str = "qk_std",
    y: str = "tokens",
    value: str = "kl",
) -> Axes:
    """A distance over two parameters, in colour and as numbers; in parentheses below its floor.

    Args:
        sweep: of `limitformer.heads.sweep.sweep`, over x and y alone.
        ax: matplotlib axes; None: new ones.
        x, y: the parameters.
        value: "kl", "wasserstein", "energy", "kurtosis" or "spread".

    Returns:
        The axes.

    Raises:
        ValueError: parameters that were not swept over, or others as well.
    """
    _check(sweep, x, y)
    if set(sweep.rows[0].parameters) != {x, y}:
        raise ValueError(
            f"the sweep is over {', '.join(sweep.rows[0].parameters)}; "
            f"a map needs {x} and {y} alone"
        )
    ax = axes_or_new(ax)
    columns = sorted({row.parameters[x] for row in sweep.rows})
    rows = sorted({row.parameters[y] for row in sweep.rows})
    found = np.full((len(rows), len(columns)), np.nan)
    for row, record in zip(sweep.rows, sweep.records(), strict=True):
        i, j = rows.index(row.parameters[y]), columns.index(row.parameters[x])
        found[i, j] = record[value]
        resolved = record[value] > max(record.get(f"{value}_floor", 0.0), 0.0)
        text = written(record[value]) if record[value] > 0 else "0"
        ax.text(j, i, text if resolved else f"({text})", ha="center", va="center")
    shade = np.log10(np.maximum(found, np.nanmax(found) * 1e-9))
    low, high = np.nanmin(shade), np.nanmax(shade)
    # Light enough that the numbers are read everywhere.
    ax.imshow(
        shade,
        cmap="YlOrBr",
        origin="lower",
        vmin=low,
        vmax=high + 0.6 * (high - low),
        aspect="auto",
    )
    ax.set_xticks(range(len(columns)), [f"{v:g}" for v in columns])
    ax.set_yticks(range(len(rows)), [f"{v:g}" for v in rows])
    ax.set_xlabel(NAMES.get(x, x))
    ax.set_ylabel(NAMES.get(y, y))
    ax.set_title(NAMES.get(value, value), fontsize="medium")
    return ax


def _check(sweep: Sweep, *parameters: str) -> None:
    there = sweep.rows[0].parameters
    for name in parameters:
        if name not in there:
            raise ValueError(f"no parameter {name!r} in this sweep; there are {', '.join(there)}")
