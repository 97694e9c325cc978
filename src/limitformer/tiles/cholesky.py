"""Cholesky factors by panels of columns, in memory or on disk.

LAPACK's own factorisation of the whole matrix is not used: SciPy's OpenBLAS 0.3.30 ends the process
at 20,000 rows with more than one thread (SIGSEGV in dpotrf), and needs both triangles.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import scipy.linalg

from .matrix import Matrix

WIDTH = 1024
"""Columns of a panel in memory."""


def _not_definite(error: Exception, noise: np.ndarray) -> ValueError:
    return ValueError(
        f"the kernel with noise {noise.min():.3g} is not positive definite ({error}); use more "
        "noise, for example noise=lf.relative(1e-6)"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Factor:
    """L with L L^T = K + D in the order of the store, its lower triangle alone.

    Attributes:
        panels: one array per panel, rows from the panel's first column on; memory-mapped files
            where there is a folder.
        starts: first column of every panel.
        folder: deleted with the object; None in memory.
    """

    panels: list[np.ndarray]
    starts: list[int]
    folder: tempfile.TemporaryDirectory | None = None

    @classmethod
    def in_memory(cls, matrix: Matrix, noise: np.ndarray, width: int = WIDTH) -> Factor:
        """Factorise in half of the matrix's memory and two panels."""
        return cls._of(matrix, noise, width, None)

    @classmethod
    def on_disk(cls, matrix: Matrix, noise: np.ndarray, memory: int, scratch=None) -> Factor:
        """Factorise with the finished panels in files, which are read once for each later one.

        Args:
            matrix: symmetric, `(n, n)`.
            noise: D, in the order of the store.
            memory: bytes for a panel and what updates it.
            scratch: folder for the factor, n^2 / 2 numbers; None: the system's.
        """
        folder = tempfile.TemporaryDirectory(dir=scratch, prefix="cholesky-")
        return cls._of(matrix, noise, memory // (2 * 8 * len(noise)), folder)

    @classmethod
    def _of(cls, matrix: Matrix, noise: np.ndarray, width: int, folder) -> Factor:
        n, tile = len(noise), matrix.layout.tile
        width = max(1, min(n, width) // tile) * tile
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
            self.panels.append(self._kept(panel, start))
            del panel, L

    def _kept(self, panel: np.ndarray, start: int) -> np.ndarray:
        if self.folder is None:
            return panel
        path = Path(self.folder.name) / f"{start}.npy"
        np.save(path, panel, allow_pickle=False)
        return np.load(path, mmap_mode="r", allow_pickle=False)

    def close(self) -> None:
        """Delete the factor."""
        self.panels.clear()
        if self.folder is not None:
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
