"""A Nystrom approximation of a kernel matrix: preconditioner, and its own log-determinant."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg

from .matrix import Matrix, stored_tiles


@dataclasses.dataclass(frozen=True, eq=False)
class Nystrom:
    """P = D^{1/2} (I + U diag(s) U^T) D^{1/2}, close to K + D.

    D^{-1/2} K D^{-1/2} is approximated from r of its columns C, with W the rows of C at these
    columns: C W^{-1} C^T = U diag(s) U^T.

    Attributes:
        noise: D, `(n,)`.
        U: orthonormal columns, `(n, r)`.
        s: eigenvalues, `(r,)`.
    """

    noise: np.ndarray
    U: np.ndarray
    s: np.ndarray

    def solve(self, V: np.ndarray) -> np.ndarray:
        """P^{-1} V."""
        root = np.sqrt(self.noise)[:, None]
        return self._power(V / root, -1.0) / root

    def half_solve(self, V: np.ndarray) -> np.ndarray:
        """(I + U diag(s) U^T)^{-1/2} V."""
        return self._power(V, -0.5)

    def _power(self, V: np.ndarray, power: float) -> np.ndarray:
        return V + self.U @ (((1.0 + self.s) ** power - 1.0)[:, None] * (self.U.T @ V))

    @property
    def logdet(self) -> float:
        """log det P."""
        return float(np.log(self.noise).sum() + np.log1p(self.s).sum())


def columns(matrix: Matrix, index: np.ndarray) -> np.ndarray:
    """Some columns in float64, in the order of the store; every tile is read once.

    Args:
        matrix: symmetric, `(n, n)`.
        index: columns in the order of the store.
    """
    layout = matrix.layout
    out = np.empty((layout.n, len(index)))
    for i, j, value in stored_tiles(matrix):
        for rows, cols, part in ((i, j, value), (j, i, value.T))[: 1 + (i != j)]:
            inside = np.flatnonzero(index // layout.tile == cols)
            if inside.size:
                out[layout.row(rows), inside] = part[:, index[inside] - cols * layout.tile]
    return out


def nystrom(matrix: Matrix, noise: np.ndarray, rank: int, seed: int) -> Nystrom:
    """The approximation from `rank` random columns, in the order of the store.

    Args:
        matrix: symmetric, `(n, n)`.
        noise: variances in the order of the store, above 0.
        rank: columns, at most n.
        seed: which.

    Reference:
        Frangella, Tropp, Udell 2023, arXiv 2110.02820 (the preconditioner).
    """
    n = len(noise)
    index = np.sort(np.random.default_rng(seed).permutation(n)[: min(rank, n)])
    C = columns(matrix, index) / np.sqrt(noise)[:, None] / np.sqrt(noise[index])[None]
    W = C[index]
    w, Q = scipy.linalg.eigh(W, check_finite=False)
    keep = w > 1e-12 * w[-1]  # below that, columns repeat each other up to rounding
    B = C @ (Q[:, keep] / np.sqrt(w[keep]))
    del C
    s, R = scipy.linalg.eigh(B.T @ B, check_finite=False)
    good = s > 1e-14 * s[-1]
    return Nystrom(noise, B @ (R[:, good] / np.sqrt(s[good])), s[good])
