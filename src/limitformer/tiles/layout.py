"""How a Gram matrix is cut into the tiles that are computed and stored one by one."""

from __future__ import annotations

import dataclasses
import math

LARGEST = 8 * 2**20
"""Bytes of a tile, at most (between 4 and 32 MiB, reads and writes run at the disk's speed)."""
_ROWS = 8  # rows of tiles at least, so that several workers finish together
_SMALLEST = 64  # inputs on a tile's side that no such rule makes smaller


@dataclasses.dataclass(frozen=True)
class Layout:
    """The tiles of an `(n, m)` matrix; of a symmetric one the lower triangle.

    Attributes:
        n, m: inputs on the two sides.
        tile: inputs on each side of a tile; those at the end may be smaller.
        symmetric: the second side is the first.
        tokens: token axes of an entry, `()` after a readout.

    Example:
        >>> layout = Layout(5, 5, 2, True)
        >>> layout.tiles()
        [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
        >>> layout.row(2)
        slice(4, 5, None)
    """

    n: int
    m: int
    tile: int
    symmetric: bool
    tokens: tuple[int, ...] = ()

    def __post_init__(self):
        if self.tile < 1:
            raise ValueError(f"tile={self.tile}: a tile has at least one input on each side")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, self.m, *self.tokens)

    @property
    def chunk(self) -> tuple[int, ...]:
        """The shape of a chunk in the store."""
        return (self.tile, self.tile, *self.tokens)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return -(-self.n // self.tile), -(-self.m // self.tile)

    def tiles(self) -> list[tuple[int, int]]:
        """Every tile `(i, j)` that is computed, row by row."""
        rows, cols = self.grid
        return [(i, j) for i in range(rows) for j in range(i + 1 if self.symmetric else cols)]

    def row(self, i: int) -> slice:
        """The inputs of the first side in row i of tiles."""
        return slice(i * self.tile, min((i + 1) * self.tile, self.n))

    def col(self, j: int) -> slice:
        """The inputs of the second side in column j of tiles."""
        return slice(j * self.tile, min((j + 1) * self.tile, self.m))

    def own(self, i: int, j: int) -> bool:
        """Whether a tile lies on the diagonal of a symmetric matrix."""
        return self.symmetric and i == j


def tile_size(n: int, m: int, entry: int) -> int:
    """Inputs on the side of a tile: at most 8 MiB, in at least 8 equal rows if there are enough.

    Args:
        n, m: inputs on the two sides.
        entry: bytes of the entries of one pair of inputs.

    Example:
        >>> tile_size(50_000, 50_000, 8), tile_size(4096, 4096, 8), tile_size(30, 40, 8)
        (1021, 512, 40)
    """
    largest = max(1, math.isqrt(LARGEST // entry))
    longest = max(n, m)
    wanted = min(largest, max(_SMALLEST, -(-longest // _ROWS)), longest)
    return -(-longest // -(-longest // wanted))
