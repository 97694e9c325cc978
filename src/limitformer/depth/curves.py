"""Metrics against depth, of several inputs and several samples of a network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from .metrics import (
    dirichlet_energy,
    effective_rank,
    mean_cosine,
    relative_residual,
    stable_rank,
)
from .tokens import tokens


def variance(x=None, *, kernel=None, mask=None) -> Any:
    """Mean second moment of a token's channels, tr K / n."""
    t = tokens(x, kernel, mask)
    channels = 1 if t.X is None else t.X.shape[-1]
    return t.squares.sum(axis=-1) / (t.n * channels)


METRICS: Mapping[str, Callable] = {
    "residual": relative_residual,
    "cosine": mean_cosine,
    "effective_rank": effective_rank,
    "stable_rank": stable_rank,
    "energy": dirichlet_energy,
    "variance": variance,
}


def tangent_ratio(K, T, mask=None) -> Any:
    """tr T / tr K: how much the weights so far can move the tokens, for their size."""
    above, below = (np.trace(M, axis1=-2, axis2=-1) for M in (T, K))
    return np.where(above > 0, above / np.where(below > 0, below, 1.0), np.nan)


def tangent_cosine(K, T, mask=None) -> Any:
    """Mean cosine of the gradients of two tokens, mean_{a != b} T_ab / sqrt(T_aa T_bb).

    At 1, a step of gradient descent moves all tokens alike.
    """
    some = np.trace(T, axis1=-2, axis2=-1) > 0
    return np.where(some, mean_cosine(kernel=T, mask=mask), np.nan)


def tangent_condition(K, T, mask=None) -> Any:
    """lambda_max(T) / lambda_min(T) over valid tokens: how unevenly token outputs are learnt.

    Infinite where the smallest eigenvalue is zero to rounding.
    """
    t = tokens(kernel=T, mask=mask)
    w = np.linalg.eigvalsh(t.K)
    top = w[..., -1]
    # padded tokens add zeros, which come first among non-negative eigenvalues
    low = np.take_along_axis(w, (w.shape[-1] - t.n)[..., None], axis=-1)[..., 0]
    lost = low <= w.shape[-1] * t.eps * top
    found = np.where(lost, np.inf, top / np.where(lost, 1.0, low))
    return np.where(top > 0, found, np.nan)


TANGENT_METRICS: Mapping[str, Callable] = {
    "tangent_ratio": tangent_ratio,
    "tangent_cosine": tangent_cosine,
    "tangent_condition": tangent_condition,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """Metrics after every layer, of one way to compute them.

    Attributes:
        name: "kernel", "heads" or "twin"; `label` says it in words.
        layers: names of the steps.
        values: by metric, `(samples, inputs, layers)`. Samples are replicates of an estimated
            kernel, draws of finite heads, or finite networks.
        estimated: the samples differ; else the values are exact.
    """

    name: str
    label: str
    layers: tuple[str, ...]
    values: Mapping[str, Float[np.ndarray, "samples inputs layers"]]
    estimated: bool

    def mean(self, metric: str) -> np.ndarray:
        """`(layers,)` mean over samples and inputs."""
        return self._of(metric).mean(axis=(0, 1))

    def sem(self, metric: str) -> np.ndarray | None:
        """`(layers,)` standard error of the mean over samples, for these inputs; None if exact."""
        return _sem(self._of(metric).mean(axis=1)) if self.estimated else None

    def input_sem(self, metric: str) -> np.ndarray | None:
        """`(layers,)` standard error over inputs, as a sample of others; None for one input."""
        values = self._of(metric).mean(axis=0)
        return _sem(values) if len(values) > 1 else None

    def band(self, metric: str, probability: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Quantiles over samples and inputs that hold this probability, `(layers,)` each."""
        if not 0 < probability < 1:
            raise ValueError(f"probability must lie between 0 and 1, got {probability}")
        tail = (1 - probability) / 2
        values = self._of(metric).reshape(-1, len(self.layers))
        return np.quantile(values, tail, axis=0), np.quantile(values, 1 - tail, axis=0)

    def _of(self, metric: str) -> np.ndarray:
        if metric not in self.values:
            known = ", ".join(self.values)
            more = "; tangent metrics need depth_profile(..., ntk=True)"
            raise KeyError(f"{metric!r} is not among {known}{more}")
        return self.values[metric]


def _sem(values: np.ndarray) -> np.ndarray:
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return values.std(axis=0, ddof=1) / math.sqrt(len(values))
