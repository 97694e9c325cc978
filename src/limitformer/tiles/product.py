"""Products with a tiled matrix: every tile is read once, in memory of a few tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .matrix import Matrix, Tiled
from .store import open_store

_PARTS = 16  # parts of a product that workers share


def product(matrix: Matrix, V, run: Callable | None = None) -> np.ndarray:
    """K V, reading every tile once (of a symmetric K its lower triangle).

    Args:
        matrix: `(n, m)`.
        V: `(m,)` or `(m, k)`.
        run: a function of `schedule.runner`, to multiply on workers; None: here.

    Returns:
        float64, `(n,)` or `(n, k)`.
    """
    V = np.asarray(V, np.float64)
    n, m = matrix.shape
    if V.shape[:1] != (m,) or V.ndim > 2:
        raise ValueError(f"V has shape {V.shape}, expected ({m},) or ({m}, k)")
    x, y = matrix.orders
    flat = V.reshape(m, -1)
    flat = flat if y is None else flat[y]
    out = stored_product(matrix, flat, run)
    if x is not None:
        back = np.empty_like(out)
        back[x] = out
        out = back
    return out.reshape(n, *V.shape[1:])


def stored_product(matrix: Matrix, V: np.ndarray, run: Callable | None = None) -> np.ndarray:
    """K V in the order of the store, here or on workers."""
    return _of_tiles(matrix, V, matrix.layout.tiles()) if run is None else _shared(matrix, V, run)


def _of_tiles(matrix: Matrix, V: np.ndarray, tiles) -> np.ndarray:
    layout = matrix.layout
    out = np.zeros((layout.n, V.shape[1]))
    for i, j in tiles:
        value = matrix.tile(i, j).astype(np.float64, copy=False)
        rows, cols = layout.row(i), layout.col(j)
        out[rows] += value @ V[cols]
        if layout.symmetric and i != j:
            out[cols] += value.T @ V[rows]
    return out


def part_product(index: int, url: str, identity: str, name: str, tiles, V: np.ndarray):
    """K V of some tiles of a store, on a worker; with the index of the part."""
    store = open_store(url)
    if store.identity != identity:
        raise RuntimeError(f"{url} now holds another run; start again")
    return index, _of_tiles(Tiled(store, name), V, tiles)


def _shared(matrix: Matrix, V: np.ndarray, run: Callable) -> np.ndarray:
    """The same on workers: parts of the tiles, added in a fixed order."""
    if not isinstance(matrix, Tiled):
        raise ValueError("scheduler= needs a kernel in a store, which workers can read")
    store, tiles = matrix.store, matrix.layout.tiles()
    size = -(-len(tiles) // _PARTS)
    calls = [
        (index, store.location.url, store.identity, matrix.name, tiles[start : start + size], V)
        for index, start in enumerate(range(0, len(tiles), size))
    ]
    parts = dict(run(part_product, calls))
    return sum((parts[index] for index in sorted(parts)), np.zeros((matrix.shape[0], V.shape[1])))
