"""Solve with a stored kernel: Cholesky while it fits, conjugate gradients beyond."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..kernel.progress import Progress
from .cg import RANK
from .matrix import as_matrix
from .solver import solver


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

    "cholesky" needs half of the matrix in memory. "disk" is an exact factor by panels in a scratch
    folder, for a few times memory. "cg" iterates with the tiles where they are, preconditioned by
    a Nystrom approximation of random columns. "auto": Cholesky if its factor fits, else "cg".

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
    options = {"method": method, "tolerance": tolerance, "limit": limit, "rank": rank, "seed": seed}
    options |= {"memory": memory, "scheduler": scheduler, "scratch": scratch}
    n = as_matrix(K, square=True).shape[0]
    targets = np.asarray(y, np.float64)
    if targets.shape[:1] != (n,) or targets.ndim > 2 or not np.isfinite(targets).all():
        raise ValueError(
            f"y has shape {targets.shape}; expected finite numbers ({n},) or ({n}, outputs)"
        )
    saved = None if state is None else Path(state)
    with solver(K, noise, **options) as inverse:
        found = inverse.apply(targets.reshape(n, -1), state=saved, progress=Progress.of(progress))
    alpha = found.X.reshape(targets.shape)
    return Solution(
        alpha, found.residual, inverse.noise, inverse.method, found.iterations, inverse.logdet
    )
