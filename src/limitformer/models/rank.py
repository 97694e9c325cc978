"""One page about a model: does it lose rank with depth, and which paths carry its output?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..depth.curves import Curves
from ..depth.paths import Paths, path_decomposition
from ..depth.paths_heads import Contributions, head_contributions
from ..depth.paths_signs import SignedSums, random_signs
from ..depth.profile import depth_profile
from ..report.figures import drawing
from ..report.files import check_target, write_report
from ..report.html import facts, figure, gallery, page, section, table
from .initial import reinitialised
from .limit import limit_of
from .profile import AttentionProfile, attention_profile, stream_profile
from .spec import Model

GENERATOR = "limitformer rank"
_SHOWN = ("residual", "cosine", "effective_rank")
_DRAWS = 64  # of scores, for the limit


@dataclasses.dataclass(frozen=True, eq=False)
class RankReport:
    """Everything on the page; made by `rank_report`.

    Attributes:
        trained, initial: collapse metrics of the stream, of the model and of one with its weights
            drawn anew.
        limit: the same metrics of `limit_of` the model's configuration at the embedding and after
            every block, by name; None where the limit is not known.
        attention, attention_initial: Dobrushin coefficients and entropies.
        paths: the output by path length.
        signs: sums over individual paths.
        heads: the output by the last head.
        verdict: in words.
    """

    trained: Curves
    initial: Curves
    limit: dict[str, np.ndarray] | None
    attention: AttentionProfile
    attention_initial: AttentionProfile
    paths: Paths
    signs: SignedSums
    heads: Contributions
    verdict: str


def rank_report(model: Model, x: Any, out: str | Path | None = None, *, key=None) -> RankReport:
    """Analyse a model on one input, and write an HTML page about it.

    Args:
        model: of `limitformer.models`.
        x: text, token ids, an image or a stream.
        out: file to write; None writes nothing.
        key: of the initial weights and the random signs; fixed unless given.

    Raises:
        FileExistsError: `out` exists and is not such a report.
    """
    if out is not None:
        check_target(Path(out), GENERATOR)
    key = jax.random.key(0) if key is None else key
    fresh = reinitialised(model, key=jax.random.fold_in(key, 0))
    trained, first = stream_profile(model, x), stream_profile(fresh, x)
    attention, attention_first = attention_profile(model, x), attention_profile(fresh, x)
    paths = path_decomposition(model, x)
    signs = random_signs(model, x, key=jax.random.fold_in(key, 1), draws=8)
    heads = head_contributions(model, x)
    verdict = _verdict(trained, attention, paths)
    found = RankReport(
        trained,
        first,
        _limit(model, x),
        attention,
        attention_first,
        paths,
        signs,
        heads,
        verdict,
    )
    if out is not None:
        write_report(Path(out), _page(model, found), GENERATOR)
    return found


def _limit(model: Model, x: Any) -> dict[str, np.ndarray] | None:
    """Metrics of the network of infinite width and heads, on tokens like these."""
    ids = model.tokenize(x) if isinstance(x, str) and model.tokenize is not None else np.asarray(x)
    if model.config is None or ids.ndim != 1 or ids.dtype.kind not in "iu":
        return None
    try:
        net = limit_of(model)
    except ValueError:  # an architecture whose limit is not known
        return None
    profile = depth_profile(net, ids[None], draws=_DRAWS, dtype=np.float64)
    turns = [i for i, name in enumerate(profile.layers) if "Repeat" in name]
    kept = [turns[0] - 1, *turns]
    return {metric: profile[metric][kept] for metric in _SHOWN}


def _verdict(curves: Curves, attention: AttentionProfile, paths: Paths) -> str:
    residual = curves.mean("residual")
    lowest = int(np.argmin(residual))
    if residual[-1] < 0.05:
        state = f"The tokens have collapsed: {residual[-1]:.2g} of the output tells them apart."
    elif residual[-1] < 0.5 * residual[0]:
        state = (
            f"The model loses rank: tokens differ by {residual[0]:.2f} of their norm at the input "
            f"and by {residual[-1]:.2f} at the output."
        )
    else:
        state = (
            f"No collapse: tokens differ by {residual[0]:.2f} of their norm at the input and by "
            f"{residual[-1]:.2f} at the output."
        )
    at = f"The lowest is {residual[lowest]:.2f} at {curves.layers[lowest]}."
    half = int(np.searchsorted(np.cumsum(paths.share), 0.9))
    carried = f"Paths of length {half} or less carry 90 per cent of the output."
    tau = np.array([t.mean() for t in attention.dobrushin])
    maps = (
        f"Its attention maps have Dobrushin coefficients of {tau.min():.2f} to {tau.max():.2f} in "
        "the mean of a layer (1 need not contract tokens at all, 0 makes them equal)."
    )
    return " ".join((state, at, carried, maps))


def _page(model: Model, r: RankReport) -> str:
    n, d = r.paths.output.shape
    about = facts({"layers": model.depth, "heads": max(model.heads), "channels": d, "tokens": n})
    curves = gallery(
        figure(drawing(lambda ax, m=m: _plot_curves(ax, r, m), f"curve {m}", f"{m} by layer"))
        for m in _SHOWN
    )
    maps = figure(
        drawing(lambda ax: _plot_maps(ax, r), "maps", "Dobrushin coefficient of heads by layer"),
        "One dot per head: how differently two queries attend. Initial maps are nearly uniform.",
        narrow=True,
    )
    rows = [
        (str(k), f"{c:,}", f"{norm:.4g}", f"{res:.3f}", f"{share:.4f}", f"{rms:.3g}")
        for k, (c, norm, res, share, rms) in enumerate(
            zip(
                r.paths.counts,
                r.paths.norm,
                r.paths.residual,
                r.paths.share,
                r.signs.rms,
                strict=True,
            )
        )
    ]
    head = ("length", "paths", "norm", "residual", "share", "residual norm of one path")
    check = (
        f"The parts add up to the model's output to {r.paths.gap:.1e} relative "
        f"(tolerance {r.paths.tolerance:.0e})."
    )
    order = np.argsort(-np.abs(r.heads.share))[:12]
    parts = [
        (
            _label(r.heads.labels[i]),
            f"{r.heads.norm[i]:.4g}",
            f"{r.heads.residual[i]:.3f}",
            f"{r.heads.share[i]:.4f}",
            f"{r.heads.residual_share[i]:.4f}",
        )
        for i in order
    ]
    sections = [
        section("Verdict", r.verdict, about),
        section(
            "Tokens through depth",
            "Residual: the part of the stream's norm in which tokens differ. Cosine: of two "
            "different tokens. Effective rank: of the token matrix, not centred. Weights drawn "
            "anew are one network of this size; the limit is what the configuration predicts for "
            "infinite width and heads, before any training.",
            curves,
        ),
        section("Attention maps", maps),
        section(
            "Paths by length",
            "With attention, norms and MLPs frozen, the output is a sum over paths that take the "
            "skip or one head in every layer; MLPs and biases are sources of length 0.",
            table(head, rows, check, "rrrrrr"),
        ),
        section(
            "Heads",
            "The output by the last head that a signal passed.",
            table(
                ("part", "norm", "residual", "share", "share of residual"),
                parts,
                f"The twelve largest; all add up to the output to {r.heads.gap:.1e} relative.",
                "lrrrr",
            ),
        ),
    ]
    return page(
        f"Rank of {model.name}",
        "Where tokens collapse, and what keeps them apart.",
        sections,
        GENERATOR,
    )


def _label(label: tuple[int, int]) -> str:
    layer, head = label
    return "no head" if layer < 0 else f"layer {layer}, head {head}"


def _plot_curves(ax, r: RankReport, metric: str) -> None:
    for curves, name, colour in (
        (r.trained, "this model", "#3f83dd"),
        (r.initial, "weights drawn anew", "#e0812f"),
    ):
        ax.plot(curves.mean(metric), "o-", ms=3, color=colour, label=name)
    if r.limit is not None:
        ax.plot(r.limit[metric], "--", color="#3a7d44", label="limit of the configuration")
    ax.set_xlabel("layer")
    ax.set_ylabel(metric.replace("_", " "))
    ax.set_ylim(bottom=0)
    ax.legend()


def _plot_maps(ax, r: RankReport) -> None:
    for found, name, colour, shift in (
        (r.attention, "this model", "#3f83dd", -0.1),
        (r.attention_initial, "weights drawn anew", "#e0812f", 0.1),
    ):
        x = np.concatenate([np.full(len(t), i + shift) for i, t in enumerate(found.dobrushin)])
        ax.plot(x, np.concatenate(found.dobrushin), ".", color=colour, label=name)
    ax.set_xlabel("layer")
    ax.set_ylabel("Dobrushin coefficient")
    ax.set_ylim(0, 1.02)
    ax.legend()
