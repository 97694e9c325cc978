"""Classification by regression on centred one-hot targets, with calibrated probabilities."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import linalg
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, logsumexp

from .cholesky import cholesky

lapack: Any = linalg.lapack  # names that scipy's stubs do not list
NODES = 64  # of Gauss-Hermite quadrature: 1e-9 of accuracy or better in the probabilities
CHUNK = 2**22  # numbers held at once by a quadrature


@dataclasses.dataclass(frozen=True)
class ClassScores:
    """What a one-vs-rest regression says about new inputs; made by `OneVsRest.predict`.

    Attributes:
        classes: the labels that the columns stand for.
        scores: regression values, near 1 for the class and 0 for the others.
        deviation: calibrated standard deviation of each input's scores.
        probabilities: that each class has the largest score, with the share of lapses (see `fit`).
        clipped: how many posterior variances were negative (rounding, or a kernel that is not
            positive semidefinite) and were set to 0 before the noise was added.
    """

    classes: Shaped[np.ndarray, " classes"]
    scores: Float[np.ndarray, "m classes"]
    deviation: Float[np.ndarray, " m"]
    probabilities: Float[np.ndarray, "m classes"]
    clipped: int

    @property
    def labels(self) -> Shaped[np.ndarray, " m"]:
        """The class with the largest score."""
        return self.classes[self.scores.argmax(axis=1)]


@dataclasses.dataclass(frozen=True)
class OneVsRest:
    """A fitted one-vs-rest regression; made by `fit`.

    Attributes:
        classes: the labels that the columns stand for, sorted unless given to `fit`.
        mean: prior mean of every class's score.
        noise: variance added to the diagonal, per training input.
        dual: (K + noise)^{-1} (Y - mean).
        factor: lower Cholesky factor of K + noise (the upper triangle is zero).
        scale: s^2, the maximum-likelihood factor of the covariance.
        calibration: factor on the deviation, fitted by leave-one-out log loss (1: not needed).
        lapse: share of the class means in every probability, fitted with it (0: not calibrated).
        loo_scores, loo_deviation: of every training input when it is left out; the deviation is
            the calibrated one, of an observation.
        loo_error: mean squared leave-one-out error over inputs and classes.
        loo_accuracy, loo_accuracy_sem: leave-one-out accuracy and its binomial standard error.
        loo_log_loss: mean leave-one-out -log probability of the true class, calibrated.
        loo_log_loss_sem: its standard error.
        loo_log_loss_before: the same with `calibration` 1 and `lapse` 0.
    """

    classes: Shaped[np.ndarray, " classes"]
    mean: Float[np.ndarray, " classes"]
    noise: Float[np.ndarray, " n"]
    dual: Float[np.ndarray, "n classes"]
    factor: Float[np.ndarray, "n n"]
    scale: float
    calibration: float
    lapse: float
    loo_scores: Float[np.ndarray, "n classes"]
    loo_deviation: Float[np.ndarray, " n"]
    loo_error: float
    loo_accuracy: float
    loo_accuracy_sem: float
    loo_log_loss: float
    loo_log_loss_sem: float
    loo_log_loss_before: float

    def predict(
        self,
        K_test: Float[np.ndarray, "m n"],
        K_diag: Float[np.ndarray, " m"],
        noise: float | Float[np.ndarray, " m"] | None = None,
    ) -> ClassScores:
        """Scores, deviations and probabilities of new inputs.

            scores(x) = mean + k(x) (K + noise)^{-1} (Y - mean)
            deviation(x)^2 = calibration^2 s^2 (k(x, x) - k(x) (K + noise)^{-1} k(x)^T + noise(x))
            P(x) = (1 - lapse) P(largest score) + lapse mean

        Args:
            K_test: kernel between new and training inputs.
            K_diag: kernel of each new input with itself.
            noise: variance of the new observations; None takes the mean training noise.

        Raises:
            ValueError: shapes that do not fit the training set, non-finite numbers.
        """
        K_test, K_diag = np.asarray(K_test, float), np.asarray(K_diag, float)
        n = len(self.noise)
        if K_test.ndim != 2 or K_test.shape[1] != n or K_diag.shape != K_test.shape[:1]:
            raise ValueError(
                f"K_test {K_test.shape} and K_diag {K_diag.shape} should be (m, {n}) and (m,): the "
                "kernel between m new inputs and the training inputs, and of each with itself."
            )
        _finite(K_test=K_test, K_diag=K_diag)
        new = np.mean(self.noise) if noise is None else np.asarray(noise, float)
        half, _ = lapack.dtrtrs(self.factor, K_test.T, lower=1)
        variance = K_diag - np.einsum("nm,nm->m", half, half)
        deviation = self.calibration * np.sqrt(self.scale * (np.maximum(variance, 0.0) + new))
        scores = self.mean + K_test @ self.dual
        return ClassScores(
            classes=self.classes,
            scores=scores,
            deviation=deviation,
            probabilities=(1 - self.lapse) * largest(scores, deviation) + self.lapse * self.mean,
            clipped=int(np.sum(variance < 0)),
        )


def fit(
    K: Float[np.ndarray, "n n"],
    labels: Shaped[np.ndarray, " n"],
    noise: float | Float[np.ndarray, " n"],
    *,
    classes: Any = None,
    prior: Literal["frequency", "uniform"] = "frequency",
    calibrate: bool = True,
) -> OneVsRest:
    """Regression of centred one-hot targets, a Gaussian process with one kernel for every class.

        Y_ic = [label_i = c],  A = K + diag(noise),  dual = A^{-1} (Y - mean)
        left out:  score_i = Y_i - dual_i / [A^{-1}]_ii,   variance_i = s^2 / [A^{-1}]_ii
        s^2 = tr[(Y - mean)^T A^{-1} (Y - mean)] / (n classes)

    The probability of a class is that of having the largest score when the scores are independent
    Gaussians with one deviation, P(g) with g times the deviation; now and then, in a share l of
    all inputs, the scores say nothing and the class has its mean frequency. `calibration` g and
    `lapse` l are the minimisers of

        - sum_i log[(1 - l) P(label_i | left out, g) + l mean(label_i)] + (log g)^2 / 2 - log(l) / 2

    (training labels only). The prior on log g weighs as much as a fraction of one input and keeps
    g away from 0 where every left-out prediction is right; that on l is half an input, so that
    after n right predictions l is about 1 / 2n. Without it, a new input that is almost a training
    input of another label would have the probability 0.

    Args:
        K: kernel of the training inputs.
        labels: the class of each, of any dtype that sorts.
        noise: variance, absolute; one number or one per input.
        classes: all classes, where the training labels lack some; a class without an example has
            a column of its prior mean. None: those that occur.
        prior: the mean of the scores, `"frequency"` of the classes in the training set or
            `"uniform"`, 1 / classes (Hron 2020 for ten classes: targets 0.9 and -0.1).
        calibrate: False leaves deviation and probabilities as the Gaussian process has them.

    Returns:
        `OneVsRest`.

    Raises:
        ValueError: a single class, a label that is not in `classes`, non-finite numbers, negative
            noise, a Gram that is not symmetric, singular or not positive definite with this noise.

    Example:
        >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
        >>> k = lambda x, y: np.exp(-0.5 * (x[:, None] - y) ** 2)
        >>> model = fit(k(x, x), np.array(["low", "low", "high", "high"]), 0.1)
        >>> new = np.array([-1.5, 1.5])
        >>> prediction = model.predict(k(new, x), np.ones(2))
        >>> prediction.labels.tolist(), prediction.probabilities.sum(axis=1).round(6).tolist()
        (['low', 'high'], [1.0, 1.0])

    Reference:
        Rasmussen, Williams, *Gaussian processes for machine learning*, 2006, equations 5.10 to
        5.12 (left out), 2.25 and 2.26 (predictions). Hernandez-Lobato, Hernandez-Lobato, Dupont,
        *Robust multi-class Gaussian process classification*, 2011 (lapses).
    """
    K = np.asarray(K, float)
    n = len(K)
    names, index = encode(labels, classes)
    if len(index) != n or K.shape != (n, n):
        raise ValueError(
            f"K has shape {K.shape} and there are {len(index)} labels; K must be n x n."
        )
    variance = np.asarray(noise, float) * np.ones(n)
    _finite(K=K, noise=variance)
    _symmetric(K=K)
    if np.any(variance < 0):
        raise ValueError(f"noise is a variance; the smallest given is {variance.min():g}.")
    Y = np.eye(len(names))[index]
    mean = np.full(len(names), 1 / len(names)) if prior == "uniform" else Y.mean(axis=0)
    factor, inverse_diagonal = _factorise(K, variance)
    dual, _ = lapack.dpotrs(factor, Y - mean, lower=1)
    scale = float(np.sum((Y - mean) * dual)) / Y.size
    loo = Y - dual / inverse_diagonal[:, None]
    deviation = np.sqrt(scale / inverse_diagonal)

    def log_right(log_g: float) -> np.ndarray:
        return log_largest(loo, np.exp(log_g) * deviation, index)

    before = -log_right(0.0)
    after, log_g, lapse = before, 0.0, 0.0
    if calibrate:
        mean_right = mean[index]

        def penalised(u: float) -> float:
            return _lapse(log_right(u), mean_right)[1] + u**2 / 2

        found: Any = minimize_scalar(penalised, bounds=(-6.0, 6.0), method="bounded")
        # where g = 1 is the minimum, the search stops beside it
        log_g = min((0.0, float(found.x)), key=penalised)
        lapse, _ = _lapse(log_right(log_g), mean_right)
        after = -_mixed(log_right(log_g), mean_right, lapse)
    right = float(np.mean(loo.argmax(axis=1) == index))
    return OneVsRest(
        classes=names,
        mean=mean,
        noise=variance,
        dual=dual,
        factor=factor,
        scale=scale,
        calibration=float(np.exp(log_g)),
        lapse=lapse,
        loo_scores=loo,
        loo_deviation=np.exp(log_g) * deviation,
        loo_error=float(np.mean((Y - loo) ** 2)),
        loo_accuracy=right,
        loo_accuracy_sem=float(np.sqrt(right * (1 - right) / n)),
        loo_log_loss=float(after.mean()),
        loo_log_loss_sem=float(after.std(ddof=1) / np.sqrt(n)),
        loo_log_loss_before=float(before.mean()),
    )


def _mixed(log_p, mean, lapse: float) -> Float[np.ndarray, " n"]:
    """log[(1 - l) p + l mean]."""
    return np.logaddexp(np.log1p(-lapse) + log_p, np.log(lapse) + np.log(mean))


def _lapse(log_p, mean) -> tuple[float, float]:
    """The share of lapses that explains the labels best, and the loss with it (see `fit`)."""

    def loss(u: float) -> float:
        return -float(_mixed(log_p, mean, np.exp(u)).sum()) - u / 2

    found: Any = minimize_scalar(loss, bounds=(-30.0, -1e-3), method="bounded")
    return float(np.exp(found.x)), float(found.fun)


def encode(labels: Any, classes: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Classes, and each label's place among them.

    Args:
        labels: one per input; numbers, strings, anything NumPy sorts.
        classes: all classes in the order wanted; None: those that occur, sorted.

    Returns:
        The classes, and integers with `classes[integers] == labels`.

    Raises:
        ValueError: fewer than two different labels, labels that are not finite, that are not one
            per input, or that are not among `classes`; repeated classes.

    Example:
        >>> classes, index = encode(["b", "a", "b"])
        >>> classes.tolist(), index.tolist()
        (['a', 'b'], [1, 0, 1])
    """
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels have shape {labels.shape}; expected one per input, (n,).")
    if np.issubdtype(labels.dtype, np.inexact):
        _finite(labels=labels)
    seen, index = np.unique(labels, return_inverse=True)
    if len(seen) < 2:
        raise ValueError(
            f"The {len(labels)} labels hold the classes {seen.tolist()}; a classifier needs at "
            "least two. Check how the training set was chosen."
        )
    if classes is None:
        return seen, index
    names = np.asarray(classes)
    if names.ndim != 1 or len(np.unique(names)) != len(names):
        raise ValueError(f"classes {names.tolist()} should be a list without repetition.")
    where = {name: place for place, name in enumerate(names.tolist())}
    unknown = [label for label in seen.tolist() if label not in where]
    if unknown:
        raise ValueError(f"Labels {unknown} are not among the classes {names.tolist()}. Add them.")
    return names, np.array([where[label] for label in seen.tolist()])[index]


def largest(
    mean: Float[np.ndarray, "m classes"], deviation: Float[np.ndarray, " m"], nodes: int = NODES
) -> Float[np.ndarray, "m classes"]:
    """Probability that each of independent Gaussians with one deviation is the largest.

        P_c = E_z prod_{j != c} Phi(z + (mean_c - mean_j) / deviation),    z ~ N(0, 1)

    by Gauss-Hermite quadrature; where the deviation is 0, the largest mean has probability 1.

    Example:
        >>> largest(np.array([[1.0, 1.0], [0.0, 9.0]]), np.array([1.0, 1.0])).round(3).tolist()
        [[0.5, 0.5], [0.0, 1.0]]
    """
    m, classes = mean.shape
    log = np.stack(
        [log_largest(mean, deviation, np.full(m, c), nodes) for c in range(classes)], axis=1
    )
    return np.exp(log - logsumexp(log, axis=1, keepdims=True))


def log_largest(
    mean: Float[np.ndarray, "m classes"],
    deviation: Float[np.ndarray, " m"],
    index: Int[np.ndarray, " m"],
    nodes: int = NODES,
) -> Float[np.ndarray, " m"]:
    """Log probability that the Gaussian `index` is the largest of its row; see `largest`.

    Example:
        >>> log_largest(np.zeros((1, 4)), np.ones(1), np.array([2])).round(4).tolist()
        [-1.3863]
    """
    z, weight = np.polynomial.hermite_e.hermegauss(nodes)
    log_weight = np.log(weight / np.sqrt(2 * np.pi))
    m, classes = mean.shape
    out = np.empty(m)
    step = max(1, CHUNK // (nodes * classes))
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        at = index[rows, None]
        gap = np.take_along_axis(mean[rows], at, axis=1) - mean[rows]
        with np.errstate(divide="ignore"):  # a deviation of 0: +-inf, which log_ndtr takes
            gap = np.divide(gap, deviation[rows, None], where=gap != 0, out=np.zeros_like(gap))
        log = log_ndtr(z[:, None, None] + gap)
        log[:, np.arange(len(at)), at[:, 0]] = 0.0
        out[rows] = logsumexp(log.sum(axis=-1) + log_weight[:, None], axis=0)
    return np.minimum(out, 0.0)


def _factorise(
    K: Float[np.ndarray, "n n"], noise: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, " n"]]:
    """Cholesky factor of K + noise and the diagonal of its inverse."""
    A = np.array(K, order="F")
    A[np.diag_indices_from(A)] += noise
    norm = np.abs(A).sum(axis=0).max()
    factor, rcond = A, 0.0
    try:
        factor = np.asfortranarray(np.tril(cholesky(A)))
        rcond = lapack.dpocon(factor, norm, uplo="L")[0]
    except linalg.LinAlgError:
        pass
    if rcond < np.finfo(float).eps:
        raise ValueError(
            f"K + noise ({len(K)} x {len(K)}, noise {noise.min():g} to {noise.max():g}, mean "
            f"diagonal of K {np.trace(K) / len(K):g}) is not positive definite"
            f"{_duplicate(K)}. Give a larger noise, for example 1e-6 times the mean diagonal."
        )
    inverse = linalg.solve_triangular(factor, np.eye(len(K)), lower=True, check_finite=False)
    return factor, np.einsum("ji,ji->i", inverse, inverse)


def _duplicate(K: Float[np.ndarray, "n n"]) -> str:
    """A clause that names two inputs the kernel cannot tell apart, if there are any."""
    _, first, inverse = np.unique(K, axis=0, return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[inverse.ravel()] != np.arange(len(K)))
    if not len(copies):
        return " to working precision"
    return f": inputs {first[inverse.ravel()[copies[0]]]} and {copies[0]} have equal rows"


def _symmetric(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        gap = np.abs(array - array.T).max()
        if gap > 1e-6 * np.abs(array).max():
            raise ValueError(
                f"{name} differs from its transpose by {gap:g}; it should be symmetric, the kernel "
                f"of the training inputs with themselves. An estimate: ({name} + {name}.T) / 2."
            )


def _finite(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            place = np.argwhere(~np.isfinite(array))[0].tolist()
            raise ValueError(f"{name} is not finite at {place}; remove or repair that input.")
