"""A kernel matrix that is read tile by tile, from a store or from memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .layout import Layout, tile_size
from .store import MissingTile, TileStore, transposed


@dataclasses.dataclass(frozen=True, eq=False)
class Tiled:
    """A kernel in a store, as a matrix in the caller's order of inputs.

    Attributes:
        store: where the tiles are.
        name: "nngp", "ntk", or one of their standard errors.
    """

    store: TileStore
    name: str

    @property
    def layout(self) -> Layout:
        return self.store.layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype:
        return self.store.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole matrix in memory."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @functools.cached_property
    def orders(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Stored row r is row `orders[0][r]`, and so for columns; None: as stored."""
        x = self.store.inputs("x").order
        return x, (x if self.layout.symmetric else self.store.inputs("y").order)

    def check_complete(self) -> None:
        """Raise `MissingTile` unless every tile is there."""
        check_complete(self.store)

    def tile(self, i: int, j: int) -> np.ndarray:
        """A stored tile; of a symmetric matrix also those above the diagonal."""
        if self.layout.symmetric and j > i:
            return transposed(self.store.read(self.name, j, i))
        return self.store.read(self.name, i, j)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` in full."""
        if not 0 <= start < stop <= self.shape[0]:
            raise IndexError(f"rows {start} to {stop} of a matrix of shape {self.shape}")
        places = np.arange(start, stop)
        if self.orders[0] is not None:
            places = np.argsort(self.orders[0])[places]
        part = np.empty((stop - start, *self.shape[1:]), self.dtype)
        for i in np.unique(places // self.layout.tile).tolist():
            inside = places // self.layout.tile == i
            local = places[inside] - i * self.layout.tile
            for j in range(self.layout.grid[1]):
                part[inside, self.layout.col(j)] = self.tile(i, j)[local]
        return part if self.orders[1] is None else part[:, np.argsort(self.orders[1])]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        whole = np.empty(self.shape, self.dtype)
        for i, j in self.layout.tiles():
            value = self.store.read(self.name, i, j)
            rows, cols = self.layout.row(i), self.layout.col(j)
            whole[rows, cols] = value
            if self.layout.symmetric:
                whole[cols, rows] = transposed(value)
        x, y = self.orders
        if x is not None or y is not None:
            back = [
                np.arange(n) if order is None else np.argsort(order)
                for n, order in zip(self.shape, self.orders, strict=False)
            ]
            whole = whole[np.ix_(*back)]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __matmul__(self, V) -> np.ndarray:
        """The matrix times `(m,)` or `(m, k)` numbers, every tile read once."""
        from .product import product

        return product(self, V)


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """A matrix in memory that is read as `Tiled` is."""

    values: np.ndarray

    @property
    def layout(self) -> Layout:
        n, m = self.values.shape
        return Layout(n, m, tile_size(n, m, self.values.itemsize), n == m)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    orders = (None, None)

    def check_complete(self) -> None:
        if not np.isfinite(self.values).all():
            raise ValueError("the kernel has entries that are not finite")

    def tile(self, i: int, j: int) -> np.ndarray:
        return self.values[self.layout.row(i), self.layout.col(j)]

    def rows(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)


Matrix = Tiled | Held


def as_matrix(K: Any, square: bool = False) -> Matrix:
    """A stored kernel as it is, an array wrapped; two axes, and every tile there.

    Raises:
        MissingTile: a tile has not been computed.
        ValueError: token axes, or not square.
    """
    matrix = K if isinstance(K, Tiled) else Held(np.asarray(K))
    if len(matrix.shape) != 2:
        raise ValueError(
            f"the kernel has shape {matrix.shape}; solves need one number per pair of inputs: end "
            "the network with a readout such as lf.MeanPool()"
        )
    if square and matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"the kernel has shape {matrix.shape}; solves need the square one of lf.gram(net, x)"
        )
    matrix.check_complete()
    return matrix


def check_complete(store: TileStore) -> None:
    """Raise `MissingTile` unless every tile of a store is there in full length."""
    missing = sorted(set(store.layout.tiles()) - set(store.present()))
    if missing:
        raise MissingTile(
            f"{len(missing)} of {len(store.layout.tiles())} tiles of {store.location.url} have not "
            f"been computed, the first is {missing[0]}; run: limitformer gram resume "
            f"{store.location.url}"
        )


def stored_tiles(matrix: Matrix) -> Iterator[tuple[int, int, np.ndarray]]:
    """Every tile that is stored, `(i, j, values)`; lower triangle of a symmetric matrix."""
    for i, j in matrix.layout.tiles():
        yield i, j, matrix.tile(i, j)
