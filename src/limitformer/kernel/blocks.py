"""Blocks of pairs sized from a memory budget, and their assembly into a Gram matrix."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from ..layers.base import leaves
from .own_mask import marked, own_masks
from .state import Form
from .whole import refused, takes
from .work import work_of

_LIVE = 10  # arrays of a block's size that are alive at once, at most
_TARGET = {"cpu": 10 * 2**20, "gpu": 16 * 2**30}  # a tile's memory: the cache, or enough work
_SHARED = 64 * 2**20  # a tile's memory up to which several run side by side
_AT_ONCE = 64  # tiles per compiled call
_CALLS = 8  # at least, where tiles allow: a device computes one while the host puts another away
_COMPILED: set = set()  # calls that have run before, which threads may make side by side


@dataclasses.dataclass(frozen=True)
class BlockPlan:
    """How a Gram matrix is cut.

    Attributes:
        n, m: inputs on the two sides; symmetric if the second side is the first.
        tile: inputs on each side of a tile, whose kernels are computed together.
        block: inputs whose records are held at once, a multiple of `tile`.
        at_once: tiles (or pairs) per compiled call.
        workers: threads that run such calls side by side.
        ahead: calls that wait on the device while the results of one are fetched.
        pairs: the work is a list of pairs with marginals of their own, not tiles.
        pair_bytes: estimated peak memory of one pair.
        readout: no token axes in the result.
        shape, dtype: of the result.
    """

    n: int
    m: int
    symmetric: bool
    tile: int
    block: int
    at_once: int
    workers: int
    ahead: int
    pairs: bool
    pair_bytes: int
    readout: bool
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def peak(self) -> int:
        """Estimated peak memory in bytes beside the result."""
        together = self.at_once if self.pairs else self.tile**2 * (self.workers + self.ahead)
        return self.pair_bytes * together


def blocks_of(network, sx, sy, symmetric, draws, budget, dtype, look_x, look_y) -> BlockPlan:
    """Choose sizes so that the peak stays within the budget, and a tile within the cache."""
    pairs = look_x.pairs
    S1, S2 = (max(s.tokens for s in side) for side in (sx, sy))
    entries = S1 * S2 if network.need.cross != Form.DIAG or pairs else max(S1, S2)
    peak = max((work.peak for work in work_of(network, S1, S2, draws).values()), default=0)
    size = dtype.itemsize
    pair_bytes = int(size * (entries * _LIVE * (3 if pairs else 1) + peak))
    n, m = sx[0].n, sy[0].n
    target = min(budget // 2, _TARGET.get(jax.default_backend(), 2**30))
    together = max(1, target // pair_bytes)
    # at least two: a loop over one input is merged with its surroundings (see layers.window)
    tile = _evenly(max(n, m), max(2, math.isqrt(together)))
    attention = sum(1 for _, leaf in leaves(network.net) if hasattr(leaf, "qk_std"))
    record = size * (attention * S1 * S1 * max(draws, 1) + 8 * S1)
    block = tile * max(1, min(-(-max(n, m) // tile), budget // 4 // (record * tile)))
    readout = look_x.facts.readout
    tokens = () if readout else (look_x.facts.tokens, look_y.facts.tokens)
    result = size * math.prod(tokens)
    if pairs:
        at_once = min(together, n * m)
    else:
        at_once = max(1, min(_AT_ONCE, budget // 8 // (result * tile * tile)))
    shape = (n, m, *tokens)
    # side by side where a tile fits the cache; larger ones wait for memory and would crowd it
    peak = pair_bytes * tile * tile
    workers = min(threads(), max(1, budget // 2 // peak)) if peak <= _SHARED else 1
    ahead = int(jax.default_backend() != "cpu" and readout)
    return BlockPlan(
        n,
        m,
        symmetric,
        tile,
        block,
        at_once,
        workers,
        ahead,
        pairs,
        pair_bytes,
        readout,
        shape,
        np.dtype(dtype),
    )


def threads() -> int:
    """Threads that run tiles: one per core, because XLA on CPU runs a loop on one (or few)."""
    if jax.default_backend() != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _evenly(n: int, largest: int) -> int:
    """The size of the fewest equal parts of n that are not larger than this."""
    return -(-n // -(-n // max(1, min(largest, n))))


def _call_size(tiles: int, calls: int, workers: int, most: int) -> int:
    """Tiles of a call, for at least so many calls of one size, that are done the soonest.

    What the last call has not enough of is computed again and thrown away.
    """
    largest = min(most, -(-tiles // calls))
    rounds = lambda size: -(-tiles // (size * workers))  # noqa: E731
    return min(range(largest, (largest - 1) // 2, -1), key=lambda size: size * rounds(size))


@eqx.filter_jit
def _marginal(network, streams, index, key, draws):
    records, unit = network.marginal(streams, index, key, draws)
    return records, unit, own_masks(streams, records) if takes(*streams) else []


def _spread(function: Callable, devices: tuple) -> Callable:
    """`function(all, parts)` with the parts shared among devices; nothing is exchanged."""
    if len(devices) < 2:
        return function
    whole, shared = PartitionSpec(), PartitionSpec("tiles")
    mesh = Mesh(np.array(devices), ("tiles",))
    return jax.shard_map(
        function, mesh=mesh, in_specs=(whole, shared), out_specs=shared, check_vma=False
    )


@eqx.filter_jit
def _tiles(network, x, y, tile: int, todo, devices: tuple = ()):
    """K and T of a list of tiles `(row, column)` of two blocks of inputs with their records."""
    cut = lambda a: a.reshape(len(a) // tile, tile, *a.shape[1:])  # noqa: E731
    x, y = jax.tree.map(cut, x), jax.tree.map(cut, y)
    arrays, rest = eqx.partition((network, x, y), eqx.is_array)

    def run(arrays, todo):
        network, x, y = eqx.combine(arrays, rest)

        def one(place):
            (sx, rx), (sy, ry) = (
                jax.tree.map(lambda a, i=i: jax.lax.dynamic_index_in_dim(a, i, 0, False), side)
                for i, side in zip(place, (x, y), strict=True)
            )
            return network.cross(sx, sy, rx, ry)

        return jax.lax.map(one, todo)

    return _spread(run, devices)(arrays, todo)


@eqx.filter_jit
def _pairs(network, sx, sy, ix, iy, key, draws, devices: tuple = ()):
    """K and T of a list of pairs."""
    arrays, rest = eqx.partition((network, key), eqx.is_array)

    def run(arrays, parts):
        network, key = eqx.combine(arrays, rest)
        return network.pairs(*parts, key, draws)

    return _spread(run, devices)(arrays, (sx, sy, ix, iy))


@eqx.filter_jit
def _own(network, streams, index, key, draws):
    return network.own(streams, index, key, draws)


class Blocks:
    """Runs the tiles or pairs of a plan and puts them together.

    Attributes:
        devices: those that share the tiles (or pairs) of a call; none: where JAX puts them.
    """

    devices: tuple = ()

    def __init__(
        self, plan: BlockPlan, network, sx, sy, key, draws, progress, products: str = "highest"
    ):
        self.plan, self.network, self.key, self.draws = plan, network, key, draws
        self.sx, self.sy, self.progress, self.products = sx, sy, progress, products

    def run(self):
        """The Gram matrices of K and (if asked) T, as NumPy arrays."""
        plan = self.plan
        grams = [np.empty(plan.shape, plan.dtype) for _ in range(1 + self.network.ntk)]
        steps = self._pair_steps(grams) if plan.pairs else self._tile_steps(grams)
        with jax.default_matmul_precision(self.products):
            for done, total in steps:
                if self.progress is not None:
                    self.progress(done, total)
        return (*grams, None)[:2]

    def _side(self, streams, start: int, offset: int, name: str):
        """A block of inputs from `start` on, with their records; the last input is repeated."""
        n = streams[0].n
        index = np.minimum(np.arange(start, start + self.plan.block), n - 1)
        part = tuple(s.take(index) for s in streams)
        ids = jnp.asarray(index + offset)
        records, unit, own = _marginal(self.network, part, ids, self.key, self.draws)
        dead = np.flatnonzero(np.asarray(unit) == 0)
        if dead.size:
            rows = sorted({int(index[d]) for d in dead})
            raise ValueError(
                f"{name} rows {rows[:8]} have no token left after a convolution or pool "
                'without padding; use padding="same" or longer inputs'
            )
        return part, marked(records, [bool(o) for o in jax.device_get(own)])

    def _values(self, result) -> tuple[np.ndarray, ...]:
        values = tuple(np.asarray(v) for v in result if v is not None)
        for value in values:
            if value.dtype != self.plan.dtype:
                raise RuntimeError(f"a block came out as {value.dtype}, not {self.plan.dtype}")
        return tuple(v[..., 0, 0] for v in values) if self.plan.readout else values

    def _tile_steps(self, grams):
        plan, t = self.plan, self.plan.tile
        blocks = [
            (i, j)
            for i in range(0, plan.n, plan.block)
            for j in range(i if plan.symmetric else 0, plan.m, plan.block)
        ]
        known: tuple[Any, Any] = (None, None)
        for count, (i, j) in enumerate(blocks):
            if known[0] != i:
                known = i, self._side(self.sx, i, 0, "x")
            own = plan.symmetric and i == j
            x = known[1]
            y = x if own else self._side(self.sy, j, 0 if plan.symmetric else plan.n, "y")
            rows = range(min(plan.block, plan.n - i + t - 1) // t)
            cols = range(min(plan.block, plan.m - j + t - 1) // t)
            places = [(a, b) for a in rows for b in cols if not own or a <= b]
            calls = max(plan.workers, _CALLS * plan.ahead)
            size = self._shared(_call_size(len(places), calls, plan.workers, plan.at_once))
            parts = [places[start : start + size] for start in range(0, len(places), size)]
            done = 0
            for part, tiles in zip(parts, self._computed(x, y, parts, size), strict=True):
                for k, (a, b) in enumerate(part):
                    self._put(grams, [v[k] for v in tiles], i + a * t, j + b * t)
                done += len(part)
                yield count * len(places) + done, len(blocks) * len(places)

    def _computed(self, x, y, parts, size: int):
        """The tiles of every part in order, by several threads once the call is compiled."""

        def compute(part):
            todo = np.array(part + part[-1:] * (size - len(part)))
            # JAX's settings belong to a thread
            with jax.enable_x64(True), jax.default_matmul_precision(self.products):
                call = self.network, x, y, self.plan.tile, jnp.asarray(todo), self.devices
                try:
                    return _tiles(*call)
                except (jax.errors.JaxRuntimeError, NotImplementedError) as problem:
                    if not refused(self.network, problem):
                        raise
                    return _tiles(*call)

        def fetched(part):
            return self._values(compute(part))

        leaves, structure = jax.tree.flatten((self.network, x, y))
        shapes = tuple((jnp.shape(a), jnp.result_type(a)) for a in leaves)
        call = hash((structure, shapes, self.plan.tile, size, self.devices))
        if call not in _COMPILED:
            yield fetched(parts[0])
            parts = parts[1:]
            _COMPILED.add(call)
        if self.plan.workers == 1 or len(parts) < 2:
            begun: list = []
            for part in parts:
                begun.append(compute(part))
                if len(begun) > self.plan.ahead:
                    yield self._values(begun.pop(0))
            yield from map(self._values, begun)
            return
        pool = ThreadPoolExecutor(self.plan.workers)
        try:
            # no more ahead than there are threads: results wait in memory
            waiting: list = []
            for part in parts:
                waiting.append(pool.submit(fetched, part))
                if len(waiting) > self.plan.workers:
                    yield waiting.pop(0).result()
            for one in waiting:
                yield one.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _shared(self, size: int) -> int:
        """A number of tiles (or pairs) that the devices share evenly."""
        return size + -size % max(1, len(self.devices))

    def _put(self, grams, tile, i: int, j: int) -> None:
        plan = self.plan
        high, wide = min(plan.tile, plan.n - i), min(plan.tile, plan.m - j)
        for gram, value in zip(grams, tile, strict=True):
            part = value[:high, :wide]
            if plan.symmetric and i == j:
                part = _mirrored(part)
            gram[i : i + high, j : j + wide] = part
            if plan.symmetric and i != j:
                gram[j : j + wide, i : i + high] = _transposed(part)

    def _pair_steps(self, grams):
        plan = self.plan
        if plan.symmetric:
            left, right = np.triu_indices(plan.n)
        else:
            left, right = (g.reshape(-1) for g in np.indices((plan.n, plan.m)))
        size = self._shared(min(plan.at_once, len(left)))
        for start in range(0, len(left), size):
            index = np.minimum(np.arange(start, start + size), len(left) - 1)
            i, j = left[index], right[index]
            sx = tuple(s.take(i) for s in self.sx)
            sy = tuple(s.take(j) for s in self.sy)
            iy = jnp.asarray(j if plan.symmetric else j + plan.n)
            pairs = sx, sy, jnp.asarray(i), iy
            result = _pairs(self.network, *pairs, self.key, self.draws, self.devices)
            for gram, value in zip(grams, self._values(result), strict=True):
                if not plan.readout:
                    value = value[:, : plan.shape[2], : plan.shape[3]]
                gram[i, j] = value
                if plan.symmetric:
                    gram[j, i] = np.swapaxes(value, 1, 2) if value.ndim == 3 else value
                    own = i == j
                    if not plan.readout:
                        gram[i[own], j[own]] = _halved(value[own])
            yield min(start + size, len(left)), len(left)


def own_pairs(network, streams, plan: BlockPlan, key, draws):
    """K and (if asked) T of every input with itself, as NumPy arrays."""
    n = streams[0].n
    size = max(1, min(n, plan.tile**2 if not plan.pairs else plan.at_once))
    parts: list[tuple] = []
    with jax.default_matmul_precision("highest"):
        for start in range(0, n, size):
            index = np.minimum(np.arange(start, start + size), n - 1)
            part = tuple(s.take(index) for s in streams)
            ids = jnp.asarray(index)
            if plan.pairs:
                result = _pairs(network, part, part, ids, ids, key, draws)
            else:
                result = _own(network, part, ids, key, draws)
            parts.append(tuple(None if v is None else np.asarray(v)[: n - start] for v in result))
    values = [None if v[0] is None else np.concatenate(v) for v in zip(*parts, strict=True)]
    cut = (slice(None), 0, 0) if plan.readout else (slice(None), slice(plan.shape[2]))
    return tuple(None if v is None else v[cut] for v in values)


def _transposed(block: np.ndarray) -> np.ndarray:
    """K(y, x) from K(x, y): inputs and tokens change places."""
    block = np.swapaxes(block, 0, 1)
    return np.swapaxes(block, 2, 3) if block.ndim == 4 else block


def _mirrored(block: np.ndarray) -> np.ndarray:
    """A diagonal tile made exactly symmetric from its upper half."""
    lower = np.tri(len(block), k=-1, dtype=bool)
    lower = lower.reshape(*lower.shape, *(1,) * (block.ndim - 2))
    result = np.where(lower, _transposed(block), block)
    if block.ndim == 4:
        own = np.arange(len(block))
        result[own, own] = _halved(result[own, own])
    return result


def _halved(own: np.ndarray) -> np.ndarray:
    """An input's own token kernel made exactly symmetric."""
    return (own + np.swapaxes(own, -1, -2)) / 2
