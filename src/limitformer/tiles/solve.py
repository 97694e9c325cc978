"""Solve with a stored kernel: Cholesky while it fits, conjugate gradients beyond."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..gp.noise import variances
from ..kernel.blocks import memory_budget
from ..kernel.progress import Progress
from ..layers.base import choice
from .cg import RANK, conjugate_gradients
from .cholesky import LARGEST, InMemory, OnDisk
from .matrix import Matrix, as_matrix
from .product import product
from .schedule import runner

METHODS = ("auto", "cholesky", "disk", "cg")


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """alpha = (K + D)^{-1} y.

    Attributes:
        alpha: in the shape of the targets.
        residual: |(K + D) alpha - y| / |y| of the worst output, computed from alpha.
        noise: D, `(n,)`.
        method: "cholesky", "disk" or "cg".
        iterations: of conjugate gradients, else 0.
        logdet: log det (K + D) where there is a Cholesky factor, else None.
    """

    alpha: np.ndarray
    residual: float
    noise: np.ndarray
    method: str
    iterations: int = 0
    logdet: float | None = None


def solve(
    K: Any,
    y,
    *,
    noise: Any = 1e-2,
    method: str = "auto",
    tolerance: float = 1e-8,
    limit: int = 1000,
    rank: int = RANK,
    seed: int = 0,
    memory=None,
    scheduler: Any = None,
    state=None,
    scratch=None,
    progress: bool | Callable = False,
) -> Solution:
    """Solve (K + D) alpha = y.

    "cholesky" needs the matrix in memory, once. "disk" is an exact factor by panels in a scratch
    folder, for a few times memory. "cg" iterates with the tiles where they are, preconditioned by
    a Nystrom approximation of random columns. "auto": Cholesky if the matrix fits, else "cg".

    Args:
        K: a kernel of a finished Gram matrix, such as `gram.nngp`, or an array.
        y: `(n,)` or `(n, outputs)`.
        noise: D: a variance, one per target, or `lf.relative(...)`; "cg" needs it above 0.
        method: one of the above.
        tolerance: largest relative residual of an output ("cg").
        limit, rank, seed: of the iteration and of its preconditioner ("cg").
        memory: budget in bytes, or such as "2GiB".
        scheduler: as for `lf.gram`, to multiply on workers ("cg").
        state: file with the solution so far, saved at every iteration and read at the start ("cg").
        scratch: folder for the factor ("disk").
        progress: True, or a function `(done, total, seconds left)` of iterations.

    Raises:
        MissingTile: the Gram matrix is not finished.
        RuntimeError: conjugate gradients do not reach the tolerance.

    Example:
        >>> import numpy as np
        >>> from limitformer.tiles import solve
        >>> solution = solve(np.eye(3), np.ones(3), noise=1.0)
        >>> solution.alpha.round(12).tolist(), solution.method
        ([0.5, 0.5, 0.5], 'cholesky')
    """
    choice("method", method, METHODS)
    matrix = as_matrix(K, square=True)
    n = matrix.shape[0]
    targets = np.asarray(y, np.float64)
    if targets.shape[:1] != (n,) or targets.ndim > 2 or not np.isfinite(targets).all():
        raise ValueError(
            f"y has shape {targets.shape}; expected finite numbers ({n},) or ({n}, outputs)"
        )
    B = targets.reshape(n, -1)
    D = variances(noise, diagonal(matrix))
    budget = memory_budget(memory)
    if method == "auto":
        method = "cholesky" if 8 * n * n <= budget and n <= LARGEST else "cg"
    if method == "cg":
        if not (D > 0).all():
            raise ValueError('method="cg" needs noise above 0, for example noise=lf.relative(1e-6)')
        with runner(scheduler) as run:
            found = conjugate_gradients(
                matrix,
                D,
                B,
                tolerance=tolerance,
                limit=limit,
                rank=rank,
                seed=seed,
                run=None if scheduler is None else run,
                state=None if state is None else Path(state),
                progress=Progress.of(progress),
            )
        alpha = found.X.reshape(targets.shape)
        return Solution(alpha, found.residual, D, "cg", found.iterations)
    if method == "cholesky" and n > LARGEST:
        raise ValueError(
            f'method="cholesky" takes at most {LARGEST} inputs (LAPACK\'s 32-bit indices), this '
            f'kernel has {n}; use method="disk" or "cg"'
        )
    order = matrix.orders[0]
    stored = D if order is None else D[order]
    factor = (
        InMemory.of(matrix, stored)
        if method == "cholesky"
        else OnDisk.of(matrix, stored, budget, scratch)
    )
    with contextlib.closing(factor):
        found = factor.solve(B if order is None else B[order])
        logdet = factor.logdet
    alpha = found
    if order is not None:
        alpha = np.empty_like(found)
        alpha[order] = found
    gap = product(matrix, alpha) + D[:, None] * alpha - B
    sizes = np.linalg.norm(B, axis=0)
    residual = float((np.linalg.norm(gap, axis=0) / np.where(sizes > 0, sizes, 1.0)).max())
    return Solution(alpha.reshape(targets.shape), residual, D, method, 0, logdet)


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
