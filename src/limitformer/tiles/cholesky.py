"""Cholesky factors: in place for a matrix that fits, by panels on disk for one that does not."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import scipy.linalg

from .matrix import Matrix, stored_tiles

LARGEST = 46_000
"""Rows up to which SciPy's LAPACK, with its 32-bit indices, factorises in memory."""


def _not_definite(error: Exception, noise: np.ndarray) -> ValueError:
    return ValueError(
        f"the kernel with noise {noise.min():.3g} is not positive definite ({error}); use more "
        "noise, for example noise=lf.relative(1e-6)"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class InMemory:
    """L with L L^T = K + D in the order of the store; it takes the place of the matrix."""

    L: np.ndarray

    @classmethod
    def of(cls, matrix: Matrix, noise: np.ndarray) -> InMemory:
        """Factorise in place: the peak is the matrix itself, in float64."""
        n = len(noise)
        A = np.empty((n, n), order="F")
        for i, j, value in stored_tiles(matrix):
            A[matrix.layout.row(i), matrix.layout.col(j)] = value
        A[np.diag_indices(n)] += noise
        try:
            L, _ = scipy.linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except scipy.linalg.LinAlgError as error:
            raise _not_definite(error, noise) from None
        return cls(L)

    def solve(self, B: np.ndarray) -> np.ndarray:
        """(K + D)^{-1} B."""
        return scipy.linalg.cho_solve((self.L, True), B, check_finite=False)

    @property
    def logdet(self) -> float:
        return 2.0 * float(np.log(np.diagonal(self.L)).sum())

    def close(self) -> None:
        """Nothing to delete."""


@dataclasses.dataclass(frozen=True, eq=False)
class OnDisk:
    """The same factor by panels of columns in memory-mapped files, a panel in memory at a time.

    Attributes:
        panels: one array per panel, rows from the panel's first column on.
        starts: first column of every panel.
        folder: deleted with the object.
    """

    panels: list[np.ndarray]
    starts: list[int]
    folder: tempfile.TemporaryDirectory

    @classmethod
    def of(cls, matrix: Matrix, noise: np.ndarray, memory: int, scratch=None) -> OnDisk:
        """Factorise panel by panel from the left: finished panels are read once for each later one.

        Args:
            matrix: symmetric, `(n, n)`.
            noise: D, in the order of the store.
            memory: bytes for a panel and what updates it.
            scratch: folder for the factor, n^2 / 2 numbers; None: the system's.
        """
        n, tile = len(noise), matrix.layout.tile
        width = max(1, min(n, memory // (2 * 8 * n)) // tile) * tile
        folder = tempfile.TemporaryDirectory(dir=scratch, prefix="cholesky-")
        self = cls([], list(range(0, n, width)), folder)
        try:
            self._factorise(matrix, noise, width)
        except BaseException:
            self.close()
            raise
        return self

    def _factorise(self, matrix: Matrix, noise: np.ndarray, width: int) -> None:
        n, tile = len(noise), matrix.layout.tile
        for start in self.starts:
            stop = min(start + width, n)
            panel = _panel(matrix, start, stop)
            panel[np.arange(stop - start), np.arange(stop - start)] += noise[start:stop]
            for first, done in zip(self.starts, self.panels, strict=False):
                top = np.array(done[start - first : stop - first])
                for a in range(start, n, tile):
                    b = min(a + tile, n)
                    panel[a - start : b - start] -= done[a - first : b - first] @ top.T
            own = stop - start
            try:
                L = scipy.linalg.cholesky(panel[:own], lower=True, check_finite=False)
            except scipy.linalg.LinAlgError as error:
                raise _not_definite(error, noise) from None
            panel[:own] = L
            for a in range(own, len(panel), tile):
                part = panel[a : a + tile]
                part[:] = scipy.linalg.solve_triangular(L, part.T, lower=True, check_finite=False).T
            path = Path(self.folder.name) / f"{start}.npy"
            np.save(path, panel, allow_pickle=False)
            del panel, L
            self.panels.append(np.load(path, mmap_mode="r", allow_pickle=False))

    def close(self) -> None:
        """Delete the factor."""
        self.panels.clear()
        self.folder.cleanup()

    def solve(self, B: np.ndarray) -> np.ndarray:
        """(K + D)^{-1} B: one pass over the panels forwards and one backwards."""
        X = np.array(B, np.float64).reshape(len(B), -1)
        for start, panel in zip(self.starts, self.panels, strict=True):
            own = panel.shape[1]
            L, part = np.array(panel[:own]), slice(start, start + own)
            X[part] = scipy.linalg.solve_triangular(L, X[part], lower=True, check_finite=False)
            X[start + own :] -= panel[own:] @ X[part]
        for start, panel in zip(self.starts[::-1], self.panels[::-1], strict=True):
            own = panel.shape[1]
            L, part = np.array(panel[:own]), slice(start, start + own)
            right = X[part] - panel[own:].T @ X[start + own :]
            X[part] = scipy.linalg.solve_triangular(
                L, right, lower=True, trans=1, check_finite=False
            )
        return X.reshape(B.shape)

    @property
    def logdet(self) -> float:
        return 2.0 * sum(float(np.log(np.diagonal(panel)).sum()) for panel in self.panels)


def _panel(matrix: Matrix, start: int, stop: int) -> np.ndarray:
    """Columns `start` to `stop` from the diagonal down, in float64."""
    layout = matrix.layout
    panel = np.empty((layout.n - start, stop - start))
    for j in range(start // layout.tile, -(-stop // layout.tile)):
        cols = layout.col(j)
        for i in range(start // layout.tile, layout.grid[0]):
            rows = layout.row(i)
            panel[
                rows.start - start : rows.stop - start, cols.start - start : cols.stop - start
            ] = matrix.tile(i, j)
    return panel
