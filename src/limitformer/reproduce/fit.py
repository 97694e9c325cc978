"""Kernel regression with every ridge from one eigendecomposition, and its accuracy."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

RIDGES = tuple(10.0 ** (k / 2) for k in range(-14, 1))
"""1e-7 to 1 times the mean diagonal, two a decade."""

FIXED = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """Coefficients of kernel regression for every ridge; made by `fit`.

    Attributes:
        ridges: relative to the mean diagonal of the kernel.
        coefficients: `(n, ridges, outputs)`; NaN where the kernel is singular to rounding.
        loo_error: `(ridges,)` mean squared leave-one-out error, inf where singular.
        loo_accuracy: `(ridges,)` accuracy of the leave-one-out predictions, 0 where singular.
    """

    ridges: Float[np.ndarray, " r"]
    coefficients: Float[np.ndarray, "n r o"]
    loo_error: Float[np.ndarray, " r"]
    loo_accuracy: Float[np.ndarray, " r"]

    @property
    def chosen(self) -> int:
        """The ridge with the best leave-one-out accuracy, as an index; ties: smaller error.

        The squared error alone prefers more shrinkage than is good for the largest output.
        """
        return int(np.lexsort((self.loo_error, -self.loo_accuracy))[0])

    @property
    def score(self) -> tuple[float, float]:
        """Leave-one-out accuracy of the chosen ridge, then minus its squared error."""
        return float(self.loo_accuracy[self.chosen]), -float(self.loo_error[self.chosen])

    @property
    def fixed(self) -> int:
        """The ridge of 1e-6, as an index."""
        return int(np.argmin(np.abs(np.log(self.ridges / FIXED))))

    def correct(
        self, K: Float[np.ndarray, "m n"], labels: Int[np.ndarray, " m"]
    ) -> Int[np.ndarray, " r"]:
        """How many labels every ridge predicts from the kernel K between new and training points.

        One output is a sign (label 1 if positive), several are compared.
        """
        n, r, o = self.coefficients.shape
        values = (K @ self.coefficients.reshape(n, r * o)).reshape(len(K), r, o)
        return np.sum(_labels(values) == labels[:, None], axis=0)


def fit(
    K: Float[np.ndarray, "n n"],
    targets: Float[np.ndarray, "n o"],
    ridges: tuple[float, ...] = RIDGES,
) -> Fit:
    """Ridge regression with a kernel, for many ridges.

        K = U diag(w) U^T,  coefficients = U (U^T y / (w + ridge tr K / n)),
        left-out residual_i = coefficients_i / [M^{-1}]_ii

    Args:
        K: training kernel.
        targets: `(n, outputs)`; the class is the largest output, or the sign of a single one.
        ridges: relative to the mean diagonal.

    Example:
        >>> found = fit(np.eye(4), np.array([[0.5], [-0.5], [0.5], [0.5]]), (1e-6, 1.0))
        >>> found.loo_error
        array([0.25, 0.25])
    """
    n = len(K)
    w, U = scipy.linalg.eigh(np.asarray(K, float))
    relative = np.asarray(ridges, float)
    M = w[:, None] + relative * np.trace(K) / n
    singular = M[0] <= n * np.finfo(float).eps * max(w[-1], 0.0)
    M = np.where(singular, np.nan, M)
    scaled = (U.T @ targets)[:, None, :] / M[:, :, None]
    coefficients = (U @ scaled.reshape(n, -1)).reshape(scaled.shape)
    diagonal = (U * U) @ (1 / M)
    residual = coefficients / diagonal[:, :, None]
    error = np.where(singular, np.inf, np.mean(residual**2, axis=(0, 2)))
    right = _labels(targets[:, None, :] - residual) == _labels(targets)[:, None]
    accuracy = np.where(singular, 0.0, np.mean(right, axis=0))
    return Fit(relative, coefficients, error, accuracy)


def _labels(values: np.ndarray) -> np.ndarray:
    """The class of outputs `(..., o)`."""
    if values.shape[-1] == 1:
        return (values[..., 0] > 0).astype(int)
    return np.argmax(np.nan_to_num(values, nan=-np.inf), axis=-1)


def binomial_error(accuracy: float, n: int) -> float:
    """Standard error of an accuracy measured on n points, sqrt(p (1 - p) / n).

    Example:
        >>> binomial_error(0.5, 100)
        0.05
    """
    return math.sqrt(max(accuracy * (1 - accuracy), 0.0) / n)
