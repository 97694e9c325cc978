"""Look after a store: how far it is, whether it is sound, and the rest of its work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernel.progress import Progress
from .gram import Gram, finish
from .manifest import advice, differences, here
from .schedule import run_tiles
from .store import TileStore, open_store
from .task import tiles_of

Tile = tuple[int, int]
CLOSE = {"float64": 1e-10, "float32": 1e-4}
"""Largest difference of a recomputed tile, relative to its largest entry: what another processor's
rounding may cause. On the same machine the difference is zero."""


@dataclasses.dataclass(frozen=True)
class Status:
    """How far a store is.

    Attributes:
        store: its address.
        identity: SHA-256 of its manifest.
        shape, dtype, kinds: of the matrices.
        done, total: tiles.
        partial: half-written files that killed processes left; they do no harm.
    """

    store: str
    identity: str
    shape: tuple[int, ...]
    dtype: str
    kinds: tuple[str, ...]
    done: int
    total: int
    partial: int

    @property
    def complete(self) -> bool:
        return self.done == self.total

    def __str__(self) -> str:
        part = f"{self.done} of {self.total} tiles ({100 * self.done / self.total:.0f} %)"
        left = f", {self.partial} half-written files" if self.partial else ""
        kinds = ", ".join(self.kinds)
        return f"{self.store}: {part}{left}\n{kinds} {self.dtype} {self.shape}\n{self.identity}"


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
        missing: tiles that have not been computed.
        damaged: tiles whose checksums are wrong.
        sampled: tiles that were computed again.
        wrong: those of them that differ from the store.
        difference: largest difference, relative to the tile's largest entry.
        inputs: whether the stored inputs are those of the manifest.
        repaired: bad tiles that were computed again and replaced.
    """

    missing: tuple[Tile, ...]
    damaged: tuple[Tile, ...]
    sampled: tuple[Tile, ...]
    wrong: tuple[Tile, ...]
    difference: float
    inputs: bool
    repaired: tuple[Tile, ...] = ()

    @property
    def sound(self) -> bool:
        """Nothing is damaged or wrong (tiles may be missing), or it was repaired."""
        bad = {*self.damaged, *self.wrong} - {*self.repaired}
        return self.inputs and not bad

    def __str__(self) -> str:
        lines = [
            f"{len(self.missing)} tiles missing, {len(self.damaged)} damaged {_some(self.damaged)}",
            f"{len(self.sampled)} computed again, {len(self.wrong)} differ {_some(self.wrong)}"
            f"(largest relative difference {self.difference:.2g})",
        ]
        if not self.inputs:
            lines.append("the stored inputs are not those of the manifest: start a new store")
        if self.repaired:
            lines.append(f"{len(self.repaired)} repaired")
        return "\n".join(lines)


def status(store) -> Status:
    """How far a store is; reads names and sizes, no numbers.

    Args:
        store: its path or address.
    """
    found = open_store(store)
    return Status(
        found.location.url,
        found.identity,
        found.layout.shape,
        found.dtype.name,
        tuple(found.manifest["kinds"]),
        len(found.present()),
        len(found.layout.tiles()),
        len(found.partial()),
    )


def verify(
    store,
    *,
    sample: int = 8,
    seed: int = 0,
    repair: bool = False,
    scheduler: Any = None,
) -> Verification:
    """Check every checksum and the inputs' digests, and compute a random sample of tiles again.

    Args:
        store: its path or address.
        sample: tiles to compute again.
        seed: which.
        repair: compute damaged and wrong tiles again and replace them.
        scheduler: as for `lf.gram`, for the repair.
    """
    found = open_store(store)
    present = found.present()
    damaged = found.damaged(present)
    inputs = all(
        found.inputs(side).digest() == digest for side, digest in found.manifest["data"].items()
    )
    whole = sorted(set(present) - set(damaged))
    rng = np.random.default_rng(seed)
    picks = rng.permutation(len(whole))[:sample] if inputs else []
    chosen = [whole[k] for k in sorted(int(p) for p in picks)]
    gaps = _gaps(found, chosen)
    wrong = [tile for tile, gap in gaps.items() if not gap <= CLOSE[found.dtype.name]]
    bad = [*damaged, *wrong]
    if repair and inputs and bad:
        found.remove(bad)
        run_tiles(found, bad, scheduler, None)
    return Verification(
        tuple(sorted(set(found.layout.tiles()) - set(present))),
        tuple(damaged),
        tuple(chosen),
        tuple(wrong),
        max(gaps.values(), default=0.0),
        inputs,
        tuple(bad) if repair and inputs else (),
    )


def _gaps(store: TileStore, chosen: list[Tile]) -> dict[Tile, float]:
    """How far tiles are from the store when they are computed again."""
    if not chosen:
        return {}
    tiles = tiles_of(store)
    gaps = {}
    for tile in chosen:
        again = tiles(*tile)
        worst = 0.0
        for name in store.names:
            value = store.read(name, *tile)
            size = float(np.abs(again[name]).max()) or 1.0
            worst = max(worst, float(np.abs(value - again[name]).max()) / size)
        gaps[tile] = worst
    return gaps


def resume(store, *, scheduler: Any = None, progress: bool | Callable = False) -> Gram:
    """Compute the tiles that are missing or damaged, from the store alone.

    Args:
        store: its path or address.
        scheduler, progress: as for `lf.gram`.

    Raises:
        ValueError: the stored inputs, the versions or the engine are not those of the manifest.
    """
    found = open_store(store)
    own = here()
    lines = differences({name: found.manifest.get(name) for name in own}, own)
    data = {side: found.inputs(side).digest() for side in found.manifest["data"]}
    lines += differences({"data": found.manifest["data"]}, {"data": data})
    if lines:
        raise ValueError(
            f"{found.location.url} cannot be continued here:\n  "
            + "\n  ".join(lines)
            + advice(found.manifest, lines)
        )
    return finish(found, scheduler, Progress.of(progress))


def _some(tiles) -> str:
    if not tiles:
        return ""
    return ", ".join(map(str, tiles[:4])) + (", ... " if len(tiles) > 4 else " ")
