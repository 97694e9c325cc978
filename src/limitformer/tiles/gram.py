"""`lf.gram`: the Gram matrix of many inputs, in memory or tile by tile into a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..files import to_toml
from ..files.errors import NetworkFileError
from ..kernel.gram import DRAWS, KINDS, check_kinds
from ..kernel.inputs import float_type, streams_of
from ..kernel.memory import memory_budget
from ..kernel.network import Network, cast, needs_of
from ..kernel.progress import Progress
from ..layers.base import Layer, leaves
from .compute import Tiles
from .inputs import Inputs, inputs_of
from .layout import Layout, tile_size
from .location import Location
from .manifest import FORMAT, advice, compared, differences, here, key_to_json, revision
from .matrix import Tiled, check_complete
from .schedule import run_tiles
from .store import TileStore, create, open_store, stored_manifest, transposed


@dataclasses.dataclass(frozen=True, eq=False)
class Gram:
    """Kernel matrices of two sets of inputs.

    Attributes:
        nngp, ntk: arrays, or `Tiled` matrices that are read from the store when asked; None if not
            asked for. `np.asarray` reads all, `.rows(i, j)` some, `@` multiplies tile by tile.
        nngp_sem, ntk_sem: standard errors of the entries, None where the value is exact.
        store: where the tiles are, None in memory.
    """

    nngp: Any
    ntk: Any
    nngp_sem: Any = None
    ntk_sem: Any = None
    store: TileStore | None = None

    @property
    def _any(self) -> Any:
        return self.nngp if self.nngp is not None else self.ntk

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._any.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self._any.dtype)

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Rows `start` to `stop` of every kernel, by kind."""
        found = {kind: getattr(self, kind) for kind in KINDS if getattr(self, kind) is not None}
        return {
            kind: K.rows(start, stop) if isinstance(K, Tiled) else np.asarray(K[start:stop])
            for kind, K in found.items()
        }

    def __repr__(self) -> str:
        kinds = ", ".join(kind for kind in KINDS if getattr(self, kind) is not None)
        where = "in memory" if self.store is None else self.store.location.url
        return f"Gram({kinds}, {self.dtype}, {self.shape}, {where})"


def gram(
    net: Layer,
    x,
    y=None,
    *,
    x_mask=None,
    y_mask=None,
    kinds=KINDS,
    store=None,
    scheduler: Any = None,
    progress: bool | Callable = False,
    memory=None,
    dtype: Any = np.float64,
    key=None,
    draws: int = DRAWS,
    tile: int | None = None,
) -> Gram:
    """The Gram matrix of an infinite network, in memory or streamed into a store.

        K_ij = K(x_i, y_j), tile by tile; of a symmetric one the lower triangle

    A call with the store of an earlier one that was stopped computes the tiles that are missing or
    damaged. One with other inputs, network, type, draws, tiles or versions refuses.

    Args:
        net: the network; with a store it must be one that a file can describe.
        x, y: inputs as for `net.kernel`, memory maps, Zarr arrays, or a list of sequences of
            different lengths (token ids, or `(tokens, features)`); y=None means y is x.
        x_mask, y_mask: bool, True = valid.
        kinds: "nngp", "ntk" or both.
        store: a path or any fsspec address; None keeps the matrix in memory.
        scheduler: None: this process, with all of its JAX devices. A `dask.distributed.Client`,
            its address, or an executor of `concurrent.futures`: their workers read and write the
            store, so they must reach it.
        progress: True for a line on standard error, or a function `(done, total, seconds left)`.
        memory: budget of a worker in bytes, or such as "2GiB".
        dtype: float64 (also for float32 inputs: solves with float32 kernels lose digits), or
            float32.
        key, draws: randomness of softmax at scale "sqrt", as for `net.kernel`.
        tile: inputs on the side of a tile; by default at most 8 MiB.

    Returns:
        A `Gram`.

    Raises:
        ValueError: a store with another manifest; the message says what differs.
        NetworkFileError: a network with Python functions cannot go into a store.

    Example:
        >>> import tempfile, numpy as np, limitformer as lf
        >>> net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
        >>> x = np.linspace(-1.0, 1.0, 20).reshape(10, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     K = lf.gram(net, x, store=f"{folder}/K.zarr", tile=4)
        ...     same = np.allclose(K.nngp, net.kernel(x).nngp, rtol=1e-12)
        >>> same
        True
    """
    kinds = tuple(kind for kind in KINDS if kind in check_kinds(kinds))
    if y is None and y_mask is not None:
        raise ValueError("y_mask was given without y; pass y, or mask x with x_mask")
    if store is None and scheduler is not None:
        raise ValueError(
            "scheduler= needs store=: workers read the inputs from it and write their tiles into "
            'it; give for example store="K.zarr"'
        )
    given = inputs_of(x, x_mask, "x")
    other = None if y is None else inputs_of(y, y_mask, "y")
    dtype = float_type([*given.arrays, *(() if other is None else other.arrays)], dtype)
    lists = any(side is not None and side.lengths is not None for side in (given, other))
    if store is None and not lists and len(jax.local_devices()) == 1:
        k = net.kernel(
            x,
            y,
            x_mask,
            y_mask,
            kinds=kinds,
            dtype=dtype,
            key=key,
            draws=draws,
            memory=memory,
            progress=progress,
        )
        return Gram(k.nngp, k.ntk, k.nngp_sem, k.ntk_sem)
    # blocks inside a tile depend on it: what is free, as a round number, so that runs are equal
    budget = (
        2 ** (memory_budget(None).bit_length() - 1) if memory is None else memory_budget(memory)
    )
    report = Progress.of(progress)
    layout = layout_of(net, given, other, dtype, tile)
    if store is None:
        run = Tiles(net, layout, given, other, kinds, dtype, key, draws, budget)
        return _in_memory(run, report)
    random = any(leaf.random_scores for _, leaf in leaves(net))
    try:
        network = to_toml(net)
    except NetworkFileError as error:
        error.add_note("a store holds its network as text; without store= any network will do")
        raise
    sides = {"x": given} | ({} if other is None else {"y": other})
    manifest = {
        "format": FORMAT,
        "network": network,
        "kinds": list(kinds),
        "dtype": dtype.name,
        "key": key_to_json(key) if random else None,
        "draws": draws if random else 0,
        "data": {name: side.digest() for name, side in sides.items()},
        "inputs": {name: list(side.named()) for name, side in sides.items()},
        "tiles": dataclasses.asdict(layout) | {"tokens": list(layout.tokens), "memory": budget},
        "revision": revision(),
        **here(),
    }
    found = _started(Location.of(store), manifest, sides, memory is None)
    return finish(found, scheduler, report)


def _started(location: Location, manifest, sides, any_memory: bool) -> TileStore:
    """The store of this manifest, new or continued."""
    old = stored_manifest(location)
    if old is None:
        return create(location, manifest, sides)
    if any_memory:  # free memory differs from day to day; the tiles are those of the first run
        manifest["tiles"]["memory"] = old["tiles"]["memory"]
    lines = differences(compared(old), compared(manifest))
    if lines:
        raise ValueError(
            f"{location.url} holds another run, and tiles of two runs do not mix:\n  "
            + "\n  ".join(lines)
            + "\nchoose another store, or make the call that it was made with"
            + advice(old, lines)
        )
    return open_store(location)


def finish(store: TileStore, scheduler: Any = None, progress: Progress | None = None) -> Gram:
    """Compute the tiles of a store that are missing or damaged."""
    present = store.present()
    damaged = store.damaged(present)
    store.remove(damaged)
    whole = set(present) - set(damaged)
    run_tiles(store, [t for t in store.layout.tiles() if t not in whole], scheduler, progress)
    for path in store.partial():
        store.location.remove(path)
    check_complete(store)
    return gram_of(store)


def gram_of(store: TileStore) -> Gram:
    """The Gram matrix in a store."""
    found = {name: Tiled(store, name) for name in store.names}
    return Gram(
        found.get("nngp"), found.get("ntk"), found.get("nngp_sem"), found.get("ntk_sem"), store
    )


def open_gram(store) -> Gram:
    """Open a finished Gram matrix.

    Args:
        store: its path or address.

    Raises:
        MissingTile: it is not finished.
    """
    found = open_store(store)
    check_complete(found)
    return gram_of(found)


def layout_of(net, x: Inputs, y: Inputs | None, dtype, tile: int | None) -> Layout:
    """Tiles sized by the entries of a pair, which the network's output decides."""
    other = x if y is None else y
    with jax.enable_x64(True):
        cast_net = cast(net, dtype)
        network = Network(cast_net, *needs_of(cast_net), False)
        looks = []
        for name, side in (("x", x), ("y", other)):
            rows, mask = side.rows(slice(0, 1))
            looks.append(network.look(streams_of(cast_net, rows, mask, name, dtype=dtype), 1))
    tokens: tuple[int, ...] = ()
    if not looks[0].facts.readout:
        if x.lengths is not None or other.lengths is not None:
            raise ValueError(
                "sequences of different lengths have token kernels of different shapes; end the "
                "network with a readout such as lf.MeanPool()"
            )
        tokens = tuple(look.facts.tokens for look in looks)
    entry = dtype.itemsize * int(np.prod(tokens, dtype=np.int64))
    size = tile_size(x.n, other.n, entry) if tile is None else tile
    return Layout(x.n, other.n, size, y is None, tokens)


def _in_memory(run: Tiles, progress: Progress | None) -> Gram:
    """All tiles in arrays, in the caller's order."""
    layout = run.layout
    todo = layout.tiles()
    whole: dict[str, np.ndarray] = {}
    for done, (i, j) in enumerate(todo, 1):
        for name, value in run(i, j).items():
            if name not in whole:
                whole[name] = np.empty(layout.shape, run.dtype)
            whole[name][layout.row(i), layout.col(j)] = value
            if layout.symmetric:
                whole[name][layout.col(j), layout.row(i)] = transposed(value)
        if progress is not None:
            progress(done, len(todo))
    back = [
        np.arange(side.n) if side.order is None else np.argsort(side.order)
        for side in run.sides.values()
    ]
    whole = {name: value[np.ix_(*back)] for name, value in whole.items()}
    return Gram(whole.get("nngp"), whole.get("ntk"), whole.get("nngp_sem"), whole.get("ntk_sem"))
