"""Mixtures of Gaussians over draws: exact densities and quantiles, no histograms of outputs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import scipy.optimize
from jaxtyping import Float
from scipy.special import ndtr

from ..estimate import Estimate, mean_of

_NUMBERS_AT_ONCE = 2**22


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """The law sum_d w_d N(mean_d, variance_d) of one number; standard errors are over draws d.

    Attributes:
        mean, variance: of every component.
        weight: of every component, with sum 1; None: all the same.

    Example:
        >>> law = Mixture(np.zeros(2), np.array([1.0, 9.0]))
        >>> float(law.cdf(0.0).value), round(float(law.quantile(0.9).value), 3)
        (0.5, 2.578)
    """

    mean: Float[np.ndarray, " draws"]
    variance: Float[np.ndarray, " draws"]
    weight: Float[np.ndarray, " draws"] | None = None

    def density(self, values) -> Estimate:
        """p(y) = sum_d w_d N(y; mean_d, variance_d)."""
        return self._average(_density, values)

    def cdf(self, values) -> Estimate:
        """P(y <= value)."""
        return self._average(_below, values)

    def tail(self, values) -> Estimate:
        """P(|y| > value)."""
        return self._average(_outside, values)

    def quantile(self, probabilities) -> Estimate:
        """Values that y stays below with these probabilities."""
        p = np.asarray(probabilities, float)
        if ((p <= 0) | (p >= 1)).any():
            raise ValueError(f"probabilities must lie between 0 and 1, got {probabilities!r}")
        far = 40 * math.sqrt(self.variance.max())
        ends = self.mean.min() - far, self.mean.max() + far
        found = np.array(
            [
                scipy.optimize.brentq(
                    lambda y, q=q: float(self.cdf(y).value) - q, *ends, xtol=1e-12
                )
                for q in p.ravel()
            ]
        ).reshape(p.shape)
        return Estimate(found, self.cdf(found).sem / self.density(found).value)

    def _average(self, of, values) -> Estimate:
        y = np.asarray(values, float)
        size = max(1, _NUMBERS_AT_ONCE // max(1, y.size))
        parts = [slice(i, i + size) for i in range(0, len(self.variance), size)]

        def each() -> Iterator[tuple[slice, np.ndarray]]:
            for part in parts:
                shape = (-1, *(1,) * y.ndim)
                yield (
                    part,
                    of(y, self.mean[part].reshape(shape), self.variance[part].reshape(shape)),
                )

        if self.weight is None:
            return mean_of(values for _, values in each())
        w = self.weight
        total = sum(np.tensordot(w[part], values, 1) for part, values in each())
        square = sum(
            np.tensordot(w[part] ** 2, (values - total) ** 2, 1) for part, values in each()
        )
        return Estimate(total, np.sqrt(square))


def _density(y, mean, variance):
    return np.exp(-0.5 * (y - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def _below(y, mean, variance):
    return ndtr((y - mean) / np.sqrt(variance))


def _outside(y, mean, variance):
    std = np.sqrt(variance)
    return ndtr((-np.abs(y) - mean) / std) + ndtr((mean - np.abs(y)) / std)
