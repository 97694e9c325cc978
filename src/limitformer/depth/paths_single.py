"""Individual paths: each run by itself, all of them where they are few, else a weighted sample."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..layers.base import choice
from ..models.forward import Step, steps
from ..models.inputs import stream
from ..models.spec import Attention, Model
from .paths import MLPS, path_counts, residual_norm
from .paths_frozen import advance, skip_over, through_head

SKIP = -1
_BYTES = 2**27  # of path states that are carried at a time


@dataclasses.dataclass(frozen=True)
class LengthStatistics:
    """A statistic over all paths of one length.

    Attributes:
        length: heads of each path.
        count: number of such paths.
        evaluated: how many were run; all of them, once each, where `exact`.
        exact: no estimate.
        mean, mean_sem: of the statistic over paths, and its standard error.
        total, total_sem: sum over paths.
        effective: effective sample size (sum w)^2 / sum w^2 of the weights w = 1 / probability.
    """

    length: int
    count: int
    evaluated: int
    exact: bool
    mean: float
    mean_sem: float
    total: float
    total_sem: float
    effective: float


def path_statistics(
    model: Model,
    x: Any,
    *,
    key,
    statistic: Callable[[np.ndarray], np.ndarray] = residual_norm,
    mlp: str = "source",
    draws: int = 64,
    proposal: str = "residual",
    lengths: Sequence[int] | None = None,
) -> list[LengthStatistics]:
    """A statistic of individual paths, by length.

    Lengths with at most `draws` paths are enumerated. Of the others, paths are drawn with
    probability q(P) = prod r_lh / e_k(r): independent weights r_lh for the heads, given the length
    (e_k: the elementary symmetric polynomial of the layers' sums), and sum_P f(P) = E[f(P) / q(P)].

    Args:
        model, x, mlp: as for `path_decomposition`.
        key: of the draws.
        statistic: of a stack of paths (m, n, d), one number each; ||res P||_F by default.
        draws: paths per length.
        proposal: "residual" weighs a head by how much of the residual it passes on,
            ||res A_h x W_h|| / ||res x||, which suits norms; "uniform" suits ratios.
        lengths: which; all by default.

    Returns:
        One `LengthStatistics` per length. An effective sample size far below `draws` says that the
        estimate hangs on few paths: draw more, or use the other proposal.
    """
    choice("proposal", proposal, ("residual", "uniform"))
    choice("mlp", mlp, MLPS)
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    counts = path_counts(model.heads)
    asked = range(len(counts)) if lengths is None else lengths
    weights = _uniform(model) if proposal == "uniform" else head_gains(model, x)
    chosen, log_q = [], []
    for k in asked:
        if not 0 <= k < len(counts):
            raise ValueError(f"lengths are from 0 to {len(counts) - 1}, got {k}")
        if counts[k] <= draws:
            chosen.append(enumerate_paths(model.heads, k))
            log_q.append(None)
        else:
            paths, logs = sample_paths(weights, k, draws, rng)
            chosen.append(paths)
            log_q.append(logs)
    values = _evaluate(model, x, np.concatenate(chosen), mlp, statistic)
    parts = np.split(values, np.cumsum([len(c) for c in chosen])[:-1])
    return [
        _statistics(k, counts[k], part, logs)
        for k, part, logs in zip(asked, parts, log_q, strict=True)
    ]


def run_paths(model: Model, x: Any, paths: Any, *, mlp: str = "source") -> np.ndarray:
    """(m, n, d): what each path contributes to the output, everything else frozen.

    Args:
        model, x, mlp: as for `path_decomposition`.
        paths: (m, L) integers; the head taken in each attention layer, or -1 for the skip.

    Returns:
        The contributions; those of all paths add up to the output.
    """
    choice("mlp", mlp, MLPS)
    paths = np.asarray(paths)
    heads = np.asarray(model.heads)
    if paths.ndim != 2 or paths.shape[1] != len(heads):
        raise ValueError(f"paths have shape (m, {len(heads)}), got {paths.shape}")
    if ((paths < SKIP) | (paths >= heads)).any():
        raise ValueError(f"a path takes a head from 0 on, below {heads.tolist()}, or -1, the skip")
    inside = mlp == "inside"
    zero = stream(model, x)
    state = np.zeros((len(paths), *zero.shape), zero.dtype)
    begun = np.zeros(len(paths), bool)
    layer = -1
    for step in steps(model, x):
        if isinstance(step.sublayer.branch, Attention):
            layer += 1
            state, begun = _take(step, state, begun, zero, paths[:, layer], inside)
        elif begun.any():
            state[begun] = skip_over(step, state[begun], inside)
        zero = advance(step, zero[None], inside)[0]
    state[~begun] = zero
    return state


def _take(
    step: Step,
    state: np.ndarray,
    begun: np.ndarray,
    zero: np.ndarray,
    heads: np.ndarray,
    inside: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """One attention layer: each path through its head, or past it."""
    new = state.copy()
    past = begun & (heads == SKIP)
    if past.any():
        new[past] = skip_over(step, state[past], inside)
    for head in np.unique(heads[heads != SKIP]):
        going = heads == head
        begins = ~begun[going]
        given = np.where(begins[:, None, None], zero, state[going])
        new[going] = through_head(step, given, int(head), begins)
    return new, begun | (heads != SKIP)


def enumerate_paths(heads: Sequence[int], length: int | None = None) -> np.ndarray:
    """(m, L): all paths, or all of one length.

    Example:
        >>> enumerate_paths((2, 1), 1).tolist()
        [[-1, 0], [0, -1], [1, -1]]
    """
    every = itertools.product(*(range(SKIP, H) for H in heads))
    kept = [p for p in every if length is None or sum(h != SKIP for h in p) == length]
    return np.asarray(kept, int).reshape(-1, len(heads))


def sample_paths(
    weights: Sequence[np.ndarray], length: int, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Paths of one length with probability proportional to the product of their heads' weights.

    Args:
        weights: for each layer (H,), positive.

    Returns:
        (draws, L) paths, and the logarithms of their probabilities (draws,).
    """
    layers = np.array([w.sum() for w in weights])
    L = len(layers)
    # e[l, k]: elementary symmetric polynomial of the layers from l on
    e = np.zeros((L + 1, length + 1))
    e[L, 0] = 1
    for l in reversed(range(L)):
        e[l] = e[l + 1]
        e[l, 1:] += layers[l] * e[l + 1, :-1]
    paths = np.full((draws, L), SKIP)
    left = np.full(draws, length)
    log_q = np.full(draws, -np.log(e[0, length]))
    for l, w in enumerate(weights):
        taken = layers[l] * e[l + 1, np.maximum(left - 1, 0)] * (left > 0)
        goes = rng.random(draws) < taken / e[l, left]
        head = rng.choice(len(w), draws, p=w / w.sum())
        paths[goes, l] = head[goes]
        log_q += np.where(goes, np.log(w[head]), 0.0)
        left = left - goes
    return paths, log_q


def head_gains(model: Model, x: Any) -> list[np.ndarray]:
    """For each layer (H,): ||res A_h x W_h||_F / ||res x||_F on the actual stream."""
    gains = []
    for step in steps(model, x):
        if isinstance(step.sublayer.branch, Attention):
            written = residual_norm(step.heads()).astype(np.float64)
            gains.append(np.maximum(written / residual_norm(step.inner), 1e-6))
    return gains


def _uniform(model: Model) -> list[np.ndarray]:
    return [np.ones(H) for H in model.heads]


def _evaluate(model: Model, x: Any, paths: np.ndarray, mlp: str, statistic) -> np.ndarray:
    """The statistic of every path, a bounded number of them at a time."""
    n, d = stream(model, x).shape
    size = max(1, _BYTES // (n * d * model.dtype.itemsize))
    parts = np.array_split(paths, -(-len(paths) // size))
    return np.concatenate([_numbers(statistic, run_paths(model, x, p, mlp=mlp)) for p in parts])


def _numbers(statistic, states: np.ndarray) -> np.ndarray:
    values = np.asarray(statistic(states), np.float64)
    if values.shape != states.shape[:1]:
        raise ValueError(
            f"statistic must give one number per path, {states.shape[:1]}, got {values.shape}"
        )
    return values


def _statistics(
    length: int, count: int, values: np.ndarray, log_q: np.ndarray | None
) -> LengthStatistics:
    m = len(values)
    if log_q is None:
        total = float(values.sum())
        return LengthStatistics(length, count, m, True, total / count, 0.0, total, 0.0, float(m))
    # weights against the uniform law over the count paths, whose mean is 1
    w = np.exp(-log_q - np.log(count))
    mean, sem = float(np.mean(w * values)), float(np.std(w * values, ddof=1) / np.sqrt(m))
    effective = float(w.sum() ** 2 / np.sum(w**2))
    return LengthStatistics(
        length, count, m, False, mean, sem, mean * count, sem * count, effective
    )
