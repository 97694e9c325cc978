"""Gradient flow of a wide network under the squared loss: functions of the tangent kernel.

Training is gradient flow on |f - y|^2 / 2 + noise |w - w0|^2 / 2 (sums, no 1/n; theory 6), so that
with M = T + noise, f_*(t) = f_*(0) + A_t (y - f(0)), A_t = T_*X M^{-1} (I - exp(-t M)).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from jaxtyping import Float


def rate(w: np.ndarray, t: float) -> np.ndarray:
    """g_t(w) = (1 - exp(-t w)) / w, which is 1 / w at t = inf and t at w = 0."""
    w = np.asarray(w, dtype=float)
    if np.isinf(t):
        return 1 / w
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(t * np.abs(w) < 1e-12, t, -np.expm1(-t * w) / np.where(w == 0, 1.0, w))


def rate_slope(w: np.ndarray, t: float) -> np.ndarray:
    """Divided differences (g_t(w_i) - g_t(w_j)) / (w_i - w_j), g_t' where they are equal."""
    g = rate(w, t)
    gap = w[:, None] - w[None, :]
    middle = (w[:, None] + w[None, :]) / 2
    if np.isinf(t):
        return -g[:, None] * g[None, :]
    z = t * middle
    series = t * t * (-0.5 + z / 3 - z * z / 8)
    slope = np.where(np.abs(z) < 1e-3, series, (t * np.exp(-z) - rate(middle, t)) / middle)
    near = np.abs(gap) <= 1e-4 * np.maximum(np.abs(middle), 1e-300)
    return np.where(near, slope, (g[:, None] - g[None, :]) / np.where(near, 1.0, gap))


class Modes:
    """Eigenvectors of M = T + noise, in which training is a rate per mode."""

    def __init__(self, T: np.ndarray, noise: np.ndarray):
        M = np.array(T, dtype=np.float64, order="F")
        M[np.diag_indices_from(M)] += noise
        self.w, self.U = scipy.linalg.eigh(M, overwrite_a=True, check_finite=False)

    def weights(self, Tx: Float[np.ndarray, "m n"], t: float) -> Float[np.ndarray, "m n"]:
        """A_t of some inputs with tangent kernel `Tx` against the training inputs."""
        return ((Tx @ self.U) * rate(self.w, t)) @ self.U.T

    def derivative(self, Tx, dT, y, t: float) -> np.ndarray:
        """Change of T_*X g_t(M) y with M, along dT (Daleckii and Krein)."""
        inner = rate_slope(self.w, t) * (self.U.T @ dT @ self.U)
        return (Tx @ self.U) @ (inner @ (self.U.T @ y))
