"""Predictions of a mixture over scores: heavy tails, exactly over the draws."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from .mixture import Mixture


@dataclasses.dataclass(frozen=True, eq=False)
class MixturePrediction:
    """What a finite-head posterior says of some inputs; unpacks as `mean, cov`.

    Attributes:
        means: `(particles, m, outputs)` given the scores of each particle.
        spreads: `(particles, m, m)`, or the variances `(particles, m)`.
        weight: `(particles,)`.
        populations: independent ones of equal size and weight, one after the other.
        shape: of the mean.
    """

    means: Float[np.ndarray, "particles m outputs"]
    spreads: Float[np.ndarray, "particles m *m"]
    weight: Float[np.ndarray, " particles"]
    populations: int
    shape: tuple[int, ...]

    def __iter__(self) -> Iterator:
        return iter((self.mean, self.cov))

    @functools.cached_property
    def mean(self) -> np.ndarray:
        """E[f], in the shape of the targets."""
        return np.tensordot(self.weight, self.means, 1).reshape(self.shape)

    @functools.cached_property
    def mean_sem(self) -> np.ndarray:
        """Its standard error, from the independent populations."""
        P = self.populations
        parts = np.split(np.arange(len(self.weight)), P)
        own = np.stack([P * np.tensordot(self.weight[p], self.means[p], 1) for p in parts])
        return (own.std(axis=0, ddof=1) / math.sqrt(P)).reshape(self.shape)

    @property
    def cov(self) -> np.ndarray:
        """E[Cov f | scores] + Cov[E f | scores], `(m, m)`, or `(outputs, m, m)` if several.

        With cov="diag" the variances in the shape of the mean.
        """
        centred = self.means - np.tensordot(self.weight, self.means, 1)
        inner = np.tensordot(self.weight, self.spreads, 1)
        if self.spreads.ndim == 2:
            outer = np.einsum("p,pmo->mo", self.weight, centred**2)
            return (inner[:, None] + outer).reshape(self.shape)
        outer = np.einsum("p,pmo,pko->omk", self.weight, centred, centred)
        return (inner + outer)[0] if self.means.shape[2] == 1 else inner + outer

    @property
    def std(self) -> np.ndarray:
        """Standard deviation at every input, in the shape of the mean."""
        v = self._variances
        centred = self.means - np.tensordot(self.weight, self.means, 1)
        total = np.einsum("p,pmo->mo", self.weight, centred**2 + v[:, :, None])
        return np.sqrt(total).reshape(self.shape)

    def at(self, point: int, output: int = 0) -> Mixture:
        """The predictive law of one output at one input: densities, quantiles, tails."""
        return Mixture(self.means[:, point, output], self._variances[:, point], self.weight)

    def log_density(self, targets, noise: float = 0.0) -> Float[np.ndarray, " m"]:
        """log p(y) of all outputs at every input, log sum_p w_p prod_o N(y_o; mean, v + noise)."""
        y = np.asarray(targets, float).reshape(self.means.shape[1:])
        v = self._variances[:, :, None] + noise
        log = -0.5 * ((y - self.means) ** 2 / v + np.log(2 * np.pi * v)).sum(axis=2)
        return np.asarray(logsumexp(log, axis=0, b=self.weight[:, None]))

    @property
    def _variances(self) -> np.ndarray:
        v = self.spreads
        return v if v.ndim == 2 else np.diagonal(v, axis1=1, axis2=2)
