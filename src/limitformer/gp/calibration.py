"""Are probabilities and intervals right as often as they say? Scores with standard errors.

Standard errors are over independent test inputs with the model fixed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri


@dataclasses.dataclass(frozen=True)
class Score:
    """A mean over test inputs and its standard error, sqrt(sum (v_i - mean)^2 / (n (n - 1))).

    The standard error is NaN for a single input or a mean that is not finite.
    """

    value: float
    sem: float


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Confidence against accuracy, bin by bin; made by `reliability`. Empty bins are left out.

    Attributes:
        lower, upper: smallest and largest confidence of the bin, or its edges at equal width.
        count: inputs in the bin.
        confidence: mean probability of the predicted class.
        accuracy: part of predictions that is right.
        accuracy_sem: sqrt(accuracy (1 - accuracy) / count).
        gap: accuracy - confidence; below 0 the predictions are too sure.
        gap_variance: sample variance of (right - confidence) within the bin; NaN for one input.
    """

    lower: Float[np.ndarray, " bins"]
    upper: Float[np.ndarray, " bins"]
    count: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]
    accuracy_sem: Float[np.ndarray, " bins"]
    gap: Float[np.ndarray, " bins"]
    gap_variance: Float[np.ndarray, " bins"]


@dataclasses.dataclass(frozen=True)
class CalibrationError:
    """A calibration error, its standard error and the table it comes from.

    Attributes:
        value: see the function that made it.
        sem: its standard error.
        squared: for the debiased error, the unbiased mean squared gap, which may be negative, and
            whose root (or 0) is `value`; None for the plain one.
        squared_sem: standard error of `squared`.
        table: the bins.
    """

    value: float
    sem: float
    squared: float | None
    squared_sem: float | None
    table: Reliability


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How often central intervals hold the target; made by `coverage`.

    Attributes:
        level: nominal probability of each interval.
        observed: part of targets inside.
        sem: standard error of `observed`, over inputs.
        expected_sem: standard error that calibrated, independent targets would have; for several
            outputs per input that of one output, since outputs of one input may go together.
        z: (observed - level) / expected_sem.
    """

    level: Float[np.ndarray, " levels"]
    observed: Float[np.ndarray, " levels"]
    sem: Float[np.ndarray, " levels"]
    expected_sem: Float[np.ndarray, " levels"]
    z: Float[np.ndarray, " levels"]


def reliability(
    probabilities: Float[np.ndarray, "n classes"],
    labels: Int[np.ndarray, " n"],
    bins: int = 15,
    binning: Literal["width", "mass"] = "width",
) -> Reliability:
    """Confidence (largest probability) against accuracy.

    Args:
        probabilities: rows that sum to 1.
        labels: the column of the true class.
        bins: how many at most.
        binning: `"width"`, edges at k / bins, a confidence on an edge belongs to the bin below it;
            `"mass"` (adaptive), edges at the quantiles k / bins of the confidences, equal
            confidences together, and a bin of a single input joined to the one before it.

    Raises:
        ValueError: rows that are no probabilities, labels out of range, fewer than one bin.

    Example:
        >>> P = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> table = reliability(P, np.array([0, 1, 1]), bins=2)
        >>> table.count.tolist(), table.accuracy.round(3).tolist(), table.gap.round(3).tolist()
        ([3], [0.667], [-0.133])
    """
    P, index = _checked(probabilities, labels)
    if bins < 1:
        raise ValueError(f"bins={bins}; give at least 1.")
    confidence = P.max(axis=1)
    right = (P.argmax(axis=1) == index).astype(float)
    if binning == "width":
        edges = np.linspace(0, 1, bins + 1)
        place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    else:
        cuts = np.quantile(confidence, np.linspace(0, 1, bins + 1)[1:-1], method="higher")
        place = _without_singles(np.searchsorted(np.unique(cuts), confidence, side="left"))
    used, place, count = np.unique(place, return_inverse=True, return_counts=True)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, values) / count

    gap = mean(right - confidence)
    squares = np.bincount(place, (right - confidence - gap[place]) ** 2)
    accuracy = mean(right)
    if binning == "width":
        lower, upper = edges[used], edges[used + 1]
    else:
        groups = [confidence[place == b] for b in range(len(used))]
        lower, upper = (np.array([f(g) for g in groups]) for f in (np.min, np.max))
    return Reliability(
        lower=lower,
        upper=upper,
        count=count,
        confidence=mean(confidence),
        accuracy=accuracy,
        accuracy_sem=np.sqrt(accuracy * (1 - accuracy) / count),
        gap=gap,
        gap_variance=np.where(count > 1, squares / np.maximum(count - 1, 1), np.nan),
    )


def calibration_error(
    probabilities: Float[np.ndarray, "n classes"],
    labels: Int[np.ndarray, " n"],
    bins: int = 15,
    binning: Literal["width", "mass"] = "width",
) -> CalibrationError:
    """Expected calibration error of the predicted class, ECE = sum_b n_b / n |gap_b|.

    Its standard error is that of the mean of sign(gap_b) (right_i - confidence_i), the delta
    method, which is valid where gaps are large against their own errors. Where they are not the
    ECE is biased upwards, by up to sum_b n_b / n sqrt(2 v_b / (pi n_b)); then look at
    `debiased_calibration_error`.

    Args: as `reliability`.

    Example:
        >>> P = np.array([[0.9, 0.1]] * 10)
        >>> error = calibration_error(P, np.array([0] * 8 + [1] * 2))
        >>> round(error.value, 6), round(error.sem, 6)
        (0.1, 0.133333)

    Reference:
        Guo, Pleiss, Sun, Weinberger, *On calibration of modern neural networks*, 2017, equation 3.
    """
    table = reliability(probabilities, labels, bins, binning)
    n = int(table.count.sum())
    value = float(np.sum(table.count * np.abs(table.gap)) / n)
    within = np.sum(np.where(table.count > 1, (table.count - 1) * table.gap_variance, 0.0))
    between = np.sum(table.count * (np.abs(table.gap) - value) ** 2)
    sem = float(np.sqrt((within + between) / (n * (n - 1)))) if n > 1 else float("nan")
    return CalibrationError(value, sem, None, None, table)


def debiased_calibration_error(
    probabilities: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, " n"], bins: int = 15
) -> CalibrationError:
    """Root mean squared calibration error over equal-mass bins, its bias removed.

        squared = sum_b n_b / n (gap_b^2 - v_b / n_b),   value = sqrt(max(squared, 0))

    v_b the sample variance of right - confidence in bin b: an unbiased estimate of the squared gap
    of each bin, so that a calibrated model scores 0 on average. Its variance in a bin is that of a
    U-statistic of order two, 4 gap^2 v / n_b + 2 v^2 / (n_b (n_b - 1)), with gap^2 estimated
    without bias, and their sum no smaller than if every gap were 0. By the delta method sem =
    squared_sem / (2 value); where squared is below its own error, the root of that error.

    Args: as `reliability`; every bin has at least two inputs.

    Raises:
        ValueError: fewer than two inputs, and what `reliability` raises.

    Example:
        >>> P = np.array([[0.75, 0.25]] * 8)
        >>> debiased_calibration_error(P, np.array([0] * 6 + [1] * 2)).value
        0.0

    Reference:
        Kumar, Liang, Ma, *Verified uncertainty calibration*, 2019, section 4, whose estimate takes
        the variance from the labels alone (confidences constant in a bin).
    """
    if len(labels) < 2:
        raise ValueError(f"{len(labels)} inputs; a debiased error needs at least two.")
    table = reliability(probabilities, labels, bins, "mass")
    count, v = table.count, table.gap_variance
    weight = count / count.sum()
    square = table.gap**2 - v / count
    squared = float(np.sum(weight * square))
    least = np.sum(weight**2 * 2 * v**2 / (count * (count - 1)))
    more = np.sum(weight**2 * 4 * square * v / count)
    squared_sem = float(np.sqrt(least + max(more, 0.0)))
    value = float(np.sqrt(max(squared, 0.0)))
    sem = squared_sem / (2 * value) if squared > squared_sem else float(np.sqrt(squared_sem))
    return CalibrationError(value, sem, squared, squared_sem, table)


def accuracy(probabilities: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, " n"]) -> Score:
    """Part of inputs whose most probable class is the true one.

    Example:
        >>> accuracy(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])).value
        0.5
    """
    P, index = _checked(probabilities, labels)
    return _score((P.argmax(axis=1) == index).astype(float))


def brier(probabilities: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, " n"]) -> Score:
    """Brier score, the mean of sum_c (p_c - [label = c])^2: 0 is perfect, 2 the worst.

    Example:
        >>> round(brier(np.array([[0.9, 0.1], [0.5, 0.5]]), np.array([0, 1])).value, 6)
        0.26

    Reference:
        Brier, *Verification of forecasts expressed in terms of probability*, 1950.
    """
    P, index = _checked(probabilities, labels)
    return _score(np.sum((P - np.eye(P.shape[1])[index]) ** 2, axis=1))


def log_loss(probabilities: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, " n"]) -> Score:
    """Negative log-likelihood in nats, the mean of -log p_label; infinite where a p_label is 0.

    Example:
        >>> round(log_loss(np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([0, 1])).value, 6)
        0.693147
    """
    P, index = _checked(probabilities, labels)
    with np.errstate(divide="ignore"):
        return _score(-np.log(P[np.arange(len(P)), index]))


def gaussian_log_loss(
    mean: Float[np.ndarray, "n *outputs"],
    deviation: Float[np.ndarray, "n *outputs"],
    targets: Float[np.ndarray, "n *outputs"],
) -> Score:
    """Negative log-likelihood of Gaussian predictions in nats, per output.

        log(deviation) + log(2 pi) / 2 + (target - mean)^2 / (2 deviation^2)

    Args:
        mean, deviation: of each target as observed (with its noise); deviations positive.
        targets: what was observed; several outputs of one input are averaged before the standard
            error is taken.

    Example:
        >>> round(gaussian_log_loss(np.zeros(2), np.ones(2), np.zeros(2)).value, 6)
        0.918939
    """
    z = _standardised(mean, deviation, targets)
    loss = np.log(deviation) + 0.5 * np.log(2 * np.pi) + 0.5 * z**2
    return _score(loss.reshape(len(loss), -1).mean(axis=1))


def coverage(
    mean: Float[np.ndarray, "n *outputs"],
    deviation: Float[np.ndarray, "n *outputs"],
    targets: Float[np.ndarray, "n *outputs"],
    levels: Sequence[float] = (0.5, 0.8, 0.9, 0.95, 0.99),
) -> Coverage:
    """How often |target - mean| <= deviation Phi^{-1}((1 + level) / 2), the central intervals.

    Args:
        mean, deviation: of each target as observed (with its noise); deviations positive.
        targets: what was observed.
        levels: between 0 and 1.

    Returns:
        `Coverage`. Targets predicted jointly are correlated: then the standard errors are too
        small.

    Raises:
        ValueError: deviations that are not positive, levels outside (0, 1), non-finite numbers.

    Example:
        >>> result = coverage(np.zeros(4), np.ones(4), np.array([0.1, -0.5, 0.9, 3.0]), [0.5, 0.95])
        >>> result.observed.tolist()
        [0.5, 0.75]
    """
    level = np.asarray(levels, float)
    if level.ndim != 1 or not np.all((level > 0) & (level < 1)):
        raise ValueError(f"levels={level.tolist()} should be a list of numbers between 0 and 1.")
    z = np.abs(_standardised(mean, deviation, targets))
    inside = z.reshape(len(z), -1, 1) <= ndtri((1 + level) / 2)
    scores = [_score(column) for column in inside.mean(axis=1).T]
    observed = np.array([score.value for score in scores])
    expected_sem = np.sqrt(level * (1 - level) / len(z))
    return Coverage(
        level=level,
        observed=observed,
        sem=np.array([score.sem for score in scores]),
        expected_sem=expected_sem,
        z=(observed - level) / expected_sem,
    )


def _score(values: np.ndarray) -> Score:
    value = float(values.mean())
    if len(values) < 2 or not np.isfinite(value):
        return Score(value, float("nan"))
    return Score(value, float(values.std(ddof=1) / np.sqrt(len(values))))


def _without_singles(place: np.ndarray) -> np.ndarray:
    """Bins renumbered from 0, those of one input joined to the bin before (the first: after)."""
    place = np.unique(place, return_inverse=True)[1]
    count = np.bincount(place)
    target = np.arange(len(count))
    group = 0
    held = 0
    for b in range(len(count)):
        if held >= 2 and count[b] >= 2:
            group, held = group + 1, 0
        target[b], held = group, held + count[b]
    return target[place]


def _checked(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    P, index = np.asarray(probabilities, float), np.asarray(labels)
    if P.ndim != 2 or index.shape != P.shape[:1] or not len(P):
        raise ValueError(
            f"probabilities {P.shape} and labels {index.shape} should be (n, classes) and (n,)."
        )
    bad = np.flatnonzero(~(np.all(P >= 0, axis=1) & (np.abs(P.sum(axis=1) - 1) < 1e-6)))
    if len(bad):
        raise ValueError(
            f"Row {bad[0]} of the probabilities is {P[bad[0]].tolist()}; rows should be "
            "nonnegative and sum to 1. Logits: apply scipy.special.softmax first."
        )
    if not np.issubdtype(index.dtype, np.integer) or index.min() < 0 or index.max() >= P.shape[1]:
        raise ValueError(
            f"labels should be integers from 0 to {P.shape[1] - 1}, the column of the true class, "
            f"not {np.unique(index).tolist()[:10]}. See one_vs_rest.encode."
        )
    return P, index


def _standardised(mean: np.ndarray, deviation: np.ndarray, targets: np.ndarray) -> np.ndarray:
    mean, deviation, targets = (np.asarray(v, float) for v in (mean, deviation, targets))
    if not (mean.shape == deviation.shape == targets.shape) or not mean.size:
        raise ValueError(
            f"mean {mean.shape}, deviation {deviation.shape} and targets {targets.shape} should "
            "have one shape, (n,) or (n, outputs)."
        )
    if not np.all(deviation > 0):
        raise ValueError(
            f"The smallest deviation is {deviation.min():g}; it should be positive. Predict the "
            "observed targets, with their noise."
        )
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(targets))):
        raise ValueError("mean or targets hold numbers that are not finite; remove those inputs.")
    return (targets - mean) / deviation
