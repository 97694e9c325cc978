"""The page of `rank_report`: figures and tables."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np

from ..report.figures import drawing
from ..report.html import Markup, facts, figure, gallery, page, section, table
from ..report.provenance import provenance
from .rank import GENERATOR, SHOWN, RankReport
from .spec import Model

_MODEL, _ANEW, _LIMIT = "#3f83dd", "#e0812f", "#3a7d44"
_ROWS = 12


def rank_page(model: Model, r: RankReport, command: str) -> str:
    """The report as one HTML file that refers to nothing outside of it.

    Args:
        model: that was analysed.
        r: what was found.
        command: what makes the page again.
    """
    n, d = r.paths.output.shape
    about = facts({"layers": model.depth, "heads": max(model.heads), "channels": d, "tokens": n})
    curves = [
        figure(drawing(lambda ax, m=m: _plot_curves(ax, r, m), f"curve {m}", f"{m} by layer"))
        for m in SHOWN
    ]
    maps = drawing(lambda ax: _plot_maps(ax, r), "maps", "Dobrushin coefficient of heads by layer")
    lengths = drawing(lambda ax: _plot_paths(ax, r), "paths", "norms of paths by length")
    limit = (
        "The limit is what the configuration predicts for infinite width and infinitely many "
        "heads, before any training."
        if r.limit is not None
        else f"The limit is not shown: {r.no_limit}."
    )
    sections = [
        section("Verdict", r.verdict, about),
        section(
            "Tokens through depth",
            "*Residual*: the part of the stream's norm in which tokens "
            "differ; 0 is collapse. *Cosine* of two different tokens; 1 is collapse. *Effective "
            "rank* of the token matrix, not centred; 1 is collapse. *Dobrushin coefficient*: how "
            "differently two tokens attend, one dot per head; a head at 0 makes all tokens equal. "
            "Weights drawn anew: the mean of four models of this size, and all of them. " + limit,
            gallery([*curves, figure(maps)], smallest=380),
        ),
        section(
            "Paths by length",
            "With attention maps, norms and MLPs frozen at their values, the output is a sum over "
            "paths that take the skip or one head in every layer; MLPs and biases are sources of "
            "length 0. *Share* is the part of the output in its own direction (negative: against "
            "it), *share of residual* that of what tells tokens apart.",
            figure(lengths, narrow=True),
            _paths_table(r),
        ),
        section(
            "Heads",
            "The output by the last head that a signal passed, with that head's map. Layers and "
            "heads count from 0.",
            _heads_table(r),
        ),
        provenance(
            r.settings, {"analysis": r.seconds}, command, datetime.datetime.now().astimezone()
        ),
    ]
    return page(
        f"Rank of {model.name}",
        "Where tokens collapse, and what keeps them apart.",
        sections,
        GENERATOR,
    )


def _paths_table(r: RankReport) -> Markup:
    columns = (
        r.paths.counts,
        r.paths.norm,
        r.paths.residual,
        r.paths.share,
        r.paths.residual_share,
        r.signs.rms,
    )
    rows = [
        (str(k), _count(c), f"{norm:.4g}", f"{res:.3f}", f"{s:.4f}", f"{t:.4f}", f"{rms:.3g}")
        for k, (c, norm, res, s, t, rms) in enumerate(zip(*columns, strict=True))
    ]
    check = (
        f"The parts add up to the model's output to {r.paths.gap:.1e} relative "
        f"(tolerance {r.paths.tolerance:.0e})."
    )
    head = (
        "length",
        "paths",
        "norm of their sum",
        "residual",
        "share",
        "share of residual",
        "residual norm of one",
    )
    return table(head, rows, check, "rrrrrrr")


def _heads_table(r: RankReport) -> Markup:
    rows = []
    for i in np.argsort(-np.abs(r.heads.share))[:_ROWS]:
        layer, head = r.heads.labels[i]
        of_map = ("", "")
        if layer >= 0:
            of_map = (
                f"{r.attention.dobrushin[layer][head]:.2f}",
                f"{r.attention.entropy[layer][head]:.2f}",
            )
        rows.append(
            (
                "no head" if layer < 0 else f"layer {layer}, head {head}",
                f"{r.heads.norm[i]:.4g}",
                f"{r.heads.residual[i]:.3f}",
                f"{r.heads.share[i]:.4f}",
                f"{r.heads.residual_share[i]:.4f}",
                *of_map,
            )
        )
    n = len(r.paths.output)
    check = (
        f"The {len(rows)} largest; all add up to the output to {r.heads.gap:.1e} relative. Entropy "
        f"in nats; attention to all {n} tokens alike has {np.log(n):.2f}."
    )
    head = ("part", "norm", "residual", "share", "share of residual", "Dobrushin", "entropy")
    return table(head, rows, check, "lrrrrrr")


def _count(paths: int) -> str:
    return f"{paths:,}" if paths < 10**7 else f"{Decimal(paths):.1e}"


def _plot_curves(ax, r: RankReport, metric: str) -> None:
    values = r.initial.values[metric][:, 0]
    ax.fill_between(
        range(values.shape[1]),
        values.min(axis=0),
        values.max(axis=0),
        color=_ANEW,
        alpha=0.25,
        lw=0,
    )
    ax.plot(values.mean(axis=0), "o-", ms=3, color=_ANEW, label="weights drawn anew")
    ax.plot(r.trained.mean(metric), "o-", ms=3, color=_MODEL, label="this model")
    if r.limit is not None:
        ax.plot(r.limit[metric], "--", color=_LIMIT, label="limit of the configuration")
    ax.set_xlabel("layers passed")
    ax.set_ylabel(metric.replace("_", " "))
    ax.set_ylim(0, max(1.0, ax.get_ylim()[1]))
    ax.legend()


def _plot_maps(ax, r: RankReport) -> None:
    for found, name, colour, shift in (
        (r.attention, "this model", _MODEL, -0.1),
        (r.attention_initial, "weights drawn anew", _ANEW, 0.1),
    ):
        x = np.concatenate([np.full(len(t), i + shift) for i, t in enumerate(found.dobrushin)])
        ax.plot(x, np.concatenate(found.dobrushin), ".", color=colour, label=name)
    ax.set_xlabel("layer")
    ax.set_ylabel("Dobrushin coefficient")
    ax.set_ylim(0, 1.02)
    ax.legend()


def _plot_paths(ax, r: RankReport) -> None:
    """Their sum, and one of them."""
    for values, name, colour in (
        (r.paths.norm, "all paths of this length together", _MODEL),
        (r.signs.rms, "one path, what tells tokens apart", _ANEW),
    ):
        ax.semilogy(np.where(values > 0, values, np.nan), "o-", ms=4, color=colour, label=name)
    ax.set_xlabel("path length")
    ax.set_ylabel("norm")
    ax.legend()
