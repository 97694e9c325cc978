"""Class probabilities as means of the softmax over Gaussian latent functions."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import expit, ndtr, softmax
from scipy.stats import norm, qmc

CHUNK = 2**22  # numbers held at once by a prediction


def mean_sigmoid(
    mean: Float[np.ndarray, " m"], variance: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " m"]:
    """E[1 / (1 + e^{-f})] for f ~ N(mean, variance), to about 1e-14.

    The trapezoidal rule, which converges exponentially for analytic integrands: over the Gaussian
    where the variance is below 1; else over the difference of the sigmoid and Phi(f sqrt(pi/8)),
    which vanishes away from 0, and whose Gaussian part has a closed form.

    Example:
        >>> mean_sigmoid(np.array([0.0, 2.0, 2.0]), np.array([5.0, 0.0, 1e4])).round(4).tolist()
        [0.5, 0.8808, 0.508]
    """
    z = np.arange(-9, 9.25, 0.5)
    narrow = expit(mean[:, None] + np.sqrt(np.minimum(variance, 1.0))[:, None] * z)
    small = narrow @ norm.pdf(z) * 0.5
    deviation = np.sqrt(np.maximum(variance, 1.0))[:, None]
    slope = np.sqrt(np.pi / 8)
    f = np.arange(-40, 40.25, 0.5)
    density = norm.pdf((f - mean[:, None]) / deviation) / deviation
    wide = density @ (expit(f) - ndtr(slope * f)) * 0.5
    wide += ndtr(slope * mean / np.sqrt(1 + slope**2 * np.maximum(variance, 1.0)))
    return np.where(variance < 1, small, wide)


def mean_softmax(
    mean: Float[np.ndarray, "m classes"],
    covariance: Float[np.ndarray, "m classes classes"],
    points: int = 256,
    replicates: int = 8,
    seed: int = 0,
) -> tuple[Float[np.ndarray, "m classes"], Float[np.ndarray, "m classes"], int]:
    """E[softmax(f)] for f ~ N(mean, covariance) by randomised quasi-Monte Carlo.

    Softmax ignores what is common to all classes, so that the covariance is centred first and its
    classes - 1 principal directions are drawn, the widest with the first Sobol coordinate.

    Returns:
        Probabilities, their standard errors over the replicates, and how many principal variances
        were negative beyond rounding (1e-9 of the largest) and were set to 0.

    Example:
        >>> p, sem, _ = mean_softmax(np.zeros((1, 3)), np.eye(3)[None])
        >>> bool(np.all(np.abs(p - 1 / 3) < 5 * sem)), bool(sem.max() < 1e-3)
        (True, True)
    """
    m, classes = mean.shape
    centre = np.eye(classes) - 1 / classes
    values, vectors = np.linalg.eigh(centre @ covariance @ centre)
    clipped = int(np.sum(values < -1e-9 * np.abs(values).max(axis=1, keepdims=True)))
    root = vectors[:, :, ::-1] * np.sqrt(np.maximum(values, 0.0))[:, None, ::-1]
    draws = [
        norm.ppf(qmc.Sobol(classes, rng=np.random.default_rng([seed, r])).random(points))
        for r in range(replicates)
    ]
    z = np.concatenate(draws)
    z = np.clip(z, -9.0, 9.0)  # a point at the edge of the unit cube is at infinity
    parts = np.empty((m, replicates, classes))
    step = max(1, CHUNK // (len(z) * classes))
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        f = mean[rows, None] + np.einsum("pk,mck->mpc", z, root[rows], optimize=True)
        p = softmax(f, axis=-1).reshape(-1, replicates, points, classes)
        parts[rows] = p.mean(axis=2)
    return parts.mean(axis=1), parts.std(axis=1, ddof=1) / np.sqrt(replicates), clipped


def integrate(
    mean: np.ndarray, covariance: np.ndarray, points: int, replicates: int, seed: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Probabilities, standard errors and clipped variances, for one latent function or several."""
    if mean.shape[1] > 1:
        return mean_softmax(mean, covariance, points, replicates, seed)
    variance = covariance[:, 0, 0]
    p = mean_sigmoid(mean[:, 0], np.maximum(variance, 0.0))
    return np.stack([1 - p, p], axis=1), np.zeros((len(p), 2)), int(np.sum(variance < 0))


def true_log_loss(probabilities: np.ndarray, index: np.ndarray) -> np.ndarray:
    """-log probability of the true class of every input."""
    true = np.take_along_axis(probabilities, index[:, None], axis=1)[:, 0]
    return -np.log(np.maximum(true, np.finfo(float).tiny))
