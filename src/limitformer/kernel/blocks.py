"""Blocks of pairs sized from a memory budget, and their assembly into a Gram matrix."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..layers.base import Composite, Work, leaves
from ..layers.combine import Repeat, Serial
from ..layers.pool import Flatten, Readout
from .state import Form

_LIVE = 10  # arrays of a block's size that are alive at once, at most
_TARGET = {"cpu": 64 * 2**20, "gpu": 4 * 2**30}  # a block much larger than this gains nothing
_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 1e3, "mb": 1e6, "gb": 1e9}


def memory_budget(memory) -> int:
    """A budget in bytes: a number, a string such as "2GiB", or None (a quarter of what is free)."""
    if memory is None:
        return max(_free_memory() // 4, 2**28)
    if isinstance(memory, str):
        digits = memory.strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = memory.strip().lower()[len(digits) :]
        try:
            return int(float(digits) * _UNITS[unit])
        except (ValueError, KeyError):
            raise ValueError(f'memory={memory!r} is not a size; write for example "2GiB"') from None
    if not memory > 0:
        raise ValueError(f"memory must be a positive number of bytes, got {memory!r}")
    return int(memory)


def _free_memory() -> int:
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 * 2**30


@dataclasses.dataclass(frozen=True)
class BlockPlan:
    """How a Gram matrix is cut.

    Attributes:
        n, m: inputs on the two sides; symmetric if the second side is the first.
        rows: inputs per block side, or pairs per block if `pairs`.
        pair_bytes: estimated peak memory of one pair.
        store: whether the records of all inputs are kept (else they are recomputed per block).
        readout: no token axes in the result.
        shape: of the result.
    """

    n: int
    m: int
    symmetric: bool
    rows: int
    pairs: bool
    pair_bytes: int
    store: bool
    readout: bool
    shape: tuple[int, ...]
    dtype: np.dtype


def work_of(network, S1: int, S2: int, draws: int) -> dict[str, Work]:
    """Work per pair of every layer, by its path (with the input's tokens until a readout)."""
    found: dict[str, Work] = {}
    size = [S1, S2]

    def visit(layer, path: str, turns: int):
        if isinstance(layer, Composite):
            turns = turns * layer.n if isinstance(layer, Repeat) else turns
            steps = layer.steps(network.pull) if isinstance(layer, Serial) else None
            for name, child in steps or layer.children().items():
                visit(child, f"{path}/{name}", turns)
        else:
            work = layer.work(*size, network.table[path], draws)
            if isinstance(layer, (Readout, Flatten)):
                size[:] = [1, 1]
            found[path.removeprefix("/net/")] = Work(
                turns * work.flops, turns * work.elements, turns * work.moved, work.peak
            )

    visit(network.net, "/net", 1)
    return found


def blocks_of(network, sx, sy, symmetric, draws, budget, dtype, look_x, look_y) -> BlockPlan:
    """Choose block sizes so that the peak stays within the budget."""
    pairs = look_x.pairs
    S1 = max(s.tokens for s in sx)
    S2 = max(s.tokens for s in sy)
    entries = S1 * S2 if network.need.cross != Form.DIAG or pairs else max(S1, S2)
    peak = max((work.peak for work in work_of(network, S1, S2, draws).values()), default=0)
    size = dtype.itemsize
    pair_bytes = int(size * (entries * _LIVE * (3 if pairs else 1) + peak))
    n, m = sx[0].n, sy[0].n
    target = max(
        min(budget // 2, max(_TARGET.get(jax.default_backend(), 2**30), 4 * pair_bytes)), 1
    )
    if pairs:
        rows = max(1, min(target // pair_bytes, n * m))
    else:
        rows = max(1, math.isqrt(target // pair_bytes))
    attention = sum(1 for _, leaf in leaves(network.net) if hasattr(leaf, "qk_std"))
    records = (n + m) * size * (attention * S1 * S1 * max(draws, 1) + 8 * S1)
    readout = look_x.facts.readout
    shape = (n, m) if readout else (n, m, look_x.facts.tokens, look_y.facts.tokens)
    return BlockPlan(
        n,
        m,
        symmetric,
        int(rows),
        pairs,
        pair_bytes,
        records <= budget // 2,
        readout,
        shape,
        np.dtype(dtype),
    )


@eqx.filter_jit
def _marginal(network, streams, index, key, draws):
    return network.marginal(streams, index, key, draws)


def _cross(network, sx, sy, rx, ry):
    with jax.default_matmul_precision("highest"):
        if jax.default_backend() == "cpu":
            return network.cross(sx, sy, rx, ry, stagewise=True)
        return _cross_whole(network, sx, sy, rx, ry)


@eqx.filter_jit
def _cross_whole(network, sx, sy, rx, ry):
    return network.cross(sx, sy, rx, ry)


@eqx.filter_jit
def _pairs(network, sx, sy, ix, iy, key, draws):
    with jax.default_matmul_precision("highest"):
        return network.pairs(sx, sy, ix, iy, key, draws)


class Side:
    """One side's inputs and their records, kept or recomputed block by block."""

    def __init__(self, network, streams, offset: int, plan: BlockPlan, key, draws: int, name: str):
        self.network, self.streams, self.offset = network, streams, offset
        self.plan, self.key, self.draws, self.name = plan, key, draws, name
        self.kept: dict[int, tuple] = {}

    def block(self, start: int, size: int):
        """Inputs and records from `start` on; the last block repeats its last input."""
        if start in self.kept:
            return self.kept[start]
        n = self.streams[0].n
        index = np.minimum(np.arange(start, start + size), n - 1)
        streams = tuple(s.take(index) for s in self.streams)
        ids = jnp.asarray(index + self.offset)
        with jax.default_matmul_precision("highest"):
            records, unit = _marginal(self.network, streams, ids, self.key, self.draws)
        dead = np.flatnonzero(np.asarray(unit) == 0)
        if dead.size:
            rows = sorted({int(index[d]) for d in dead})
            raise ValueError(
                f"{self.name} rows {rows[:8]} have no token left after a convolution or pool "
                'without padding; use padding="same" or longer inputs'
            )
        if self.plan.store:
            self.kept[start] = (streams, records)
        return streams, records


class Blocks:
    """Runs the blocks of a plan and puts them together."""

    def __init__(self, plan: BlockPlan, network, sx, sy, key, draws, progress):
        self.plan, self.network, self.key, self.draws = plan, network, key, draws
        self.sx, self.sy, self.progress = sx, sy, progress

    def run(self):
        """The Gram matrices of K and (if asked) T, as NumPy arrays."""
        return self._pairs() if self.plan.pairs else self._tiles()

    def _empty(self):
        make = lambda: np.empty(self.plan.shape, self.plan.dtype)  # noqa: E731
        return make(), make() if self.network.ntk else None

    def _values(self, tile) -> tuple[Any, ...]:
        values = tuple(None if v is None else np.asarray(v) for v in tile)
        for value in values:
            if value is not None and value.dtype != self.plan.dtype:
                raise RuntimeError(f"a block came out as {value.dtype}, not {self.plan.dtype}")
        if self.plan.readout:
            values = tuple(None if v is None else v[..., 0, 0] for v in values)
        return values

    def _tiles(self):
        plan = self.plan
        grams = self._empty()
        side_x = Side(self.network, self.sx, 0, plan, self.key, self.draws, "x")
        side_y = (
            side_x
            if plan.symmetric
            else Side(self.network, self.sy, plan.n, plan, self.key, self.draws, "y")
        )
        height, width = min(plan.rows, plan.n), min(plan.rows, plan.m)
        if plan.symmetric:
            height = width = -(-plan.n // max(1, -(-plan.n // height)))
        todo = [
            (i, j)
            for i in range(0, plan.n, height)
            for j in range(i if plan.symmetric else 0, plan.m, width)
        ]
        for done, (i, j) in enumerate(todo):
            sx, rx = side_x.block(i, height)
            sy, ry = side_y.block(j, width)
            tile = self._values(_cross(self.network, sx, sy, rx, ry))
            high, wide = min(height, plan.n - i), min(width, plan.m - j)
            for gram, value in zip(grams, tile, strict=True):
                if gram is None:
                    continue
                part = value[:high, :wide]
                if plan.symmetric and i == j:
                    part = _mirrored(part)
                gram[i : i + high, j : j + wide] = part
                if plan.symmetric and i != j:
                    gram[j : j + wide, i : i + high] = _transposed(part)
            if self.progress is not None:
                self.progress(done + 1, len(todo))
        return grams

    def _pairs(self):
        plan = self.plan
        grams = self._empty()
        if plan.symmetric:
            left, right = np.triu_indices(plan.n)
        else:
            left, right = (g.reshape(-1) for g in np.indices((plan.n, plan.m)))
        size = min(plan.rows, len(left))
        starts = range(0, len(left), size)
        for done, start in enumerate(starts):
            index = np.minimum(np.arange(start, start + size), len(left) - 1)
            i, j = left[index], right[index]
            sx = tuple(s.take(i) for s in self.sx)
            sy = tuple(s.take(j) for s in self.sy)
            iy = j if plan.symmetric else j + plan.n
            tile = _pairs(
                self.network, sx, sy, jnp.asarray(i), jnp.asarray(iy), self.key, self.draws
            )
            for gram, value in zip(grams, self._values(tile), strict=True):
                if gram is None:
                    continue
                gram[i, j] = value
                if plan.symmetric:
                    gram[j, i] = _transposed(value[:, None])[0]
                    own = i == j
                    if not plan.readout:
                        gram[i[own], j[own]] = _halved(value[own])
            if self.progress is not None:
                self.progress(done + 1, len(starts))
        return grams


def _transposed(block: np.ndarray) -> np.ndarray:
    """K(y, x) from K(x, y): inputs and tokens change places."""
    block = np.swapaxes(block, 0, 1)
    return np.swapaxes(block, 2, 3) if block.ndim == 4 else block


def _mirrored(block: np.ndarray) -> np.ndarray:
    """A diagonal block made exactly symmetric from its upper half."""
    lower = np.tri(len(block), k=-1, dtype=bool)
    result = np.where(
        lower.reshape(*lower.shape, *(1,) * (block.ndim - 2)), _transposed(block), block
    )
    if block.ndim == 4:
        own = np.arange(len(block))
        result[own, own] = _halved(result[own, own])
    return result


def _halved(own: np.ndarray) -> np.ndarray:
    """An input's own token kernel made exactly symmetric."""
    return (own + np.swapaxes(own, -1, -2)) / 2
