"""Draws of the conditional kernels of a network with finitely many heads, a block at a time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from ..kernel.inputs import as_arrays, float_type, streams_of
from ..kernel.memory import memory_budget
from ..kernel.network import Network, cast, needs_of
from ..kernel.progress import Progress
from ..layers.base import leaves

SCORE_DRAWS = 128
"""Draws that a layer of infinitely many heads averages over, inside every draw of the others."""
_LARGEST_BLOCK = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs:
    """A network and its inputs, made ready for joint draws."""

    network: Network
    streams: Any

    @classmethod
    def of(cls, net: Any, x, x_mask, ntk: bool, dtype) -> Inputs:
        dtype = float_type(as_arrays(x, "x"), dtype)
        net = cast(net, dtype)
        streams = streams_of(net, x, x_mask, "x", dtype=dtype)
        return cls(Network(net, *needs_of(net), ntk), streams)

    @property
    def draw_bytes(self) -> int:
        """Memory of one draw, at most."""
        tokens = self.streams[0].n * max(s.tokens for s in self.streams)
        finite = [getattr(leaf, "heads", math.inf) for _, leaf in leaves(self.network.net)]
        heads = max((h for h in finite if math.isfinite(h)), default=1)
        return np.dtype(self.streams[0].dtype).itemsize * tokens * tokens * (16 + 2 * int(heads))

    def at_once(self, draws: int, memory) -> int:
        """Draws whose computation fits into a quarter of the memory budget."""
        fit = memory_budget(memory) // 4 // self.draw_bytes
        return int(min(draws, _LARGEST_BLOCK, max(1, fit)))


class Draws:
    """Blocks `(K, T)` of draws, computed when iterated over and kept if they fit into memory.

    Draw d depends on the key and d alone, whatever the size of a block.
    """

    def __init__(
        self, inputs: Inputs, key, draws: int, score_draws: int, memory, progress: Progress | None
    ):
        self.inputs, self.draws = inputs, draws
        self.score_draws, self.progress = score_draws, progress
        self.size = inputs.at_once(draws, memory)
        self.budget = memory_budget(memory)
        self.keys = jax.random.split(key, draws)
        self._kept: list[tuple] | None = None

    @property
    def fits(self) -> bool:
        """Whether all kernels together fit into half of the memory budget."""
        found = jax.eval_shape(self._block, self.keys[:1])
        each = sum(v.size * v.dtype.itemsize for v in found if v is not None)
        return self.draws * each <= self.budget // 2

    def __iter__(self) -> Iterator[tuple]:
        if self._kept is not None:
            yield from self._kept
            return
        kept = []
        with jax.enable_x64(True):
            keep = self.fits
        for start in range(0, self.draws, self.size):
            with jax.enable_x64(True):
                index = np.minimum(np.arange(start, start + self.size), self.draws - 1)
                found = self._block(self.keys[index])
                new = min(self.size, self.draws - start)
                block = tuple(None if v is None else np.asarray(v)[:new] for v in found)
            if not all(v is None or np.isfinite(v).all() for v in block):
                raise ValueError(
                    f"conditional kernels overflow {block[0].dtype}: scores or inputs are too "
                    "large; use a smaller qk_std, scale the inputs, or dtype=float64"
                )
            if keep:
                kept.append(block)
            if self.progress is not None:
                self.progress(start + new, self.draws)
            yield block
        if keep:
            self._kept = kept

    def _block(self, keys):
        return _draw(self.inputs.network, self.inputs.streams, keys, self.score_draws)


@eqx.filter_jit
def _draw(network: Network, streams, keys: Array, score_draws: int):
    with jax.default_matmul_precision("highest"):
        return jax.vmap(lambda k: network.joint(streams, k, score_draws))(keys)
