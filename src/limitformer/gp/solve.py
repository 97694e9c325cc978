"""Linear systems with a training kernel: one Cholesky factor in float64, used often."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.sparse.linalg import eigsh

from .cholesky import LARGEST, cholesky

_lapack: Any = scipy.linalg.lapack  # names that scipy's stubs do not list
_largest: Any = eigsh
UNSAFE = 1e-3
"""A rounding error of the kernel above this share of the noise is warned of."""


class PrecisionWarning(UserWarning):
    """The kernel's rounding is not small beside the noise."""


class Factor:
    """Cholesky factor L of M = K + diag(noise), in float64 whatever K's type.

    Attributes:
        noise: `(n,)` what was added to the diagonal.
        L: lower triangle; what is above it is not zero.
    """

    def __init__(self, K: np.ndarray, noise: np.ndarray):
        M = np.array(
            K.T, dtype=np.float64, order="F"
        )  # symmetric: the transpose lies as LAPACK likes
        M[np.diag_indices_from(M)] += noise
        self.noise = noise
        try:
            self.L = cholesky(M)
        except scipy.linalg.LinAlgError as error:
            raise ValueError(
                f"the training kernel with noise {_range(noise)} is not positive definite "
                f"({error}); duplicate inputs or a kernel of low rank make it singular, and an "
                "estimate from score draws can have eigenvalues below zero: use more noise, for "
                "example noise=lf.relative(1e-6), or more draws"
            ) from None

    @property
    def n(self) -> int:
        """Number of targets."""
        return len(self.L)

    def solve(self, B: np.ndarray) -> np.ndarray:
        """M^{-1} B."""
        return scipy.linalg.cho_solve((self.L, True), B, check_finite=False)

    def half(self, B: np.ndarray) -> np.ndarray:
        """L^{-1} B, so that |L^{-1} B|^2 = B^T M^{-1} B."""
        return scipy.linalg.solve_triangular(self.L, B, lower=True, check_finite=False)

    @property
    def logdet(self) -> float:
        """log det M."""
        return 2.0 * float(np.log(np.diag(self.L)).sum())

    @functools.cached_property
    def inverse(self) -> Float[np.ndarray, "n n"]:
        """M^{-1}, made when first asked for."""
        if self.n > LARGEST:  # dpotri is not safe where dpotrf is not
            return self.solve(np.eye(self.n))
        inverse, info = _lapack.dpotri(self.L, lower=1)
        if info:
            raise ValueError(f"the factor could not be inverted (LAPACK dpotri says {info})")
        lower = np.tril_indices(self.n, -1)
        inverse.T[lower] = inverse[lower]
        return inverse

    def residual(self, K: np.ndarray, alpha: np.ndarray, targets: np.ndarray) -> float:
        """|M alpha - y| / |y|: how well the system was solved."""
        size = float(np.linalg.norm(targets))
        error = K @ alpha + self.noise[:, None] * alpha - targets
        return float(np.linalg.norm(error)) / size if size else float(np.linalg.norm(error))


def warn_if_imprecise(K: np.ndarray, noise: np.ndarray) -> None:
    """Warn if eps(K's type) * largest eigenvalue / noise > 1e-3: predictions may be rounding."""
    eps = np.finfo(K.dtype).eps
    smallest = float(noise.min())
    bound = float(np.trace(K, dtype=float))  # at least the largest eigenvalue
    if eps * bound <= UNSAFE * smallest:
        return
    largest = bound
    if len(K) > 2:
        start = np.ones(len(K), K.dtype)
        largest = float(_largest(K, k=1, tol=1e-2, v0=start, return_eigenvectors=False)[0])
    if eps * largest > UNSAFE * smallest:
        share = eps * largest / smallest if smallest else np.inf
        advice = "compute the kernel with dtype=float64 or use" if K.dtype != float else "use"
        warnings.warn(
            f"the kernel's rounding ({K.dtype}, largest eigenvalue {largest:.3g}) is {share:.2g} "
            f"of the noise {smallest:.3g}: predictions may be inaccurate; {advice} more noise, for "
            f"example noise={eps * largest / UNSAFE:.1g}",
            PrecisionWarning,
            stacklevel=4,
        )


def _range(noise: np.ndarray) -> str:
    low, high = float(noise.min()), float(noise.max())
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
