"""The demo's step and section on depth: which networks keep their tokens apart."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

import limitformer as lf
from limitformer.depth.profile import DepthProfile
from limitformer.report import html
from limitformer.report.figures import drawing

_COLOURS = {
    "attention": "#c23b22",
    "attention, skips": "#d9822b",
    "attention, MLPs": "#3a7d44",
    "whole blocks": "#2b6cb0",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Depth:
    """Collapse profiles of the digits network with parts taken away; made by `profiles`."""

    profiles: dict[str, DepthProfile]
    images: int


def profiles(
    patches: tuple, attention: Any, images: np.ndarray, *, depth: int, draws: int, progress=None
) -> Depth:
    """Token similarity by layer, with and without skips and MLPs.

    Args:
        patches: the network's first layers, which make tokens.
        attention: of every block.
        images: whose tokens are followed.
        depth: number of blocks.
        draws: of scores.
        progress: called with the part that is done.
    """
    mlp = (lf.Dense(2**0.5), lf.Relu(), lf.Dense())
    norm = lf.LayerNorm()
    blocks = {
        "attention": lf.Serial(norm, attention),
        "attention, skips": lf.Residual(norm, attention),
        "attention, MLPs": lf.Serial(norm, attention, norm, *mlp),
        "whole blocks": lf.Serial(lf.Residual(norm, attention), lf.Residual(norm, *mlp)),
    }
    found = {}
    for i, (name, block) in enumerate(blocks.items()):
        net = lf.Serial(*patches, lf.Repeat(block, depth))
        found[name] = lf.depth_profile(net, images, draws=draws, key=jax.random.key(0))
        if progress is not None:
            progress((i + 1) / len(blocks))
    return Depth(found, len(images))


def depth(demo: Any) -> html.Markup:
    """Curves and a table."""
    found: Depth = demo.depth

    def plot(ax, metric: str, words: str) -> None:
        for name, profile in found.profiles.items():
            values = profile[metric]
            ax.plot(np.arange(len(values)), values, color=_COLOURS[name], label=name)
        ax.set_xlabel("layer")
        ax.set_ylabel(words)
        ax.grid(axis="y")
        ax.legend(fontsize="small")

    figures = [
        html.figure(
            drawing(
                lambda ax, m=metric, w=words: plot(ax, m, w),
                f"depth-{metric}",
                f"{words} by layer for four kinds of network.",
                (4.6, 3.6),
            ),
            caption,
        )
        for metric, words, caption in (
            ("cosine", "mean token cosine", "Tokens that have become equal have cosine 1."),
            (
                "effective_rank",
                "effective rank",
                "How many directions the patches of one image still span.",
            ),
        )
    ]
    rows = [
        (name, f"{p['cosine'][-1]:.4f}", f"{p['effective_rank'][-1]:.2f}", p.verdict())
        for name, p in found.profiles.items()
    ]
    return html.section(
        "How deep?",
        "Attention averages tokens, and averages of averages forget what they were made of: "
        "without skips every token of a deep network becomes the same. The kernel shows it before "
        "any network is trained, and which parts prevent it.",
        html.gallery(figures, 330),
        html.table(
            ("blocks of", "last cosine", "last rank", "in words"),
            rows,
            f"Softmax attention at the scale of real transformers, on the patches of "
            f"{found.images} digits; infinitely many heads.",
            "lrrl",
        ),
    )
