"""How well a Gaussian process explains its training data: evidence and leave-one-out."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from .solve import Factor


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
    """Predictions of every training target from all the others; made by `leave_one_out`.

    Attributes:
        mean: predicted targets.
        variance: of the observed target, noise included, one per input.
        residual: target minus prediction.
        mean_sem: standard error of the mean where the kernel has one, else None.
    """

    mean: Float[np.ndarray, "n outputs"]
    variance: Float[np.ndarray, " n"]
    residual: Float[np.ndarray, "n outputs"]
    mean_sem: Float[np.ndarray, "n outputs"] | None = None

    @property
    def mse(self) -> float:
        """Mean squared residual."""
        return float(np.mean(self.residual**2))

    @property
    def log_density(self) -> float:
        """Mean over targets of log p(y_i | the others)."""
        v = self.variance[:, None]
        return float(np.mean(-0.5 * (np.log(2 * np.pi * v) + self.residual**2 / v)))


def log_evidence(factor: Factor, alpha: np.ndarray, targets: np.ndarray) -> float:
    """Log marginal likelihood of all outputs, which are independent given the kernel.

        log p(y) = sum_o [ -y_o^T M^{-1} y_o / 2 ] - outputs / 2 (log det M + n log 2 pi),
        M = K + noise

    Args:
        alpha: M^{-1} targets, `(n, outputs)`.
        targets: `(n, outputs)`.

    Reference:
        Rasmussen, Williams, *Gaussian processes for machine learning*, equation 2.30.
    """
    n, outputs = targets.shape
    fit = float(np.vdot(targets, alpha))
    return -0.5 * fit - 0.5 * outputs * (factor.logdet + n * np.log(2 * np.pi))


def leave_one_out(factor: Factor, alpha: np.ndarray, targets: np.ndarray) -> LeaveOneOut:
    """Leave-one-out predictions in closed form.

        y_i - mean_i = [M^{-1} y]_i / [M^{-1}]_ii,    variance_i = 1 / [M^{-1}]_ii

    Reference:
        Rasmussen, Williams, *Gaussian processes for machine learning*, equation 5.12.
    """
    variance = 1 / np.diag(factor.inverse)
    residual = alpha * variance[:, None]
    return LeaveOneOut(targets - residual, variance, residual)
