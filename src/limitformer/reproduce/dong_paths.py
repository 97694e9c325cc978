"""Paths of Dong 2021: how many there are of each length, and what is left of tokens in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..depth.metrics import relative_residual
from ..depth.paths import path_counts, path_decomposition
from ..depth.paths_recompute import recompute_paths
from ..depth.paths_signs import random_signs
from ..depth.paths_single import enumerate_paths, run_paths, sample_paths
from ..models import Model
from .dong_models import excerpts, minilm
from .dong_tables import DongResult, Table, mean_sem, number

READINGS = {
    "MLPs are sources": {"mlp": "source"},
    "through MLPs": {"mlp": "inside"},
    "recomputed": None,
}
_BERT = (12,) * 12  # heads of BERT-base, whose histogram the paper shows
_EXPLANATION = (
    "A path takes the skip or one of the H heads in each of L layers; its length is the number of "
    "heads. There are C(L, k) H^k paths of length k. The residual is ||res P|| / ||P|| in "
    "||.||_{1,inf} with mean centre, of individual paths drawn uniformly (all of them where they "
    "are few), mean ± standard error over texts. Three readings: attention, norms and MLPs frozen "
    "at the model's own values, MLPs as sources or as parts of paths, which add up to the model; "
    "and recomputed, the path as a network of its own, as the paper does."
)
_NOTES = (
    "Shares are <S_k, output> / ||output||^2 of the sum S_k of all paths of length k, MLPs as "
    "sources: they add up to 1, and may be negative. The share of a single path is smaller by the "
    "number of paths.",
    "rms is the root mean square over all paths of a length of ||res P||_F, from random signs "
    "(unbiased in the square), over that of length 0.",
    "With MLPs as sources, length 0 holds everything that MLPs and biases write, and a longer path "
    "what entered before its first head.",
    "Paths collapse as networks of their own (recomputed): after a few heads all tokens are equal, "
    "and the next map with them. Inside the model they do not: its maps are those of a stream that "
    "skips keep apart, and a long path loses norm (rms) rather than rank.",
    "A relative residual above 1 is possible: ||.||_{1,inf} is not a norm that centring shrinks.",
)


def path_residuals(
    model: Model, x: Any, *, draws: int, key, readings: Sequence[str] = tuple(READINGS)
) -> dict[str, np.ndarray]:
    """For every reading (L + 1,): mean relative residual of paths of each length.

    Args:
        model, x: as for `path_decomposition`.
        draws: paths per length; all of them where there are no more.
        key: of the draws.
        readings: keys of `READINGS`.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    uniform = [np.ones(H) for H in model.heads]
    found: dict[str, list[float]] = {name: [] for name in readings}
    for k, count in enumerate(path_counts(model.heads)):
        if count <= draws:
            paths = enumerate_paths(model.heads, k)
        else:
            paths, _ = sample_paths(uniform, k, draws, rng)
        for name in readings:
            options = READINGS[name]
            if options is None:
                P = recompute_paths(model, x, paths)
            else:
                P = run_paths(model, x, paths, **options)
            found[name].append(float(np.mean(relative_residual(P, norm="1inf"))))
    return {name: np.array(values) for name, values in found.items()}


def dong_paths(
    data: str | Path,
    *,
    folder: str | Path | None = None,
    samples: int = 4,
    tokens: int = 128,
    draws: int = 16,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> DongResult:
    """Path counts, path residuals and path shares of a pretrained encoder, by length.

    Args:
        data, folder, tokens, report: as for `dong_residual`.
        samples: texts.
        draws: paths of each length and text.
        seed: of the draws.
    """
    start = time.perf_counter()
    if samples < 2 or draws < 2:
        raise ValueError(f"samples={samples}, draws={draws}; use at least 2 of both")
    model = minilm(folder)
    residuals: dict[str, list] = {name: [] for name in READINGS}
    shares, rms, gaps = [], [], []
    for i, x in enumerate(excerpts(model, data, samples=samples, tokens=tokens)):
        key = jax.random.fold_in(jax.random.key(seed), i)
        for name, values in path_residuals(model, x, draws=draws, key=key).items():
            residuals[name].append(values)
        parts = path_decomposition(model, x)
        shares.append(parts.share)
        gaps.append(parts.gap)
        signs = random_signs(model, x, key=jax.random.fold_in(key, 1), draws=8)
        rms.append(signs.rms / signs.rms[0])
        if report is not None:
            report(f"text {i + 1} of {samples}: {time.perf_counter() - start:.0f} s")
    counts = path_counts(model.heads)
    numbers = {name: mean_sem(np.array(values)) for name, values in residuals.items()}
    numbers["share"] = mean_sem(np.array(shares))
    numbers["rms"] = mean_sem(np.array(rms))
    rows = [
        [str(k), f"{count:,}", *(number(mean[k], sem[k]) for mean, sem in numbers.values())]
        for k, count in enumerate(counts)
    ]
    head = ["length", "paths", *(f"residual, {name}" for name in READINGS), "share", "rms"]
    of_bert = path_counts(_BERT)
    total = sum(of_bert)
    bert = [[str(k), f"{c:.3e}", f"{c / total:.4f}"] for k, c in enumerate(of_bert)]
    return DongResult(
        name="paths",
        title="paths by length: how many, and how far collapsed",
        explanation=_EXPLANATION,
        tables=[
            Table(f"**{model.name}**, {model.depth} layers of {model.heads[0]} heads", head, rows),
            Table("**BERT-base**, 12 layers of 12 heads", ["length", "paths", "fraction"], bert),
        ],
        data={
            "counts": {model.name: counts, "BERT-base": of_bert},
            "by length": {
                name: {"mean": mean, "sem": sem} for name, (mean, sem) in numbers.items()
            },
        },
        settings={
            "texts": f"{samples} IMDb test reviews, first {tokens} tokens",
            "paths": f"{draws} of each length and text, uniformly",
            "precision": "float64; below 1e-15 a residual is rounding",
            "sum of parts - model": f"{max(gaps):.1e} relative, at most",
        },
        notes=_NOTES,
        seconds=time.perf_counter() - start,
    )
