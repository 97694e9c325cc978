"""Error against the number of training points: predicted, measured, and estimated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array, Float, Int, Num

from ..kernel.progress import Progress
from .eigenlearning import subset_error
from .held_out import from_inverse, solved
from .spectrum import checked_gram, checked_targets

_MEASURED = ("measured", "measured_train", "loo", "gcv")


@dataclasses.dataclass(frozen=True)
class LearningCurve:
    """Mean squared errors of kernel regression by training size; made by `learning_curve`.

    Every array has one entry per size. Predictions are transductive: they use inputs and targets of
    the whole set. All others are means over random subsets, with the standard error of that mean;
    that the whole set is itself a sample is no part of it.

    Attributes:
        sizes: training points.
        predicted, predicted_train: `subset_error` for the other points and for the training points.
        kappa: effective ridge of the prediction.
        measured, measured_train: errors on the other points and on the training points.
        loo, gcv: `held_out_error`, which sees the training points only.
        measured_sem, measured_train_sem, loo_sem, gcv_sem: standard errors.
        points: size of the whole set.
        noise: the ridge.
        repeats: subsets behind each mean.
        baseline: mean square of the targets, the error of predicting zero.
    """

    sizes: Int[np.ndarray, " sizes"]
    predicted: Float[np.ndarray, " sizes"]
    measured: Float[np.ndarray, " sizes"]
    measured_sem: Float[np.ndarray, " sizes"]
    predicted_train: Float[np.ndarray, " sizes"]
    measured_train: Float[np.ndarray, " sizes"]
    measured_train_sem: Float[np.ndarray, " sizes"]
    loo: Float[np.ndarray, " sizes"]
    loo_sem: Float[np.ndarray, " sizes"]
    gcv: Float[np.ndarray, " sizes"]
    gcv_sem: Float[np.ndarray, " sizes"]
    kappa: Float[np.ndarray, " sizes"]
    points: int
    noise: float
    repeats: int
    baseline: float

    def __str__(self) -> str:
        head = ("n", "predicted", "measured", "sem", "leave-one-out", "gcv")
        rows = zip(
            self.sizes,
            self.predicted,
            self.measured,
            self.measured_sem,
            self.loo,
            self.gcv,
            strict=True,
        )
        lines = ["  ".join(f"{name:>13}" for name in head)]
        for n, *values in rows:
            lines.append("  ".join([f"{n:>13}", *(f"{value:>13.4g}" for value in values)]))
        return "\n".join(lines)


def learning_curve(
    K: Num[Array | np.ndarray, "rows columns"],
    targets: Num[Array | np.ndarray, "samples *outputs"],
    sizes: Sequence[int] | Num[np.ndarray, " sizes"] | None = None,
    *,
    noise: float,
    repeats: int = 20,
    seed: int = 0,
    progress: bool | Callable = False,
) -> LearningCurve:
    """Predicted and measured error of regression with K + noise I, by training size.

    For every size n, `repeats` random subsets of n points are conditioned on and all other points
    are predicted, with a prior mean of zero (centre the targets if they have one). The prediction
    is that of `subset_error`, whose assumption the comparison tests.

    Args:
        K: (N, N) Gram matrix of all points, `k.nngp` or `k.ntk`.
        targets: (N,) or (N, outputs); errors are averages over outputs.
        sizes: training points, 2 to N - 1; None: eight from 10 (or 2) to 3/4 N, evenly on a
            logarithmic axis.
        noise: the ridge, a variance.
        repeats: subsets of each size, at least 2.
        seed: of the subsets, which are the same for the same seed.
        progress: True for a line on standard error, or a function `(done, total, seconds_left)`.

    Returns:
        A `LearningCurve`.

    Raises:
        ValueError: as `spectrum`; sizes or repeats out of range; K + noise I not positive definite.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(60, 3))
        >>> curve = learning_curve(x @ x.T, x[:, 0], sizes=[2, 30], noise=0.01)
        >>> bool(curve.measured[0] > 1000 * curve.measured[1])  # three points fix a linear function
        True

    Reference:
        Those of `subset_error` and `held_out_error`.
    """
    K = checked_gram(K)[0]
    N = len(K)
    Y = checked_targets(targets, N)
    sizes = _sizes(sizes, N)
    if repeats < 2:
        raise ValueError(f"repeats={repeats}; a standard error needs at least 2")
    eigenvalues, V = np.linalg.eigh(K)
    theory = [subset_error(eigenvalues, V.T @ Y, int(n), noise) for n in sizes]
    rng = np.random.default_rng(seed)
    report = Progress.of(progress)
    errors = np.empty((len(_MEASURED), len(sizes), repeats))
    for i, n in enumerate(sizes):
        for r in range(repeats):
            errors[:, i, r] = _subset(K, Y, rng.permutation(N), int(n), noise)
            if report is not None:
                report(i * repeats + r + 1, len(sizes) * repeats)
    mean = errors.mean(axis=2)
    sem = errors.std(axis=2, ddof=1) / np.sqrt(repeats)
    return LearningCurve(
        sizes=sizes,
        predicted=np.array([t.test_mse for t in theory]),
        predicted_train=np.array([t.train_mse for t in theory]),
        kappa=np.array([t.kappa for t in theory]),
        points=N,
        noise=float(noise),
        repeats=repeats,
        baseline=float(np.mean(Y**2)),
        **dict(zip(_MEASURED, mean, strict=True)),
        **{f"{name}_sem": values for name, values in zip(_MEASURED, sem, strict=True)},
    )


def _subset(K, Y, order, n: int, noise: float) -> tuple[float, float, float, float]:
    """Errors of one subset: other points, training points, leave-one-out, gcv."""
    inside, outside = order[:n], order[n:]
    AY, diagonal = solved(K[np.ix_(inside, inside)], Y[inside], noise)
    test = np.mean((Y[outside] - K[np.ix_(outside, inside)] @ AY) ** 2)
    estimate = from_inverse(AY, diagonal)
    return float(test), float(np.mean((noise * AY) ** 2)), estimate.loo, estimate.gcv


def _sizes(sizes, N: int) -> np.ndarray:
    if sizes is None:
        if N < 3:
            raise ValueError(f"a learning curve needs at least 3 points, K has {N}")
        low = 10 if N >= 20 else 2
        given = np.unique(np.round(np.geomspace(low, max(low, 3 * N // 4), 8)).astype(int))
        return given[given < N]
    given = np.asarray(sizes)
    if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu":
        raise ValueError(f"sizes must be a list of whole numbers, got {sizes!r}")
    if given.min() < 2 or given.max() >= N:
        raise ValueError(
            f"sizes go from {given.min()} to {given.max()}; with {N} points they must be 2 to "
            f"{N - 1}, so that one is left to test on"
        )
    return given.astype(int)
