"""Classification by kernel regression on one-hot targets, with the Gaussian process's doubt."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import log_ndtr

RIDGES = tuple(10.0 ** (k / 2) for k in range(-12, 1))


@dataclasses.dataclass(frozen=True)
class Classification:
    """What a kernel says about held-out inputs; made by `classify`.

    Attributes:
        ridge: relative to the mean diagonal of the training kernel.
        loo_error: leave-one-out mean squared error on the training set, which chose the ridge.
        loo_accuracy: leave-one-out accuracy on the training set.
        labels: true classes of the held-out inputs.
        scores: regression values, one per class.
        deviation: standard deviation of every input's scores under the Gaussian process.
        probability: that each class has the largest score.
    """

    ridge: float
    loo_error: float
    loo_accuracy: float
    labels: Int[np.ndarray, " m"]
    scores: Float[np.ndarray, "m classes"]
    deviation: Float[np.ndarray, " m"]
    probability: Float[np.ndarray, "m classes"]

    @property
    def predicted(self) -> Int[np.ndarray, " m"]:
        """The class with the largest score."""
        return self.scores.argmax(axis=1)

    @property
    def correct(self) -> np.ndarray:
        """Whether each prediction is right."""
        return self.predicted == self.labels

    @property
    def accuracy(self) -> float:
        """The part of held-out inputs that is right."""
        return float(self.correct.mean())

    @property
    def accuracy_sem(self) -> float:
        """Binomial standard error of the accuracy."""
        p = self.accuracy
        return float(np.sqrt(p * (1 - p) / len(self.labels)))

    @property
    def confidence(self) -> Float[np.ndarray, " m"]:
        """Probability of the predicted class."""
        return np.take_along_axis(self.probability, self.predicted[:, None], axis=1)[:, 0]

    @property
    def confusion(self) -> Int[np.ndarray, "classes classes"]:
        """Counts, rows: true class, columns: predicted class."""
        classes = self.scores.shape[1]
        counts = np.bincount(classes * self.labels + self.predicted, minlength=classes**2)
        return counts.reshape(classes, classes)


def classify(
    K: Float[np.ndarray, "n n"],
    K_test: Float[np.ndarray, "m n"],
    K_diag: Float[np.ndarray, " m"],
    labels: Int[np.ndarray, " n"],
    test_labels: Int[np.ndarray, " m"],
    ridges: Sequence[float] = RIDGES,
) -> Classification:
    """One-vs-rest regression on centred one-hot targets.

        scores(x) = mean + k(x) (K + l I)^{-1} (Y - mean),    l = ridge * trace(K) / n

    The ridge is the one with the smallest leave-one-out error, known in closed form: input i,
    left out, has residual [(K + l I)^{-1} Y]_i / [(K + l I)^{-1}]_ii. Held-out labels are only
    compared with. The standard deviation is that of a new observation under the Gaussian process
    with covariance s^2 (K + l I), s^2 the maximum-likelihood scale tr[Y^T (K + l I)^{-1} Y] / (n
    classes).

    Args:
        K: kernel of the training inputs.
        K_test: kernel between held-out and training inputs.
        K_diag: kernel of each held-out input with itself.
        labels, test_labels: classes, 0 to the number of classes - 1.
        ridges: candidates, relative.

    Reference:
        Rasmussen, Williams, *Gaussian processes for machine learning*, equations 5.10 to 5.12.
    """
    K, K_test, K_diag = (np.asarray(k, float) for k in (K, K_test, K_diag))
    n = len(K)
    Y = np.eye(int(labels.max()) + 1)[labels]
    mean = Y.mean(axis=0)
    Y = Y - mean
    w, V = np.linalg.eigh(K)
    VY = V.T @ Y
    trials = []
    for ridge in ridges:
        inverse = 1 / (w + ridge * np.trace(K) / n)
        left_out = (V @ (inverse[:, None] * VY)) / ((V**2) @ inverse)[:, None]
        trials.append((float(np.mean(left_out**2)), float(ridge), Y - left_out))
    error, ridge, loo = min(trials, key=lambda trial: trial[0])
    noise = ridge * np.trace(K) / n
    inverse = 1 / (w + noise)
    scale = float(np.sum(inverse[:, None] * VY**2)) / Y.size
    projected = K_test @ V
    scores = mean + projected @ (inverse[:, None] * VY)
    variance = np.maximum(K_diag - (projected**2) @ inverse, 0.0) + noise
    deviation = np.sqrt(scale * variance)
    return Classification(
        ridge=ridge,
        loo_error=error,
        loo_accuracy=float(np.mean((loo + mean).argmax(axis=1) == labels)),
        labels=test_labels,
        scores=scores,
        deviation=deviation,
        probability=largest(scores, deviation),
    )


def largest(
    mean: Float[np.ndarray, "m classes"], deviation: Float[np.ndarray, " m"], nodes: int = 64
) -> Float[np.ndarray, "m classes"]:
    """Probability that each of independent Gaussians with one deviation is the largest.

        P_c = E_z prod_{j != c} Phi(z + (mean_c - mean_j) / deviation),    z ~ N(0, 1)

    by Gauss-Hermite quadrature.

    Example:
        >>> largest(np.array([[1.0, 1.0], [0.0, 9.0]]), np.array([1.0, 1.0])).round(3).tolist()
        [[0.5, 0.5], [0.0, 1.0]]
    """
    z, weight = np.polynomial.hermite_e.hermegauss(nodes)
    gaps = (mean[:, :, None] - mean[:, None, :]) / deviation[:, None, None]
    log = log_ndtr(z[:, None, None, None] + gaps)
    index = np.arange(mean.shape[1])
    log[:, :, index, index] = 0.0
    P = np.einsum("z,zmc->mc", weight, np.exp(log.sum(axis=-1))) / np.sqrt(2 * np.pi)
    return P / P.sum(axis=1, keepdims=True)
