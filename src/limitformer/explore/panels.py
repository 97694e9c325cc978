"""What the page shows, as plain numbers and words for JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.integrate

from ..estimate import Estimate
from ..heads.law import Law
from . import network
from .runs import WORK, Cache, Check, KernelRun, Step
from .settings import INFINITE, Settings

STAGES = 3
"""An answer at once, and better ones while nothing moves."""
_MORE = (1, 4, 16)  # times the draws of the first
_ENOUGH = 2048  # draws, or networks
_SHOWN_DRAWS = 128  # of which the joint density is drawn
_DIRECTIONS = 36
_MASSES = (0.5, 0.9)
_THIN = 1e-7
_LOST = 1e-13  # of a variance: rounding
_THUMBS, _THUMB_TOKENS = 5, 22
_BAND = (0.05, 0.95)
_OF = {
    "token": "the first token's output",
    "mean": "the mean token's output",
    "difference": "the difference of the first two tokens' outputs",
}


def texts(s: Settings) -> dict[str, str]:
    """The network to copy, and the query string of its permalink."""
    return {"toml": network.toml(s), "python": network.python(s), "query": s.query}


def theory(s: Settings, stage: int, cache: Cache, check: Check) -> dict[str, Any]:
    """Token kernel, density, collapse through depth, and contours for the cloud.

    Args:
        s: the settings.
        stage: 0, 1, 2: more and more draws.
        cache: of runs.
        check: raises where nobody waits for the answer any more.
    """
    runs = _runs(s, stage, cache)
    steps = [run.steps(s.depth, check) for run in runs]
    layers = [_joined(list(parts)) for parts in zip(*steps, strict=True)]
    last, fixed = layers[-1], s.infinite or not s.random
    density = _density(s, last, fixed)
    depth = _depth(s, layers, fixed)
    if s.random and not s.infinite:
        depth["limit"] = _limit(s, stage, cache, check)
    draws = sum(run.draws for run in runs)
    return {
        "stage": stage,
        "done": _done(s, stage, runs),
        "draws": draws if s.random else None,
        "heads": runs[0].heads if s.infinite and s.random else None,
        "kernel": _kernel(layers),
        "density": density,
        "depth": depth,
        "contours": _contours(last.corner.mean(axis=0)[None] if fixed else last.corner),
        "summary": _summary(s, density, depth),
    }


def twin(s: Settings, stage: int, cache: Cache, check: Check) -> dict[str, Any]:
    """Outputs of finite networks: the first two tokens, and what the density is of."""
    count, found = 0, []
    for seed in range(_MORE[stage]):
        run = cache.twin(s, seed)
        found.append(run.outputs(s.depth, check))
        count += run.networks
        if count >= _ENOUGH:
            break
    y = np.concatenate(found).astype(float)
    seen = _functional(s, y)
    variance = np.mean(seen**2)
    sem = np.std(seen**2, ddof=1) / math.sqrt(len(seen))
    words = (
        f"{len(y)} finite networks of width {s.width}: variance {_number(variance)} ± "
        f"{_number(sem, 1)}"
    )
    return {
        "stage": stage,
        "done": stage == STAGES - 1 or count >= _ENOUGH,
        "points": _rounded(y[:, :2]),
        "seen": _rounded(seen),
        "variance": _one(variance),
        "sem": _one(sem),
        "summary": words,
    }


def _runs(s: Settings, stage: int, cache: Cache) -> list[KernelRun]:
    if not s.random:
        return [cache.kernel(s, 0)]
    if s.infinite:  # the bias of an average over n draws is O(1/n): more, not again
        return [cache.kernel(s, stage, WORK * _MORE[stage])]
    first = cache.kernel(s, 0)
    count = min(_MORE[stage], -(-_ENOUGH // first.draws))
    return [first, *(cache.kernel(s, seed) for seed in range(1, count))]


def _done(s: Settings, stage: int, runs: list[KernelRun]) -> bool:
    if not s.random or stage == STAGES - 1:
        return True
    return not s.infinite and sum(run.draws for run in runs) >= _ENOUGH


def _joined(steps: list[Step]) -> Step:
    """The draws of several runs after one block, which count alike."""
    if len(steps) == 1:
        return steps[0]
    fields = {f.name: [getattr(step, f.name) for step in steps] for f in dataclasses.fields(Step)}
    mean = np.mean(fields.pop("mean"), axis=0)
    return Step(mean, **{name: np.concatenate(parts) for name, parts in fields.items()})


def _functional(s: Settings, y: np.ndarray) -> np.ndarray:
    """What the density is of, from outputs `(networks, tokens)`."""
    if s.of == "mean":
        return y.mean(axis=1)
    return y[:, 0] if s.of == "token" else y[:, 0] - y[:, 1]


def _variances(s: Settings, step: Step) -> np.ndarray:
    """`(draws,)` the variance of that output given the scores."""
    if s.of == "mean":
        return np.maximum(step.pooled, 0.0)
    K = step.corner
    if s.of == "token":
        return K[:, 0, 0]
    return np.maximum(K[:, 0, 0] + K[:, 1, 1] - 2 * K[:, 0, 1], 0.0)


def _density(s: Settings, step: Step, fixed: bool) -> dict[str, Any]:
    v = _variances(s, step)
    variance, scale = float(v.mean()), float(step.corner[:, 0, 0].mean())
    if not variance > _LOST * scale or not math.isfinite(variance):
        return {"variance": _one(variance), "lost": True, "fixed": fixed}
    sem = _sem(v)
    y = np.linspace(-5, 5, 161) * math.sqrt(variance)
    gaussian = np.exp(-(y**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    found: dict[str, Any] = {
        "variance": _one(variance),
        "variance_sem": sem,
        "lost": False,
        "fixed": fixed,
        "y": _rounded(y),
        "gaussian": _rounded(gaussian),
    }
    if fixed:
        return found
    law = Law([(v[:, None, None], None)])
    p, kurtosis = law.density(y), law.kurtosis
    if np.ptp(v) <= 1e-12 * variance:  # this output does not depend on the scores
        kurtosis = Estimate(np.zeros(1), np.zeros(1))
    return found | {
        "law": _rounded(p.value),
        "sem": _rounded(p.sem),
        "kurtosis": _one(kurtosis.value[0]),
        "kurtosis_sem": _one(kurtosis.sem[0]),
    }


def _kernel(layers: list[Step]) -> dict[str, Any]:
    depth = len(layers) - 1
    shown = sorted({round(i * depth / (_THUMBS - 1)) for i in range(_THUMBS)})
    every = -(-len(layers[0].mean) // _THUMB_TOKENS)
    return {
        "tokens": len(layers[0].mean),
        "values": _rounded(layers[-1].mean, 4),
        "through": [
            {"block": i, "values": _rounded(layers[i].mean[::every, ::every], 3)} for i in shown
        ],
    }


def _depth(s: Settings, layers: list[Step], fixed: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"limit": None}
    for metric in ("cosine", "residual"):
        values = np.stack([getattr(step, metric) for step in layers], axis=1)  # (draws, layers)
        found[metric] = {"mean": _rounded(values.mean(axis=0))}
        if not fixed:
            low, high = np.quantile(values, _BAND, axis=0)
            found[metric] |= {"low": _rounded(low), "high": _rounded(high)}
        found[metric]["sem"] = _sem(values[:, -1])
    return found


def _limit(s: Settings, stage: int, cache: Cache, check: Check) -> dict[str, Any] | None:
    """The curves of infinitely many heads, once the first answer is out."""
    if stage == 0:
        return None
    s = dataclasses.replace(s, heads=INFINITE)
    layers = cache.kernel(s, 0).steps(s.depth, check)
    return {
        m: _rounded([getattr(step, m).mean() for step in layers]) for m in ("cosine", "residual")
    }


def _contours(corner: np.ndarray) -> dict[str, Any] | None:
    """Curves that hold half and 90 % of the first two tokens' outputs.

    p(r L u) = E[ det(K)^-1/2 exp(-r^2 u^T L^T K^-1 L u / 2) ] falls along every ray u, with
    L L^T = E[K], so a level is one radius in every direction.
    """
    K = corner[:_SHOWN_DRAWS]
    mean = K.mean(axis=0)
    variance = np.diagonal(mean)
    if not (variance > 0).all() or not np.isfinite(variance).all():
        return None
    thin = _THIN * np.diag(variance)  # collapsed tokens lie on a line
    K, L = K + thin, np.linalg.cholesky(mean + thin)
    angle = np.linspace(0, math.pi, _DIRECTIONS, endpoint=False)  # and their opposites
    u = np.stack([np.cos(angle), np.sin(angle)])
    r = np.linspace(0, 8, 160)
    inside = np.linalg.solve(np.linalg.cholesky(K), np.broadcast_to(L @ u, (len(K), *u.shape)))
    q = np.sum(inside**2, axis=1)  # (draws, directions)
    det = np.linalg.det(L) / np.sqrt(np.linalg.det(K))
    p = np.mean(det[:, None, None] * np.exp(-np.square(r) * q[..., None] / 2), axis=0)
    levels = p.mean(axis=0)
    inward = scipy.integrate.cumulative_trapezoid(p * r, r, axis=1, initial=0.0)
    radius = np.array([np.interp(-levels, -along, r) for along in p])  # (directions, levels)
    held = np.mean(
        [np.interp(*three) for three in zip(radius, [r] * len(p), inward, strict=True)], axis=0
    )
    curves = []
    for mass in _MASSES:
        level = np.interp(mass * inward[:, -1].mean(), held, levels)
        half = ([np.interp(-level, -along, r) for along in p] * (L @ u)).T
        curves.append(_rounded(np.concatenate([half, -half, half[:1]]), 4))
    ends = 3.4 * np.sqrt(variance)
    return {"x": _one(ends[0]), "y": _one(ends[1]), "curves": curves}


def _summary(s: Settings, density: dict, depth: dict) -> str:
    """What the panels say, in words."""
    what = _OF[s.of]
    count = "infinitely many heads" if s.infinite else f"{s.heads} head{'s' * (s.heads != '1')}"
    if density["lost"]:
        first = f"{count}: nothing is left of {what} in double precision"
    elif not s.random:
        first = f"scores do not fluctuate at scale 1/d: {what} is Gaussian for any number of heads"
    elif s.infinite:
        first = f"{count}: {what} is Gaussian, variance {_number(density['variance'])}"
    elif density["kurtosis"] == 0:
        first = f"{count}: {what} is Gaussian, because its variance is the same for all scores"
    else:
        first = (
            f"{count}: {what} has excess kurtosis {_number(density['kurtosis'])} ± "
            f"{_number(density['kurtosis_sem'], 1)}"
        )
    cosine = depth["cosine"]["mean"]
    blocks = f"{s.depth} block{'s' * (s.depth != 1)}"
    second = f"Tokens' mean cosine goes from {cosine[0]:.2f} to {_near_one(cosine[-1])} in {blocks}"
    return f"{first[0].upper()}{first[1:]}. {second}."


def _near_one(value: float) -> str:
    gap = 1 - value
    return f"1 − {gap:.0e}" if 0 < gap < 1e-3 else f"{value:.3g}"


def _number(value: Any, digits: int = 2) -> str:
    """Two digits, without an exponent where that is short."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-4 <= abs(value) < 1e4:
        return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.{digits - 1}e}"


def _sem(values: np.ndarray) -> float | None:
    if len(values) < 2:
        return None
    return _one(np.std(values, ddof=1) / math.sqrt(len(values)))


def _one(value) -> float | None:
    """A number as JSON has it."""
    value = float(f"{float(value):.6g}")
    return value if math.isfinite(value) else None


def _rounded(values, digits: int = 5) -> Any:
    """Nested lists of numbers with so many significant digits."""
    values = np.asarray(values, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.floor(np.log10(np.abs(values)))
    unit = 10.0 ** (digits - 1 - np.where(np.isfinite(power), np.clip(power, -280, 280), 0))
    return (np.round(values * unit) / unit).tolist()
