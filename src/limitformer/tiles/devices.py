"""Several devices of one process: blocks of a tile shared among them with `jax.shard_map`.

Every device holds the inputs' records and takes its part of the list of blocks; nothing is
exchanged between devices.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from ..kernel.gram import KINDS, check_kinds, result_of, returned, same_lengths
from ..kernel.inputs import as_arrays, float_type, streams_of
from ..kernel.network import Network, cast, needs_of
from ..layers.base import Layer, leaves


def sharded_kernel(
    net: Layer, x, y=None, x_mask=None, y_mask=None, *, kinds=KINDS, dtype=None, block: int = 16,
    devices=None,
):  # fmt: skip
    """`net.kernel` with the blocks of pairs spread over several devices.

    Args:
        net: the network, whose kernel must be exact (no drawn scores), with a readout.
        x, y, x_mask, y_mask, kinds, dtype: as for `net.kernel`.
        block: inputs on each side of a block.
        devices: JAX devices; None: all of this process.

    Returns:
        A `Kernel` of NumPy arrays.
    """
    kinds = check_kinds(kinds)
    if any(leaf.random_scores for _, leaf in leaves(net)):
        raise ValueError("the network draws scores; sharded kernels must be exact: use net.kernel")
    dtype = float_type(as_arrays(x, "x") + (() if y is None else as_arrays(y, "y")), dtype)
    devices = jax.local_devices() if devices is None else list(devices)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        model: Any = cast(net, dtype)
        sx = streams_of(model, x, x_mask, "x", dtype=dtype)
        sy = None if y is None else streams_of(model, y, y_mask, "y", dtype=dtype)
        sx, sy = same_lengths(model, sx, sy)
        network = Network(model, *needs_of(model), "ntk" in kinds)
        if not network.look(sx, 1).facts.readout:
            raise ValueError("sharded kernels need a readout such as lf.MeanPool()")
        sides = []
        for streams, first in ((sx, 0), (sx if sy is None else sy, 0 if sy is None else sx[0].n)):
            n = streams[0].n
            index = np.minimum(np.arange(-(-n // block) * block), n - 1)
            part = tuple(s.take(index) for s in streams)
            records, _ = _marginal(network, part, jnp.asarray(index + first))
            sides.append((part, records))
        rows, cols = (len(side[0][0].x) // block for side in sides)
        todo = [(i, j) for i in range(rows) for j in range(i + 1 if sy is None else cols)]
        filled = todo + todo[-1:] * (-len(todo) % len(devices))
        left, right = sides
        values = _spread(network, left, right, block, jnp.asarray(np.array(filled)), tuple(devices))
        grams = [None if v is None else _placed(np.asarray(v), todo, block, rows, cols, sy is None,
                 sx[0].n, (sx if sy is None else sy)[0].n) for v in values]  # fmt: skip
    return returned(result_of(kinds, grams), dtype)


@eqx.filter_jit
def _marginal(network, streams, index):
    return network.marginal(streams, index, None, 0)


@eqx.filter_jit
def _spread(network, x, y, block: int, todo, devices):
    """Blocks `(row, column)` of two sides, each device its part of the list."""
    cut = lambda a: a.reshape(len(a) // block, block, *a.shape[1:])  # noqa: E731
    arrays, rest = eqx.partition(
        (network, jax.tree.map(cut, x), jax.tree.map(cut, y)), eqx.is_array
    )

    @functools.partial(
        jax.shard_map,
        mesh=Mesh(np.array(devices), ("tiles",)),
        in_specs=(PartitionSpec(), PartitionSpec("tiles")),
        out_specs=PartitionSpec("tiles"),
        check_vma=False,
    )
    def run(arrays, places):
        model, x, y = eqx.combine(arrays, rest)

        def one(place):
            (sx, rx), (sy, ry) = (
                jax.tree.map(lambda a, i=i: jax.lax.dynamic_index_in_dim(a, i, 0, False), side)
                for i, side in zip(place, (x, y), strict=True)
            )
            values = model.cross(sx, sy, rx, ry)
            return tuple(None if v is None else v[..., 0, 0] for v in values)

        return jax.lax.map(one, places)

    return run(arrays, todo)


def _placed(blocks, todo, block: int, rows: int, cols: int, symmetric: bool, n: int, m: int):
    """Blocks put together; the last inputs were repeated to fill them."""
    whole = np.empty((rows * block, cols * block), blocks.dtype)
    for (i, j), value in zip(todo, blocks, strict=False):
        at = slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block)
        if symmetric:
            value = np.tril(value) + np.tril(value, -1).T if i == j else value
            whole[at[1], at[0]] = value.T
        whole[at] = value
    return whole[:n, :m]
