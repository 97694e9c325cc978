"""What a kernel will cost, before the work: time, memory and draws."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..layers.base import Work, leaves
from ..scores.replicates import REPLICATES, draws_each
from .blocks import BlockPlan, blocks_of
from .gram import DRAWS, KINDS, check_kinds, same_lengths
from .inputs import as_arrays, float_type, streams_of
from .memory import memory_budget
from .network import Network, cast, needs_of
from .work import work_of

_LONG = 60.0  # seconds of tokens^4 work that deserve a warning


@dataclasses.dataclass(frozen=True)
class Rates:
    """This machine's own rates, measured in a fraction of a second."""

    flops: float
    elements: float
    bytes: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """The cost of a kernel.

    Attributes:
        layers: work per pair, by layer.
        pairs: pairs of inputs that are computed (half of them if symmetric).
        draws: score draws in total, 0 for an exact kernel.
        seconds: time at this machine's measured rates of products, elementwise work and memory;
            what a good run comes close to, compilation not counted.
        memory: estimated peak in bytes, the result included.
        block: inputs on each side of a tile that is computed together.
        shape, dtype: of each resulting kernel.
    """

    layers: dict[str, Work]
    pairs: int
    draws: int
    seconds: float
    memory: int
    block: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def flops(self) -> float:
        """Floating-point operations in matrix products, all pairs."""
        return self.pairs * sum(work.flops for work in self.layers.values())

    def __str__(self) -> str:
        rows = [f"{'layer':40} {'flops':>9} {'elements':>9} {'moved':>9}   per pair"]
        for name, work in self.layers.items():
            rows.append(f"{name:40} {work.flops:9.2e} {work.elements:9.2e} {work.moved:9.2e}")
        rows.append(
            f"{self.pairs} pairs, {self.draws} draws, about {self.seconds:.3g} s, "
            f"{self.memory / 2**20:.0f} MiB, {self.dtype} {self.shape}"
        )
        return "\n".join(rows)


@functools.cache
def machine_rates(dtype_name: str) -> Rates:
    """Measure products, exponentials and memory traffic (best of three short runs)."""
    dtype = np.dtype(dtype_name)
    with jax.enable_x64(True):
        a = jnp.full((512, 512), 0.5, dtype)
        v = jnp.linspace(0.0, 1.0, 2**21, dtype=dtype)
        product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
        return Rates(
            2 * 512**3 / _best(product, a),
            v.size / _best(jax.jit(jnp.exp), v),
            2 * v.nbytes / _best(jax.jit(lambda v: 2 * v + 1), v),
        )


def _best(function, value) -> float:
    jax.block_until_ready(function(value))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(function(value))
        times.append(time.perf_counter() - start)
    return min(times)


def plan(
    net: Any,
    x,
    y=None,
    x_mask=None,
    y_mask=None,
    *,
    kinds=KINDS,
    dtype=None,
    draws: int = DRAWS,
    memory=None,
) -> Plan:
    """Time, memory and draws of `net.kernel(x, y)` with the same arguments, without doing it.

    Warns if attention costs tokens^4 work that takes more than a minute.
    """
    kinds = check_kinds(kinds)
    arrays = as_arrays(x, "x") + (() if y is None else as_arrays(y, "y"))
    dtype = float_type(arrays, dtype)
    random = any(leaf.random_scores for _, leaf in leaves(net))
    each = draws_each(draws) if random else 0
    with jax.enable_x64(True):
        net = cast(net, dtype)
        sx = streams_of(net, x, x_mask, "x", dtype=dtype)
        sy = sx if y is None else streams_of(net, y, y_mask, "y", dtype=dtype)
        sx, sy = same_lengths(net, sx, sy)
        network = Network(net, *needs_of(net), "ntk" in kinds)
        look_x, look_y = (network.look(s, max(each, 1)) for s in (sx, sy))
        budget = memory_budget(memory)
        blocks = blocks_of(network, sx, sy, y is None, each, budget, dtype, look_x, look_y)
    S1, S2 = (max(s.tokens for s in side) for side in (sx, sy))
    grids = (sx[0].grid, sy[0].grid) if len(sx) == 1 else None
    layers = work_of(network, S1, S2, draws if random else 0, grids)
    n, m = blocks.n, blocks.m
    pairs = n * (n + 1) // 2 if y is None else n * m
    rates = machine_rates(dtype.name)
    cost = {name: _seconds(work, rates, dtype) * pairs for name, work in layers.items()}
    for name, work in layers.items():
        quartic = work.elements >= (S1 * S2) ** 2 > S1 * S2
        if quartic and cost[name] > _LONG:
            warnings.warn(
                f"{name}: elementwise attention at scale='sqrt' is tokens^4 work, here about "
                f"{cost[name]:.0f} s; fewer tokens, scale='linear' or weights='identity' are cheap",
                stacklevel=3,
            )
    return Plan(
        layers,
        pairs,
        draws if random else 0,
        sum(cost.values()),
        _peak(blocks, len(kinds), REPLICATES if random else 1),
        blocks.tile,
        blocks.shape,
        dtype,
    )


def _seconds(work: Work, rates: Rates, dtype) -> float:
    return (
        work.flops / rates.flops
        + work.elements / rates.elements
        + work.moved * dtype.itemsize / rates.bytes
    )


def _peak(blocks: BlockPlan, kinds: int, replicates: int) -> int:
    result = math.prod(blocks.shape) * blocks.dtype.itemsize * kinds
    return blocks.peak + result * (1 if replicates == 1 else replicates + 2)
