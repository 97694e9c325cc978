"""Held-out classes by kernel regression: what the report shows of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from ..gp import CalibrationError, RidgePath, Score, calibration_error, log_loss, ridge_path
from ..gp.one_vs_rest import fit

RIDGES = tuple(10.0 ** (k / 2) for k in range(-12, 1))


@dataclasses.dataclass(frozen=True)
class Classification:
    """What a kernel says about held-out inputs; made by `classify`.

    Attributes:
        path: leave-one-out error and evidence of every ridge; its best one is used.
        calibration: factor on the deviation, fitted to left-out training labels.
        loo_error: leave-one-out mean squared error on the training set, which chose the ridge.
        loo_accuracy: leave-one-out accuracy on the training set.
        labels: true classes of the held-out inputs.
        scores: regression values, one per class.
        deviation: calibrated standard deviation of every input's scores.
        probability: that each class has the largest score.
    """

    path: RidgePath
    calibration: float
    loo_error: float
    loo_accuracy: float
    labels: Int[np.ndarray, " m"]
    scores: Float[np.ndarray, "m classes"]
    deviation: Float[np.ndarray, " m"]
    probability: Float[np.ndarray, "m classes"]

    @property
    def ridge(self) -> float:
        """The ridge that was used, relative to the mean diagonal of the training kernel."""
        return self.path.chosen

    @property
    def log_loss(self) -> Score:
        """Mean -log probability of the true class, with its standard error."""
        return log_loss(self.probability, self.labels)

    @property
    def calibration_error(self) -> CalibrationError:
        """Expected calibration error, with the bins that it comes from."""
        return calibration_error(self.probability, self.labels, bins=8)

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
    """One-vs-rest regression on centred one-hot targets (`gp.one_vs_rest`).

    The ridge is the one with the smallest leave-one-out error, and probabilities are calibrated on
    left-out training labels. Held-out labels are only compared with.

    Args:
        K: kernel of the training inputs.
        K_test: kernel between held-out and training inputs.
        K_diag: kernel of each held-out input with itself.
        labels, test_labels: classes, 0 to the number of classes - 1.
        ridges: candidates, relative.
    """
    K, K_test, K_diag = (np.asarray(k, float) for k in (K, K_test, K_diag))
    Y = np.eye(int(labels.max()) + 1)[labels]
    path = ridge_path(K, Y - Y.mean(axis=0), ridges, amplitude=None)
    model = fit(K, labels, path.noise, classes=np.arange(Y.shape[1]))
    found = model.predict(K_test, K_diag)
    return Classification(
        path=path,
        calibration=model.calibration,
        loo_error=model.loo_error,
        loo_accuracy=model.loo_accuracy,
        labels=test_labels,
        scores=found.scores,
        deviation=found.deviation,
        probability=found.probabilities,
    )
