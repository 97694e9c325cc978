"""Conjugate gradients over tiles: all right-hand sides at once, the matrix read once an iteration.

SciPy's `cg` runs on the stacked right-hand sides; the matrix never is in memory.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse.linalg

from .matrix import Matrix
from .nystrom import Nystrom, nystrom
from .product import product

RANK = 1024
"""Columns of the preconditioner, at most a quarter of the matrix."""
_ROUNDS = 4  # starts from the last solution, if the residual that was followed has drifted


@dataclasses.dataclass(frozen=True, eq=False)
class Iterated:
    """An approximate solution of (K + D) X = B.

    Attributes:
        X: `(n, k)`.
        residual: |(K + D) X - B| / |B| of the worst column, computed from X.
        iterations: products with K, without those that start and check.
    """

    X: np.ndarray
    residual: float
    iterations: int


def conjugate_gradients(
    matrix: Matrix,
    noise: np.ndarray,
    B: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray],
    *,
    tolerance: float,
    limit: int,
    run: Callable | None = None,
    state: Path | None = None,
    progress: Callable | None = None,
) -> Iterated:
    """Solve (K + D) X = B to a relative residual in every column.

    Args:
        matrix: symmetric, `(n, n)`.
        noise: D, `(n,)`, above 0, in the caller's order, as B.
        B: `(n, k)`.
        precondition: P^{-1}, in the caller's order; made by `preconditioner`.
        tolerance: largest |(K + D) X - B| / |B| of a column.
        limit: iterations, at most.
        run: a function of `schedule.runner`, to multiply on workers.
        state: file where X is saved after every iteration, and read at the start.
        progress: `progress(iteration, residual)`.

    Raises:
        RuntimeError: the residual is not reached within the limit.
    """
    sizes = np.linalg.norm(B, axis=0)
    scale = np.where(sizes > 0, sizes, 1.0)
    shape, count = B.shape, 0

    def times(V: np.ndarray) -> np.ndarray:
        return product(matrix, V, run) + noise[:, None] * V

    def apply(v: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        if count > limit:
            raise _LimitReached
        return times(v.reshape(shape)).ravel()

    def residuals(X: np.ndarray) -> np.ndarray:
        return np.linalg.norm(times(X) - B / scale, axis=0)

    def after(v: np.ndarray) -> None:
        nonlocal X
        X = v.reshape(shape)
        if state is not None:
            _save(state, X * scale)
        if progress is not None:
            progress(count, limit)

    n = B.size
    operator: Any = scipy.sparse.linalg.LinearOperator  # its stubs lack the functions' arguments
    A = operator((n, n), matvec=apply, dtype=np.float64)
    M = operator((n, n), matvec=lambda v: precondition(v.reshape(shape)).ravel(), dtype=np.float64)
    X = _load(state, shape) / scale
    worst = residuals(X)
    for attempt in range(_ROUNDS):
        if worst.max() <= tolerance:
            return Iterated(X * scale, float(worst.max()), count)
        try:
            goal = 0.5 * tolerance / 2**attempt
            scipy.sparse.linalg.cg(
                A, (B / scale).ravel(), x0=X.ravel(), rtol=0.0, atol=goal, M=M, callback=after
            )
        except _LimitReached:
            break
        worst = residuals(X)
    worst = residuals(X)
    if worst.max() <= tolerance:
        return Iterated(X * scale, float(worst.max()), count)
    saved = f"; what is reached is in {state}" if state is not None else ""
    raise RuntimeError(
        f"conjugate gradients stopped at a relative residual of {worst.max():.2g} after "
        f"{min(count, limit)} iterations, {tolerance:g} was asked for: use more noise, a larger "
        f"rank, a limit above {limit}, or method='cholesky'{saved}"
    )


class _LimitReached(Exception):
    pass


def preconditioner(matrix: Matrix, noise: np.ndarray, rank: int, seed: int) -> Callable:
    """P^{-1} of a Nystrom approximation P of K + D, in the caller's order."""
    order = matrix.orders[0]
    rank = min(rank, max(1, len(noise) // 4))
    if order is None:
        return nystrom(matrix, noise, rank, seed).solve
    P: Nystrom = nystrom(matrix, noise[order], rank, seed)

    def solve(V: np.ndarray) -> np.ndarray:
        out = np.empty_like(V)
        out[order] = P.solve(V[order])
        return out

    return solve


def _save(path: Path, X: np.ndarray) -> None:
    part = path.with_name(f".{path.name}.partial")
    with open(part, "wb") as file:
        np.save(file, X, allow_pickle=False)
    os.replace(part, path)


def _load(path: Path | None, shape) -> np.ndarray:
    if path is None or not path.exists():
        return np.zeros(shape)
    X = np.load(path, allow_pickle=False)
    if X.shape != shape or X.dtype != np.float64 or not np.isfinite(X).all():
        raise ValueError(
            f"{path} has {X.dtype} numbers of shape {X.shape}, expected float64 {shape}: it is of "
            "another solve; choose another state="
        )
    return X
