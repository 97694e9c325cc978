"""The kernels of one tile, by the same three passes as `net.kernel`, on all devices of the process.

What depends on one input only is computed once for a block of rows and kept for the tiles that
share it.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..kernel.blocks import BlockPlan, Blocks, blocks_of
from ..kernel.gram import restored, result_of, same_lengths
from ..kernel.inputs import streams_of
from ..kernel.network import Network, cast, needs_of
from ..layers.base import Layer, leaves
from ..scores.replicates import draws_each, mean_and_error, replicate_keys
from .inputs import Inputs
from .layout import Layout


def _threads() -> int:
    """Threads that run blocks of a tile: `NPROC`, which XLA obeys too, or as many as it likes."""
    given = os.environ.get("NPROC", "")
    return int(given) if given.isdigit() and int(given) else sys.maxsize


def _fitted(plan: BlockPlan, devices: int) -> BlockPlan:
    """A plan for these threads or, on several devices, with at least two blocks for each."""
    if devices < 2:
        return dataclasses.replace(plan, workers=min(plan.workers, _threads()))
    side = math.isqrt(2 * devices - 1) + 1
    tile = max(2, min(plan.tile, -(-max(plan.n, plan.m) // side)))
    return dataclasses.replace(plan, tile=tile, block=tile * -(-plan.block // tile), workers=1)


class Kept:
    """The most recently used values, up to a number of bytes."""

    def __init__(self, limit: int):
        self.limit, self.size = limit, 0
        self.values: OrderedDict[Any, tuple[int, Any]] = OrderedDict()

    def get(self, key, make: Callable[[], Any]) -> Any:
        if key in self.values:
            self.values.move_to_end(key)
            return self.values[key][1]
        value = make()
        size = sum(a.nbytes for a in jax.tree.leaves(value) if hasattr(a, "nbytes"))
        self.values[key] = size, value
        self.size += size
        while self.size > self.limit and len(self.values) > 1:
            _, (old, _) = self.values.popitem(last=False)
            self.size -= old
        return value


class _Tile(Blocks):
    """Blocks of one tile whose records may be known from another."""

    kept: Kept
    places: dict[str, tuple]

    def _side(self, streams, start: int, offset: int, name: str):
        place, first = self.places[name]
        known = (*place, start, self.plan.block, tuple(s.tokens for s in streams))

        def make():
            side = Blocks._side(self, streams, start, first, name)
            if len(self.devices) < 2:
                return side
            copies = NamedSharding(Mesh(np.array(self.devices), ("tiles",)), PartitionSpec())
            return jax.tree.map(lambda a: jax.device_put(a, copies), side)

        return self.kept.get(known, make)


class Tiles:
    """Computes the tiles of a Gram matrix.

    Args:
        net: the network.
        layout: the tiles.
        x, y: the two sides; y is None for a symmetric matrix.
        kinds, dtype, key, draws: as for `net.kernel`.
        memory: budget in bytes.
    """

    def __init__(self, net: Layer, layout: Layout, x: Inputs, y, kinds, dtype, key, draws, memory):
        self.layout, self.kinds, self.memory = layout, kinds, memory
        self.sides = {"x": x, "y": x if y is None else y}
        self.dtype = np.dtype(dtype)
        found = tuple(jax.local_devices())
        self.devices = found if len(found) > 1 else ()
        self.random = any(leaf.random_scores for _, leaf in leaves(net))
        self.draws = draws_each(draws) if self.random else 0
        with jax.enable_x64(True):
            self.net: Any = cast(net, self.dtype)
            need, table = needs_of(self.net)
            self.network = Network(self.net, need, table, "ntk" in kinds)
            start = jax.random.key(0) if key is None else key
            self.keys = list(replicate_keys(key=start)) if self.random else [None]
        self.kept = Kept(memory // 4)

    def __call__(self, i: int, j: int) -> dict[str, np.ndarray]:
        """The kernels of tile (i, j) by name, with standard errors if they are estimates."""
        own = self.layout.own(i, j)
        with jax.enable_x64(True):
            sx = self._streams("x", self.layout.row(i))
            side = "x" if self.layout.symmetric else "y"
            sy = None if own else self._streams(side, self.layout.col(j))
            sx, sy = same_lengths(self.net, sx, sy)
            runs = [self._once(sx, sy, i, j, r, key) for r, key in enumerate(self.keys)]
            if not self.random:
                return self._named(runs[0], "")
            values, errors = [], []
            for stack in zip(*runs, strict=True):
                known = stack[0] is not None
                mean, error = mean_and_error(jnp.asarray(np.stack(stack))) if known else (None,) * 2
                values.append(mean)
                errors.append(error)
            return self._named(values, "") | self._named(errors, "_sem")

    def _named(self, values, suffix: str) -> dict[str, np.ndarray]:
        kernel = result_of(self.kinds, values)
        return {kind + suffix: np.asarray(getattr(kernel, kind)) for kind in self.kinds}

    def _streams(self, side: str, part: slice):
        def read():
            x, mask = self.sides[side].rows(part)
            return streams_of(self.net, x, mask, side, dtype=self.dtype)

        return self.kept.get((side, part.start), read)

    def _once(self, sx, sy, i: int, j: int, replicate: int, key):
        network, draws = self.network, self.draws
        other = sx if sy is None else sy
        look_x, look_y = (network.look(s, max(draws, 1)) for s in (sx, other))
        plan = blocks_of(
            network, sx, other, sy is None, draws, self.memory, self.dtype, look_x, look_y
        )
        tile = _Tile(_fitted(plan, len(self.devices)), network, sx, other, key, draws, None)
        tile.devices = self.devices
        rows, cols = self.layout.row(i).start, self.layout.col(j).start
        side = "x" if self.layout.symmetric else "y"
        after = 0 if self.layout.symmetric else self.layout.n
        tile.kept = self.kept
        tile.places = {
            "x": (("records", "x", rows, replicate), rows),
            "y": (("records", side, cols, replicate), cols + after),
        }
        order = sx[0].order, other[0].order
        return tuple(None if v is None else restored(v, *order) for v in tile.run())
