"""Kernels of several networks that share their first layers, in one pass over the pairs.

The networks are one network that branches: `lf.Serial(trunk, lf.Parallel(head, head, ...))`, and a
head may be a longer trunk with heads of its own. Everything before a fork is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..kernel.blocks import BlockPlan, Blocks, threads
from ..kernel.gram import check_kinds, same_lengths
from ..kernel.inputs import as_arrays, float_type, streams_of
from ..kernel.memory import memory_budget
from ..kernel.network import Network, _start_cross, cast, needs_of
from ..kernel.passes import CrossRun, MarginalRun
from ..kernel.progress import Progress
from ..kernel.state import Cross, Form, Marginal
from ..layers.base import AnyLayer
from .readouts import Side

_LIVE = 12  # token kernels of a pair that are alive at once, at most
_TARGET = {"cpu": 10 * 2**20, "gpu": 8 * 2**30}  # a tile's memory: the cache, or enough work
_CHUNK = {"cpu": 1, "gpu": 4}  # tiles of inputs whose records are computed at once
_AT_ONCE = {"cpu": 64, "gpu": 32}  # tiles per compiled call: between two reports of progress


class SharedTrunk(eqx.Module):
    """A branching network as the tiles of `kernel.blocks` want it: records, then K and T of tiles.

    The result has one more axis, the readouts in the order of the branches.

    Attributes:
        network: the network with what its need pass found.
        chunk: inputs whose own token kernels are in memory at once.
    """

    network: Network
    chunk: int = eqx.field(static=True)

    @property
    def ntk(self) -> bool:
        """Whether T is computed."""
        return self.network.ntk

    def marginal(self, streams, index, key, draws: int):
        """Records of some inputs, a chunk of them at a time, and whether each is still valid."""
        n = streams[0].n
        cut = lambda a: a.reshape(n // self.chunk, self.chunk, *a.shape[1:])  # noqa: E731
        join = lambda a: a.reshape(n, *a.shape[2:])  # noqa: E731

        def some(part):
            streams, index = part
            run = MarginalRun(self.network.options(key, draws))
            states = run(self.network.net, self.network.start(streams, index), "net")
            first = jax.tree.leaves(states, is_leaf=lambda s: isinstance(s, Marginal))[0]
            return run.records, first.unit

        return jax.tree.map(join, jax.lax.map(some, jax.tree.map(cut, (streams, index))))

    def cross(self, sx, sy, rx, ry):
        """K and T of all pairs of two sets of inputs, `(n1, n2, readouts, 1, 1)`."""
        rx = jax.tree.map(lambda a: a[:, None], rx)
        ry = jax.tree.map(lambda a: a[None, :], ry)
        block = _start_cross(sx[0], sy[0], self.network.need.cross)
        run = CrossRun(self.network.options(None, 0), rx, ry)
        ends = run(self.network.net, block, "net")
        ends = jax.tree.leaves(ends, is_leaf=lambda b: isinstance(b, Cross))
        for end in ends:
            if end.diag or end.K.shape[-2:] != (1, 1):
                raise ValueError(
                    f"a branch ends in token kernels of shape {end.K.shape[-2:]}; end every branch "
                    "in a readout such as lf.MeanPool() or lf.Flatten()"
                )
        wide = lambda a: a.astype(jnp.float64)  # noqa: E731
        K = jnp.stack([wide(end.K) for end in ends], axis=2)
        if not self.ntk:
            return K, None
        T = [jnp.zeros_like(end.K) if end.T is None else end.T for end in ends]
        return K, jnp.stack([wide(t) for t in T], axis=2)


def shared_kernels(
    net: AnyLayer,
    x: Any,
    y: Any = None,
    x_mask: Any = None,
    y_mask: Any = None,
    *,
    readouts: int,
    kinds: Any = ("nngp", "ntk"),
    dtype: Any = None,
    block: int | None = None,
    memory: Any = None,
    progress: bool | Callable = False,
) -> dict[str, np.ndarray]:
    """NNGP and NTK of every branch of a network, computed together.

    Args:
        net: a network whose branches all end in a readout; see the module's docstring.
        x, y, x_mask, y_mask: as for `net.kernel`; one input only. y=None means y is x.
        readouts: the number of branches.
        kinds: "nngp", "ntk" or both.
        dtype: float32 or float64, of the token kernels. The result is float64 (its sums over tokens
            are more precise than its terms).
        block: inputs whose records are held at once; all of the longer side, if memory allows.
            The same number in several calls saves compilations.
        memory: budget in bytes, or a string such as "2GiB".
        progress: True for a line on standard error, or a function `(done, total, seconds_left)`.

    Returns:
        `{"nngp": (n, m, readouts), "ntk": ...}` in float64, for the kinds asked for.

    Raises:
        ValueError: a branch without a readout, or not as many branches as `readouts`.

    Example:
        >>> import limitformer as lf
        >>> heads = lf.Parallel(lf.MeanPool(), lf.Flatten())
        >>> net = lf.Serial(lf.Dense(), lf.Relu(), heads)
        >>> shared_kernels(net, np.ones((2, 3, 4)), readouts=2)["nngp"].shape
        (2, 2, 2)
    """
    kinds = check_kinds(kinds)
    dtype = float_type(as_arrays(x, "x") + (() if y is None else as_arrays(y, "y")), dtype)
    with jax.enable_x64(True):
        net = cast(net, dtype)
        sx = streams_of(net, x, x_mask, "x", dtype=dtype)
        sy = None if y is None else streams_of(net, y, y_mask, "y", dtype=dtype)
        sx, sy = same_lengths(net, sx, sy)
        network = Network(net, *needs_of(net), "ntk" in kinds)
        other = sx if sy is None else sy
        plan, chunk = _plan(network, sx, other, sy is None, readouts, dtype, block, memory)
        trunk = SharedTrunk(network, chunk)
        values = Blocks(plan, trunk, sx, other, None, 0, Progress.of(progress)).run()
    pairs = zip(("nngp", "ntk"), values, strict=True)
    return {kind: value for kind, value in pairs if kind in kinds and value is not None}


def rank_errors(net: AnyLayer, x: Any, *, dtype: Any = None) -> list[float]:
    """The largest relative error that low ranks make in the own readout of these inputs.

    Args:
        net: a network with `Readouts` in it.
        x: `(n, height, width, channels)`; some of the inputs are enough.

    Returns:
        One number for every readout, in order; zero where nothing is left out.
    """
    dtype = float_type(as_arrays(x, "x"), dtype)
    with jax.enable_x64(True):
        net = cast(net, dtype)
        streams = streams_of(net, x, None, "x", dtype=dtype)
        network = Network(net, *needs_of(net), False)
        trunk = SharedTrunk(network, 1 if streams[0].tokens > 64 else streams[0].n)
        run = eqx.filter_jit(lambda trunk, s: trunk.marginal(s, jnp.arange(s[0].n), None, 0)[0])
        with jax.default_matmul_precision("highest"):
            records = run(trunk, streams)
        sides = jax.tree.leaves(records, is_leaf=lambda r: isinstance(r, Side))
        errors = [s.error for s in sides if isinstance(s, Side)]
        return [0.0 if e is None else float(jnp.max(e)) for e in errors]


def _plan(network, sx, sy, symmetric, readouts, dtype, block, memory) -> tuple[BlockPlan, int]:
    """Tiles within the memory budget, and how many inputs' records are computed at once."""
    backend = jax.default_backend()
    S1, S2 = sx[0].tokens, sy[0].tokens
    n, m = sx[0].n, sy[0].n
    entries = S1 * S2 if network.need.cross == Form.FULL else max(S1, S2)
    pair = dtype.itemsize * entries * _LIVE
    budget = memory_budget(memory)
    together = max(1, min(budget // 2, _TARGET.get(backend, 2**30)) // pair)
    tile = max(2, min(math.isqrt(together), max(n, m)))
    record = dtype.itemsize * readouts * S1 * min(S1, 96)
    held = budget // 4 // record
    tiles = max(1, min(-(-(block or max(n, m)) // tile), held // tile))
    several = min(_CHUNK.get(backend, 1), tiles)
    tiles = -(-tiles // several) * several
    plan = BlockPlan(
        n,
        m,
        symmetric,
        tile,
        tile * tiles,
        min(_AT_ONCE.get(backend, 8), tiles),
        threads(),
        0,
        False,
        pair,
        True,
        (n, m, readouts),
        np.dtype(np.float64),
    )
    return plan, tile * several
