"""Sums of squares over all paths at once, by random signs."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from ..layers.base import choice
from ..models.forward import steps
from ..models.inputs import stream
from ..models.spec import Attention, Model
from .paths import MLPS, path_counts, residual_norm
from .paths_frozen import advance

_BYTES = 2**28  # of signed parts that are carried at a time


@dataclasses.dataclass(frozen=True)
class SignedSums:
    """Sums over all paths of each length of ||res P||_F^2; made by `random_signs`.

    Attributes:
        value: (L + 1,).
        sem: (L + 1,) standard errors over draws of signs; 0 at length 0, which has one path.
        counts: number of paths of each length.
        draws: of signs.
    """

    value: np.ndarray
    sem: np.ndarray
    counts: tuple[int, ...]
    draws: int

    @property
    def rms(self) -> np.ndarray:
        """(L + 1,): root mean square of ||res P||_F over the paths of a length."""
        return np.sqrt(self.value / np.asarray(self.counts, float))


def random_signs(model: Model, x: Any, *, key, draws: int = 16, mlp: str = "source") -> SignedSums:
    """Sum over all paths of a length of ||res P||_F^2, without enumerating them.

    Multiply every head by a random sign and run the recursion of `path_decomposition`: products of
    two different paths average to zero, so

        E ||res S^(k)||_F^2 = sum_P ||res P||_F^2        (unbiased, all k at once).

    Args:
        model, x, mlp: as for `path_decomposition`.
        key: of the signs.
        draws: of all signs; each costs one decomposition.

    Reference:
        theory 4, "Path statistics".
    """
    choice("mlp", mlp, MLPS)
    if draws < 2:
        raise ValueError(f"draws must be at least 2 for a standard error, got {draws}")
    X = stream(model, x)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    size = max(1, _BYTES // (X.nbytes * (model.depth + 1)))
    found = []
    for start in range(0, draws, size):
        R = min(size, draws - start)
        S = np.broadcast_to(X, (R, 1, *X.shape)).copy()
        for step in steps(model, x):
            signs = None
            if isinstance(step.sublayer.branch, Attention):
                signs = rng.choice([-1.0, 1.0], (R, step.sublayer.branch.heads)).astype(X.dtype)
            S = advance(step, S, mlp == "inside", signs)
        found.append(residual_norm(S).astype(np.float64) ** 2)
    squares = np.concatenate(found)
    sem = squares.std(axis=0, ddof=1) / np.sqrt(draws)
    sem[0] = 0.0
    return SignedSums(squares.mean(axis=0), sem, path_counts(model.heads), draws)
