"""Choose the noise: one eigendecomposition gives every ridge's evidence and leave-one-out error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float

from ..kernel.progress import Progress
from ..layers.base import choice
from .spectrum import checked_gram, checked_targets

RIDGES = tuple(10.0 ** (k / 2) for k in range(-14, 3))
"""Default candidates: 1e-7 to 10 times the mean diagonal, two a decade."""


@dataclasses.dataclass(frozen=True)
class RidgePath:
    """What every ridge gives on the training data; made by `ridge_path` or `cross_validate`.

    Attributes:
        ridges: candidates, relative to the mean diagonal of the kernel.
        noises: the same as variances.
        error: mean squared error that chooses: leave-one-out, or of the folds left out.
        error_sem: its standard error, over points or over folds.
        log_evidence: log marginal likelihood; None for cross-validation.
        dimension: effective dimension tr K (K + noise)^{-1}; None for cross-validation.
        by: "loo", "evidence" or "folds".
    """

    ridges: Float[np.ndarray, " r"]
    noises: Float[np.ndarray, " r"]
    error: Float[np.ndarray, " r"]
    error_sem: Float[np.ndarray, " r"]
    log_evidence: Float[np.ndarray, " r"] | None
    dimension: Float[np.ndarray, " r"] | None
    by: str

    @property
    def index(self) -> int:
        """The best candidate."""
        if self.by == "evidence":
            assert self.log_evidence is not None
            return int(np.argmax(self.log_evidence))
        return int(np.argmin(self.error))

    @property
    def chosen(self) -> float:
        """The best ridge, relative."""
        return float(self.ridges[self.index])

    @property
    def noise(self) -> float:
        """The best ridge as a variance."""
        return float(self.noises[self.index])

    @property
    def at_the_edge(self) -> bool:
        """Whether the best candidate is the first or the last: the range may be too narrow."""
        return self.index in (0, len(self.ridges) - 1)

    @property
    def loo_mse(self) -> np.ndarray:
        """The error under the name that plots read."""
        return self.error

    def __str__(self) -> str:
        lines = [f"{'ridge':>9} {'error':>10} {'+-':>9} {'log evidence':>13} {'dimension':>10}"]
        for i, ridge in enumerate(self.ridges):
            evidence = "" if self.log_evidence is None else f"{self.log_evidence[i]:.1f}"
            size = "" if self.dimension is None else f"{self.dimension[i]:.1f}"
            mark = " <" if i == self.index else ""
            lines.append(
                f"{ridge:9.2e} {self.error[i]:10.4g} {self.error_sem[i]:9.2g} {evidence:>13} "
                f"{size:>10}{mark}"
            )
        return "\n".join(lines)


def ridge_path(
    K, targets, ridges: Any = RIDGES, by: str = "loo", amplitude: float | None = 1.0
) -> RidgePath:
    """Leave-one-out error, evidence and effective dimension of every ridge.

        K = U diag(w) U^T,    M^{-1} = U diag(1 / (w + noise)) U^T,    noise = ridge tr(K) / n,
        residual_i = [M^{-1} y]_i / [M^{-1}]_ii

    Args:
        K: `(n, n)` training kernel.
        targets: `(n,)` or `(n, outputs)`.
        ridges: candidates, relative to the mean diagonal.
        by: "loo" or "evidence", what chooses.
        amplitude: factor on kernel and noise in the evidence; None: the most likely one for every
            ridge, tr(Y^T M^{-1} Y) / (n outputs). Leave-one-out errors do not depend on it.

    A ridge with which K is not positive definite to rounding has error inf and evidence -inf.

    Example:
        >>> path = ridge_path(np.eye(3), np.array([1.0, -1.0, 0.5]), ridges=(0.1, 1.0))
        >>> path.noises.round(2).tolist(), path.dimension.round(2).tolist()
        ([0.1, 1.0], [2.73, 1.5])

    Reference:
        Rasmussen, Williams, *Gaussian processes for machine learning*, equations 2.30 and 5.12.
    """
    choice("by", by, ("loo", "evidence"))
    K = checked_gram(K)[0]
    Y = checked_targets(targets, len(K))
    given, noises = _candidates(ridges, K)
    n, outputs = Y.shape
    w, U = scipy.linalg.eigh(K, check_finite=False)
    UY, U2 = U.T @ Y, U * U
    floor = n * np.finfo(float).eps * max(w[-1], 0.0)
    rows = []
    for noise in noises:
        M = w + noise
        if M[0] <= floor:
            rows.append((np.inf, np.nan, -np.inf, np.nan))
            continue
        residual = (U @ (UY / M[:, None])) / (U2 @ (1 / M))[:, None]
        squared = np.mean(residual**2, axis=1)
        fit = float(np.sum(UY**2 / M[:, None]))
        scale = fit / Y.size if amplitude is None else amplitude
        logdet = np.log(M).sum() + n * np.log(2 * np.pi * scale)
        evidence = -0.5 * fit / scale - 0.5 * outputs * logdet
        error = squared.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        rows.append((squared.mean(), error, evidence, float(np.sum(w / M))))
    error, sem, evidence, dimension = (np.array(column) for column in zip(*rows, strict=True))
    if not np.isfinite(error).any():
        raise ValueError(
            f"the kernel is singular to rounding with every ridge up to {max(given):.2g}; give "
            "larger ones, or compute it in float64"
        )
    return RidgePath(given, noises, error, sem, evidence, dimension, by)


def cross_validate(
    K,
    targets,
    ridges: Any = RIDGES,
    folds: int = 5,
    seed: int = 0,
    groups=None,
    progress: bool | Callable = False,
) -> RidgePath:
    """Mean squared error of every ridge on folds that were left out.

    Args:
        K, targets, ridges: as for `ridge_path`.
        folds: number of parts; each is predicted from all the others.
        seed: shuffles the points into folds.
        groups: `(n,)` labels of points that must stay together (duplicates, one author's texts).
        progress: True, or a function `(done, total, seconds left)`.
    """
    K = checked_gram(K)[0]
    Y = checked_targets(targets, len(K))
    given, noises = _candidates(ridges, K)
    parts = _folds(len(K), folds, seed, groups)
    report = Progress.of(progress)
    errors = np.empty((folds, len(given)))
    for i, out in enumerate(parts):
        kept = np.setdiff1d(np.arange(len(K)), out)
        w, U = scipy.linalg.eigh(K[np.ix_(kept, kept)], check_finite=False)
        floor = len(kept) * np.finfo(float).eps * max(w[-1], 0.0)
        UY, cross = U.T @ Y[kept], K[np.ix_(out, kept)] @ U
        for j, noise in enumerate(noises):
            singular = w[0] + noise <= floor
            found = cross @ (UY / np.where(singular, 1.0, w + noise)[:, None])
            errors[i, j] = np.inf if singular else np.mean((found - Y[out]) ** 2)
        if report is not None:
            report(i + 1, folds)
    sem = errors.std(axis=0, ddof=1) / np.sqrt(folds) if folds > 1 else np.full(len(given), np.nan)
    return RidgePath(given, noises, errors.mean(axis=0), sem, None, None, "folds")


def _folds(n: int, folds: int, seed: int, groups) -> list[np.ndarray]:
    names = (
        np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    )
    if len(names) != n:
        raise ValueError(f"groups has {len(names)} labels for {n} points; give one each")
    count = int(names.max()) + 1
    if not 2 <= folds <= count:
        what = "points" if groups is None else "groups"
        raise ValueError(f"folds={folds}: give a number from 2 to the {count} {what}")
    order = np.random.default_rng(seed).permutation(count)
    return [np.flatnonzero(np.isin(names, part)) for part in np.array_split(order, folds)]


def _candidates(ridges, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    given = np.sort(np.asarray(ridges, dtype=float))
    if given.ndim != 1 or not given.size or not np.isfinite(given).all() or (given < 0).any():
        raise ValueError(f"ridges={ridges!r}: give one or more finite numbers of at least 0")
    return given, given * float(np.trace(K)) / len(K)
