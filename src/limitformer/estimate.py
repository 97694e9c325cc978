"""A number with its doubt: means over draws and their standard errors, streamed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value and its standard error (0 where the value is exact, NaN where it is unknown)."""

    value: Any
    sem: Any

    def __str__(self) -> str:
        if np.ndim(self.value):
            return f"Estimate of shape {np.shape(self.value)}"
        return f"{float(self.value):.4g} ± {float(self.sem):.1g}"


def mean_of(blocks: Iterable[np.ndarray]) -> Estimate:
    """The mean over the leading axis of all blocks together, in memory of one block.

        sem^2 = 1 / (n (n - 1)) sum_i (v_i - mean)^2

    Args:
        blocks: arrays `(draws of the block, ...)`.

    Example:
        >>> found = mean_of([np.array([1.0, 2.0]), np.array([6.0])])
        >>> float(found.value), round(float(found.sem), 4)
        (3.0, 1.5275)

    Reference:
        Chan, Golub, LeVeque 1983, The American Statistician 37 (merging of two means).
    """
    n, mean, squares = 0, 0.0, 0.0
    for block in blocks:
        m = len(block)
        own = block.mean(axis=0)
        step = own - mean
        squares = squares + ((block - own) ** 2).sum(axis=0) + step**2 * (n * m / (n + m))
        mean = mean + step * (m / (n + m))
        n += m
    if not n:
        raise ValueError("there are no draws to average over")
    sem = np.sqrt(squares / (n - 1) / n) if n > 1 else np.full(np.shape(mean), math.nan)
    return Estimate(mean, sem)
