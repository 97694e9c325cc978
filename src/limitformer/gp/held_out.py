"""The error at new points, estimated from the training Gram alone."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Array, Float, Num
from scipy.linalg import LinAlgError, cho_solve

from .cholesky import cholesky
from .spectrum import checked_gram, checked_targets


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Estimates of the mean squared error at a new point; made by `held_out_error`.

    Attributes:
        loo: mean of the squared leave-one-out residuals.
        loo_sem: its standard error, from the spread over points as if they were independent.
        gcv: generalised cross-validation, also called KARE.
        gcv_sem: the same for its numerator.
        residuals: left-out targets minus their predictions.
    """

    loo: float
    loo_sem: float
    gcv: float
    gcv_sem: float
    residuals: Float[np.ndarray, "n outputs"]


def held_out_error(
    K: Num[Array | np.ndarray, "rows columns"],
    targets: Num[Array | np.ndarray, "samples *outputs"],
    noise: float,
) -> HeldOut:
    """Leave-one-out and generalised cross-validation in closed form.

        A = (K + noise I)^{-1},    residual_i = [A y]_i / A_ii,    loo = mean residual_i^2,
        gcv = mean [A y]_i^2 / (tr A / n)^2

    Inductive: only training inputs and targets are used. Leave-one-out is exactly the error of
    n - 1 points on the one left, averaged; generalised cross-validation gives all points
    the same A_ii, and is consistent where the theory of `subset_error` holds, down to no noise.

    Args:
        K: (n, n) Gram matrix of the training inputs.
        targets: (n,) or (n, outputs).
        noise: the ridge; K + noise I must be positive definite.

    Returns:
        `HeldOut`; errors are averages over outputs.

    Raises:
        ValueError: as `spectrum`; a noise that is negative or too small.

    Example:
        >>> h = held_out_error(np.eye(3), np.array([1.0, 1.0, 4.0]), noise=0.5)
        >>> h.loo, h.gcv
        (6.0, 6.0)

    Reference:
        Rasmussen, Williams 2006, equation 5.12; Golub, Heath, Wahba 1979; Jacot, Simsek, Spadaro,
        Hongler, Gabriel 2020 (arXiv 2006.09796), definition 1.
    """
    K = checked_gram(K)[0]
    Y = checked_targets(targets, len(K))
    return from_inverse(*solved(K, Y, noise))


def solved(K: np.ndarray, Y: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """A Y and the diagonal of A = (K + noise I)^{-1}."""
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise={noise} is a variance; give a finite number, 0 or more")
    A = np.array(K.T, dtype=np.float64, order="F")
    A[np.diag_indices_from(A)] += noise
    try:
        factor = cholesky(A), True
    except LinAlgError:
        raise ValueError(
            f"K + noise I of {len(K)} points is not positive definite with noise {noise:g}; use "
            f"more, for example {1e-6 * max(np.trace(K), 0) / len(K):.2g} (1e-6 of the mean "
            "diagonal)"
        ) from None
    inverse = cho_solve(factor, np.eye(len(K)), overwrite_b=True, check_finite=False)
    return inverse @ Y, np.diagonal(inverse).copy()


def from_inverse(AY: np.ndarray, diagonal: np.ndarray) -> HeldOut:
    """Both estimates from A Y and the diagonal of A."""
    residuals = AY / diagonal[:, None]
    loo, loo_sem = _mean(np.mean(residuals**2, axis=1))
    numerator, sem = _mean(np.mean(AY**2, axis=1))
    scale = float(np.mean(diagonal)) ** 2
    return HeldOut(loo, loo_sem, numerator / scale, sem / scale, residuals)


def _mean(values: np.ndarray) -> tuple[float, float]:
    """The mean, and its standard error (nan for a single value)."""
    count = len(values)
    sem = float(np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else float("nan")
    return float(np.mean(values)), sem
