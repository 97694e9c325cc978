"""The task that a scheduler runs: read the inputs from the store, compute a tile, write it.

It is pure: nothing but the address and the tile's place goes in, exactly one chunk of each array
comes out, and running it twice is harmless.
"""

from __future__ import annotations

import threading
from typing import Any

from ..files import loads
from .compute import Tiles
from .manifest import advice, differences, here, key_from_json
from .store import TileStore, open_store

_known = threading.local()  # records are kept by one thread


def tiles_of(store: TileStore) -> Tiles:
    """What computes the tiles of a store, rebuilt from its manifest.

    Raises:
        RuntimeError: this process has other versions or another engine, whose numbers would not
            be the same.
    """
    about = store.manifest
    own = here()
    lines = differences({name: about.get(name) for name in own}, own)
    if lines:
        raise RuntimeError(
            f"this process cannot continue {store.location.url}: {'; '.join(lines)}"
            f"{advice(about, lines)}"
        )
    net: Any = loads(about["network"])
    x = store.inputs("x")
    y = None if store.layout.symmetric else store.inputs("y")
    key = key_from_json(about["key"])
    return Tiles(
        net,
        store.layout,
        x,
        y,
        tuple(about["kinds"]),
        store.dtype,
        key,
        about["draws"] or 1,
        about["tiles"]["memory"],
    )


def run_tile(url: str, identity: str, i: int, j: int) -> None:
    """Compute tile (i, j) of a store and write it.

    Args:
        url: where the store is.
        identity: of the run, so that a store that was exchanged is noticed.
        i, j: the tile.
    """
    if getattr(_known, "run", None) != (url, identity):
        store = open_store(url)
        if store.identity != identity:
            raise RuntimeError(f"{url} now holds another run; start again")
        _known.store, _known.tiles = store, tiles_of(store)
        _known.run = url, identity
    if not _known.store.damaged([(i, j)]):
        return  # a scheduler that lost the answer asks twice
    _known.store.write(i, j, _known.tiles(i, j))
