"""Noise variances: absolute, per point, or relative to the mean diagonal of the kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Relative:
    """A multiple of the mean diagonal of the training kernel; made by `relative`."""

    value: float


def relative(value: float) -> Relative:
    """Noise as a multiple of the mean diagonal of the training kernel.

        noise = value * tr(K) / n

    Example:
        >>> variances(relative(0.1), np.array([1.0, 3.0])).tolist()
        [0.2, 0.2]
    """
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"lf.relative({value!r}): give a finite number of at least 0")
    return Relative(float(value))


def variances(noise: Any, diagonal: np.ndarray) -> np.ndarray:
    """What is added to the diagonal of the kernel, `(n,)`.

    Args:
        noise: a variance, a variance per point `(n,)`, or `relative(...)`.
        diagonal: of the training kernel, `(n,)`.

    Raises:
        ValueError: negative or non-finite variances, or not one per point.
    """
    n = len(diagonal)
    if isinstance(noise, Relative):
        return np.full(n, noise.value * float(np.mean(diagonal)))
    given = np.asarray(noise, dtype=float)
    if given.ndim == 0:
        given = np.full(n, float(given))
    if given.shape != (n,):
        raise ValueError(
            f"noise has shape {given.shape}; give one variance, or one for each of the {n} targets"
        )
    if not np.isfinite(given).all() or (given < 0).any():
        raise ValueError(
            f"noise must be finite and at least 0 (it is a variance), got {np.min(given)} to "
            f"{np.max(given)}"
        )
    return given
