"""What a posterior says of new inputs, and what its covariance must satisfy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import scipy.linalg

from .training import Replicated

_ROUNDING = 256  # eps of the kernel, times the prior variance, that a variance may be below zero


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a posterior says of some inputs; unpacks as `mean, cov`.

    Attributes:
        mean: in the shape of the targets, with a leading axis of times if `t` was an array.
        cov: `(m, m)` or the variances `(m,)`, the same for every output; None if not asked for.
        mean_sem: standard error of the mean where the kernel is an estimate, else None.
        full: whether cov is a matrix.
    """

    mean: np.ndarray
    cov: np.ndarray | None
    mean_sem: np.ndarray | None = None
    full: bool = True

    def __iter__(self) -> Iterator:
        return iter((self.mean, self.cov))

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of one output at every input."""
        if self.cov is None:
            raise ValueError('there is no covariance; predict with cov="diag" or cov="full"')
        v = np.diagonal(self.cov, axis1=-2, axis2=-1) if self.full else self.cov
        return np.sqrt(np.maximum(v, 0.0))


def check_variances(spread: np.ndarray, prior: np.ndarray, read: Replicated, draws: int) -> None:
    """Refuse variances that are below zero by more than rounding."""
    own, before = (a if a.ndim == 1 else np.diagonal(a) for a in (spread, prior))
    rounding = _ROUNDING * np.finfo(read.value.dtype).eps * np.abs(before).max()
    bad = np.flatnonzero(own < -rounding)
    if not bad.size:
        return
    if read.deviations is not None:
        why = (
            f"the kernel's sampling error with draws={draws} is larger than the "
            f"posterior variance; condition with more draws (draws={8 * draws})"
        )
    else:
        why = f"the kernel in {read.value.dtype} is too imprecise; condition in float64"
    raise ValueError(
        f"the predicted variance is below zero for {bad.size} of {len(own)} inputs, down to "
        f"{own.min():.2g} (before the data: {before[own.argmin()]:.2g}): {why}, with more "
        "noise, or ask for the mean alone (cov=None)"
    )


def semidefinite_root(cov: np.ndarray) -> np.ndarray:
    """B with B B^T = cov, for a covariance that may be singular; rounding below zero is zero."""
    w, U = scipy.linalg.eigh(cov, check_finite=False)
    floor = -1e-8 * max(float(w[-1]), float(np.abs(np.diagonal(cov)).max()), 1e-300)
    if w[0] < floor * len(w):
        raise ValueError(
            f"the predicted covariance has the eigenvalue {w[0]:.2g} below zero, more than "
            "rounding: the kernel is too imprecise (use dtype=float64, more draws or more noise)"
        )
    return U * np.sqrt(np.maximum(w, 0.0))
