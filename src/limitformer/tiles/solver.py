"""(K + D)^{-1} of a stored kernel, made ready once and applied to many right-hand sides."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..gp.noise import variances
from ..kernel.memory import memory_budget
from ..layers.base import choice
from .cg import RANK, Iterated, conjugate_gradients, preconditioner
from .cholesky import WIDTH, Factor
from .matrix import Matrix, as_matrix
from .product import product
from .schedule import runner

METHODS = ("auto", "cholesky", "disk", "cg")


@dataclasses.dataclass(frozen=True, eq=False)
class Solver:
    """The inverse of K + D, in the caller's order of inputs.

    Attributes:
        matrix: K.
        noise: D, `(n,)`.
        method: "cholesky", "disk" or "cg".
        logdet: log det (K + D) where there is a Cholesky factor, else None.
        apply: `apply(B, **options)`: an `Iterated` solution of `(n, k)` right-hand sides.
    """

    matrix: Matrix
    noise: np.ndarray
    method: str
    logdet: float | None
    apply: Callable[..., Iterated]


@contextlib.contextmanager
def solver(
    K: Any,
    noise: Any,
    *,
    method: str = "auto",
    tolerance: float = 1e-8,
    limit: int = 1000,
    rank: int = RANK,
    seed: int = 0,
    memory=None,
    scheduler: Any = None,
    scratch=None,
) -> Iterator[Solver]:
    """Factorise, or approximate for conjugate gradients; the arguments are those of `solve`."""
    choice("method", method, METHODS)
    matrix = as_matrix(K, square=True)
    n = matrix.shape[0]
    D = variances(noise, diagonal(matrix))
    budget = memory_budget(memory)
    if method == "auto":
        method = "cholesky" if 8 * n * (n // 2 + 2 * WIDTH) <= budget else "cg"
    if method == "cg":
        if not (D > 0).all():
            raise ValueError('method="cg" needs noise above 0, for example noise=lf.relative(1e-6)')
        with runner(scheduler) as run:
            shared = None if scheduler is None else run
            P = preconditioner(matrix, D, rank, seed)

            def iterate(B: np.ndarray, **options) -> Iterated:
                return conjugate_gradients(
                    matrix, D, B, P, tolerance=tolerance, limit=limit, run=shared, **options
                )

            yield Solver(matrix, D, method, None, iterate)
        return
    order = matrix.orders[0]
    stored = D if order is None else D[order]
    factor = (
        Factor.in_memory(matrix, stored)
        if method == "cholesky"
        else Factor.on_disk(matrix, stored, budget, scratch)
    )

    def direct(B: np.ndarray, **_) -> Iterated:
        X = factor.solve(B if order is None else B[order])
        if order is not None:
            X[order] = X.copy()
        gap = product(matrix, X) + D[:, None] * X - B
        sizes = np.linalg.norm(B, axis=0)
        worst = (np.linalg.norm(gap, axis=0) / np.where(sizes > 0, sizes, 1.0)).max()
        return Iterated(X, float(worst), 0)

    with contextlib.closing(factor):
        yield Solver(matrix, D, method, factor.logdet, direct)


def diagonal(matrix: Matrix) -> np.ndarray:
    """The diagonal, in the caller's order and float64."""
    parts = [np.diagonal(matrix.tile(i, i)) for i in range(matrix.layout.grid[0])]
    found = np.concatenate(parts).astype(np.float64)
    order = matrix.orders[0]
    if order is None:
        return found
    out = np.empty_like(found)
    out[order] = found
    return out
