"""Token kernels after every layer of a network."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .gram import DRAWS, KINDS, Kernel, check_kinds, restored, result_of, returned, same_lengths
from .inputs import as_arrays, float_type, streams_of
from .network import Network, cast, finish, needs_of
from .passes import turn_name


def trace(
    net: Any,
    x,
    y=None,
    x_mask=None,
    y_mask=None,
    *,
    kinds=KINDS,
    dtype=None,
    key=None,
    draws: int = DRAWS,
) -> OrderedDict[str, Kernel]:
    """Token kernels after every layer, by the layer's name, in order.

    Nothing is reduced: every entry has its full token kernel, `(n, m, tokens, tokens)`, or `(n, m)`
    after a readout. Repeats are listed turn by turn. Score averages use one set of `draws` and
    carry no standard error here.
    """
    kinds = check_kinds(kinds)
    arrays = as_arrays(x, "x") + (() if y is None else as_arrays(y, "y"))
    dtype = float_type(arrays, dtype)
    with jax.enable_x64(True):
        net = cast(net, dtype)
        sx = streams_of(net, x, x_mask, "x", dtype=dtype)
        sy = sx if y is None else streams_of(net, y, y_mask, "y", dtype=dtype)
        sx, sy = same_lengths(net, sx, sy)
        need, table = needs_of(net, all_of_it=True)
        network = Network(net, need, table, "ntk" in kinds, pull=False)
        n, m = sx[0].n, sy[0].n
        i, j = (jnp.asarray(g.reshape(-1)) for g in np.indices((n, m)))
        key = jax.random.key(0) if key is None else key
        seen = _watched(network, sx, sy, i, j, j if y is None else j + n, key, draws)
        result: OrderedDict[str, Kernel] = OrderedDict()
        for name, values in seen.items():
            shaped = (
                None if v is None else np.asarray(v).reshape(n, m, *v.shape[1:]) for v in values
            )
            pair = tuple(
                None if v is None else restored(v, sx[0].order, sy[0].order) for v in shaped
            )
            result[name] = result_of(kinds, pair)
    return OrderedDict((name, returned(k, dtype)) for name, k in result.items())


@eqx.filter_jit
def _watched(network: Network, sx, sy, i, j, iy, key, draws: int):
    """K and T of a list of pairs after every layer."""
    watch = Watch(network.ntk)
    left, right = tuple(s.take(i) for s in sx), tuple(s.take(j) for s in sy)
    network.pairs(left, right, i, iy, key, draws, watch)
    seen: OrderedDict = OrderedDict()
    for (path, depth), streams in zip(watch.places, watch.values, strict=True):
        name = turn_name(path, depth)
        for index, pair in enumerate(streams):
            seen[name if len(streams) == 1 else f"{name}:{index}"] = pair
    return seen


class Watch:
    """What a pass shows of its states; the turns of a scan are stacked, and shown after it.

    Attributes:
        places: path and turns of every layer that was passed.
        values: K and T of each of its streams.
    """

    def __init__(self, ntk: bool):
        self.ntk = ntk
        self.places: list[tuple[str, tuple]] = []
        self.values: list[tuple] = []

    def empty(self) -> Watch:
        return Watch(self.ntk)

    def look(self, state) -> tuple:
        found = []
        for s in state if isinstance(state, tuple) else (state,):
            K, T = finish(s.k, self.ntk)
            if s.x.facts.readout:
                K, T = (None if v is None else v[..., 0, 0] for v in (K, T))
            found.append((K, T))
        return tuple(found)

    def add(self, path: str, depth: tuple, values: tuple) -> None:
        self.places.append((path, depth))
        self.values.append(values)
