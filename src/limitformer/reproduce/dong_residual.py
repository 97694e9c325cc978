"""Figure 2 of Dong 2021: the relative residual per layer as parts of a transformer are removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from ..depth.metrics import relative_residual
from ..models import Mlp, Model, reinitialised, steps, stream
from .dong_models import KINDS, VARIANTS, excerpts, minilm, random_model, renumbered, variant
from .dong_tables import DongResult, Table, mean_sem, number

# Pretrained BERT, layers 0 to 12, as printed (theory 4); what is not listed is 0 to three decimals.
PUBLISHED = {
    "attention only": (0.687, 0.676, 0.315, 0.139, 0.031, 0.003, 0.0),
    "attention + MLP": (0.687, 0.433, 0.209, 0.040, 0.002, 0.0),
    "attention + skip": (
        *(0.687, 0.717, 0.636, 0.489, 0.353, 0.223, 0.205),
        *(0.240, 0.233, 0.174, 0.141, 0.096, 0.074),
    ),
    "full": (
        *(0.687, 0.666, 0.559, 0.504, 0.466, 0.401, 0.379),
        *(0.380, 0.390, 0.391, 0.395, 0.369, 0.310),
    ),
}
_EXPLANATION = (
    "Relative residual ||res X||_{1,inf} / ||X||_{1,inf} with the mean as centre, at the input "
    "(layer 0) and after every layer, mean ± standard error over texts. Without the skip an "
    "attention sublayer is norm(SA(h)); without the MLP its whole sublayer is gone; a kept MLP "
    "keeps its own skip; norms stay. Below 1e-15 a number is rounding."
)
_NOTES = (
    "The paper's numbers are those of pretrained BERT-base (12 layers, 768 channels) on excerpts "
    "of Wikipedia biographies. The pretrained model here is MiniLM (6 layers, 384 channels, 12 "
    "heads: distilled from a BERT, then trained for sentence similarity) on movie reviews: the "
    "curves can be compared in shape, not digit by digit.",
    "Random weights are one draw of each model, so the standard errors are over texts only. Their "
    "standard deviation is 0.02 sqrt(768 / width), which has the gains of the base models.",
    "At random weights attention is nearly uniform, and one layer without a skip removes almost "
    "all of the residual; with the skip most of it is left after 12 layers, except in ALBERT, "
    "whose layers add what the same weights write.",
    "The fall is doubly exponential where scores depend on tokens only. Those of XLNet also depend "
    "on the distance of two tokens, so its maps differ between queries even when all tokens are "
    "equal: there the theorem's hypothesis is not met, and attention only falls by a constant "
    "factor per layer.",
)


def layer_residuals(model: Model, x) -> np.ndarray:
    """(L + 1,): relative residual in ||.||_{1,inf} with mean centre, at the input and per layer.

    A layer ends where the next sublayer is not its MLP.
    """
    states = [stream(model, x)]
    following = (*model.sublayers[1:], None)
    for step in steps(model, x):
        after = following[step.index]
        if after is None or not isinstance(after.branch, Mlp):
            states.append(step.after)
    return np.array([relative_residual(h, norm="1inf") for h in states])


def residual_of(model: Model, inputs: Sequence) -> dict[str, np.ndarray]:
    """For every variant (samples, L + 1): `layer_residuals` of each input."""
    return {
        name: np.stack([layer_residuals(variant(model, name), x) for x in inputs])
        for name in VARIANTS
    }


def dong_residual(
    data: str | Path,
    *,
    folder: str | Path | None = None,
    samples: int = 32,
    tokens: int = 128,
    width: int = 256,
    depth: int = 12,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> DongResult:
    """Figure 2, for MiniLM pretrained and initial, and for BERT, ALBERT, XLNet at random weights.

    Args:
        data: for `lf.data.imdb`, whose test reviews are the texts.
        folder: of another pretrained BERT; None is MiniLM.
        samples, tokens: texts, and tokens of each.
        width, depth: of the models with random weights.
        seed: of the random weights.
        report: called with a line of text now and then.
    """
    start = time.perf_counter()
    if samples < 2:
        raise ValueError(f"samples={samples}; use at least 2 texts for a standard error")
    trained = minilm(folder)
    ids = excerpts(trained, data, samples=samples, tokens=tokens)
    few, vocabulary = renumbered(ids)
    found = {}

    def add(name: str, model: Model, inputs: Sequence) -> None:
        found[name] = residual_of(model, inputs)
        if report is not None:
            report(f"{name}: {time.perf_counter() - start:.0f} s")

    pretrained = f"{trained.name}, pretrained"
    add(pretrained, trained, ids)
    add(f"{trained.name}, initial", reinitialised(trained, key=jax.random.key(seed)), ids)
    for kind in KINDS:
        model = random_model(
            kind, width=width, depth=depth, tokens=tokens, vocabulary=vocabulary, seed=seed
        )
        add(model.name, model, few)
    settings = {
        "texts": f"{samples} IMDb test reviews, first {tokens} tokens",
        "pretrained": f"{trained.depth} layers, {trained.width} channels, {trained.heads[0]} heads",
        "random weights": f"{depth} layers, {width} channels, {width // 64} heads",
        "precision": "float64",
    }
    tables = [_against(pretrained, found[pretrained])]
    tables += [_alone(name, curves) for name, curves in found.items() if name != pretrained]
    return DongResult(
        name="residual",
        title="figure 2: relative residual per layer",
        explanation=_EXPLANATION,
        tables=tables,
        data={"published": PUBLISHED, "layers": _layers(found)},
        settings=settings,
        notes=_NOTES,
        seconds=time.perf_counter() - start,
    )


def _layers(found: dict[str, dict[str, np.ndarray]]) -> dict:
    return {
        model: {
            name: dict(zip(("mean", "sem"), mean_sem(values), strict=True))
            for name, values in curves.items()
        }
        for model, curves in found.items()
    }


def _against(model: str, curves: dict[str, np.ndarray]) -> Table:
    """Ours beside the published numbers, layer by layer."""
    head = ["layer", *(text for name in VARIANTS for text in (name, "BERT, paper"))]
    depth = max(len(PUBLISHED[n]) for n in VARIANTS)
    rows = []
    for l in range(max(depth, len(curves["full"][0]))):
        row = [str(l)]
        for name in VARIANTS:
            mean, sem = mean_sem(curves[name])
            row.append(number(mean[l], sem[l]) if l < len(mean) else "")
            paper = PUBLISHED[name]
            row.append(f"{paper[l] if l < len(paper) else 0:.3f}" if l < depth else "")
        rows.append(row)
    return Table(f"**{model}**, beside the published numbers of pretrained BERT", head, rows)


def _alone(model: str, curves: dict[str, np.ndarray]) -> Table:
    parts = [mean_sem(curves[name]) for name in VARIANTS]
    rows = [
        [str(l), *(number(mean[l], sem[l]) for mean, sem in parts)] for l in range(len(parts[0][0]))
    ]
    return Table(f"**{model}**", ["layer", *VARIANTS], rows)
