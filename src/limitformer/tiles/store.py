"""A Gram matrix on disk: a Zarr v3 group whose chunks are tiles, with a manifest.

    K.zarr/zarr.json            attributes: the manifest
    K.zarr/nngp/c/<i>/<j>       tile (i, j), raw numbers and a crc32c
    K.zarr/x/array0, ...        the inputs, so that a worker needs nothing but the address

A chunk that is missing reads as NaN, and NaN is never written: a missing tile is always an error.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np

from ..extras import optional
from .inputs import Inputs, blocks
from .layout import Layout
from .location import Location
from .manifest import FORMAT, identity
from .schema import check_form

_ABOUT = "limitformer"
_CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
_CODECS_OF_BYTES = [{"name": "bytes"}, {"name": "crc32c"}]
_NUMBERS = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))}
_NUMBERS |= {"float16", "float32", "float64"}
_CHECKSUM = 4  # bytes of a crc32c


class MissingTile(RuntimeError):
    """A tile that is needed has not been computed."""


class DamagedTile(RuntimeError):
    """A tile's bytes are not those that were written."""


@dataclasses.dataclass(frozen=True)
class TileStore:
    """An open store.

    Attributes:
        location: where it is.
        manifest: what it was computed from.
    """

    location: Location
    manifest: dict[str, Any]

    @functools.cached_property
    def identity(self) -> str:
        """SHA-256 of the manifest."""
        return identity(self.manifest)

    @functools.cached_property
    def layout(self) -> Layout:
        about = self.manifest["tiles"]
        return Layout(
            about["n"], about["m"], about["tile"], about["symmetric"], tuple(about["tokens"])
        )

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.manifest["dtype"])

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays that a tile is written to: kernels, and their standard errors if estimated."""
        kinds = self.manifest["kinds"]
        errors = [f"{kind}_sem" for kind in kinds] if self.manifest["draws"] else []
        return (*kinds, *errors)

    def array(self, name: str) -> Any:
        """One of the arrays, opened after a look at its description."""
        return self._arrays[name]

    @functools.cached_property
    def _arrays(self) -> dict[str, Any]:
        zarr = optional("zarr", "tiles")
        group = zarr.open_group(
            self.location.zarr(), mode="r+", zarr_format=3, use_consolidated=False
        )
        for name in self.names:
            self._check(name, self.layout.shape, self.layout.chunk, self.dtype.name)
        return {name: group[name] for name in self.names}

    def _check(self, name: str, shape=None, chunk=None, dtype: str | None = None) -> None:
        """Refuse arrays that we would not have written: other codecs could run code."""
        about = self.location.json(f"{name}/zarr.json") or {}
        grid = about.get("chunk_grid", {})
        fine = (
            about.get("zarr_format") == 3
            and about.get("node_type") == "array"
            and about.get("codecs") in (_CODECS, _CODECS_OF_BYTES)
            and not about.get("storage_transformers")
            and about.get("data_type") in (_NUMBERS if dtype is None else {dtype})
            and grid.get("name") == "regular"
            and (shape is None or about.get("shape") == list(shape))
            and (chunk is None or grid["configuration"]["chunk_shape"] == list(chunk))
        )
        if not fine:
            raise ValueError(
                f"{self.location.url}/{name} is not an array that limitformer wrote (expected "
                f"plain numbers with a crc32c{'' if shape is None else f', shape {tuple(shape)}'})"
            )

    def inputs(self, side: str) -> Inputs:
        """The inputs of one side, `"x"` or `"y"`."""
        zarr = optional("zarr", "tiles")
        about = self.manifest["inputs"][side]
        group = zarr.open_group(
            self.location.zarr(read_only=True), mode="r", zarr_format=3, use_consolidated=False
        )

        def opened(name: str) -> Any:
            self._check(f"{side}/{name}")
            return group[f"{side}/{name}"]

        held = {name: opened(name) for name in about}
        count = sum(name.startswith("array") for name in about)
        return Inputs(
            tuple(held[f"array{i}"] for i in range(count)),
            tuple(held.get(f"mask{i}") for i in range(count)),
            *(np.asarray(held[name][:]) if name in held else None for name in ("lengths", "order")),
        )

    def write(self, i: int, j: int, values: dict[str, np.ndarray]) -> None:
        """Write one tile: exactly one chunk of each array.

        Raises:
            TypeError: numbers of another type (a process that lost JAX's 64-bit switch).
            ValueError: another shape, numbers that are not finite, an own tile that is not
                symmetric.
        """
        rows, cols = self.layout.row(i), self.layout.col(j)
        shape = (rows.stop - rows.start, cols.stop - cols.start, *self.layout.tokens)
        for name in self.names:
            value = values[name]
            if value.dtype != self.dtype:
                raise TypeError(
                    f"tile ({i}, {j}) of {name} came out as {value.dtype}, but the store holds "
                    f"{self.dtype}; was JAX_ENABLE_X64 switched off in the worker?"
                )
            if value.shape != shape:
                raise ValueError(f"tile ({i}, {j}) of {name} has shape {value.shape}, not {shape}")
            if not np.isfinite(value).all():
                raise ValueError(f"tile ({i}, {j}) of {name} has numbers that are not finite")
            if self.layout.own(i, j) and not np.array_equal(value, transposed(value)):
                raise ValueError(f"tile ({i}, {j}) of {name} is not symmetric")
        for name in self.names:
            self.array(name)[rows, cols] = values[name]

    def read(self, name: str, i: int, j: int) -> np.ndarray:
        """One tile.

        Raises:
            MissingTile: it has not been computed.
            DamagedTile: its checksum is wrong.
        """
        array = self.array(name)
        try:
            value = array[self.layout.row(i), self.layout.col(j)]
        except OSError:
            raise
        except Exception as error:  # a short or changed chunk fails in one of several codecs
            raise DamagedTile(
                f"tile ({i}, {j}) of {name} in {self.location.url} is damaged ({error}); "
                f"run: limitformer gram resume {self.location.url}"
            ) from None
        if np.isnan(value.flat[0]):
            raise MissingTile(
                f"tile ({i}, {j}) of {name} in {self.location.url} has not been computed; "
                f"run: limitformer gram resume {self.location.url}"
            )
        return value

    def chunk(self, name: str, i: int, j: int) -> str:
        """The file of a tile, inside the store."""
        return "/".join([name, "c", str(i), str(j), *("0" for _ in self.layout.tokens)])

    def present(self) -> list[tuple[int, int]]:
        """Tiles whose chunks are all there, in full length."""
        full = int(np.prod(self.layout.chunk)) * self.dtype.itemsize + _CHECKSUM
        known = {name: self.location.sizes(name) for name in self.names}
        return [
            (i, j)
            for i, j in self.layout.tiles()
            if all(
                known[name].get(self.chunk(name, i, j).removeprefix(f"{name}/")) == full
                for name in self.names
            )
        ]

    def damaged(self, tiles) -> list[tuple[int, int]]:
        """Those of some tiles whose checksums are wrong."""
        bad = []
        for i, j in tiles:
            try:
                for name in self.names:
                    self.read(name, i, j)
            except (DamagedTile, MissingTile):
                bad.append((i, j))
        return bad

    def partial(self) -> list[str]:
        """Files that a killed process left half-written."""
        sizes = self.location.sizes("")
        return [path for path in sizes if path.endswith(".partial")]

    def remove(self, tiles) -> None:
        """Forget some tiles."""
        for i, j in tiles:
            for name in self.names:
                self.location.remove(self.chunk(name, i, j))


def create(location: Location, manifest: dict[str, Any], sides: dict[str, Inputs]) -> TileStore:
    """A new store with its inputs and without tiles; the manifest comes last."""
    zarr = optional("zarr", "tiles")
    store = TileStore(location, manifest)
    group = zarr.create_group(
        location.zarr(),
        zarr_format=3,
        overwrite=True,
        attributes={_ABOUT: {"format": FORMAT, "unfinished": store.identity}},
    )
    for side, inputs in sides.items():
        for name, array in inputs.named().items():
            _copy(group, f"{side}/{name}", array)
    for name in store.names:
        group.create_array(
            name,
            shape=store.layout.shape,
            chunks=store.layout.chunk,
            dtype=store.dtype,
            fill_value=np.nan,
            filters=None,
            compressors=[zarr.codecs.Crc32cCodec()],
            config={"write_empty_chunks": True},
        )
    group.attrs[_ABOUT] = manifest
    return store


def _copy(group, name: str, array) -> None:
    zarr = optional("zarr", "tiles")
    parts = blocks(array)
    first = next(parts)
    held = group.create_array(
        name,
        shape=array.shape,
        chunks=(len(first), *array.shape[1:]),
        dtype=np.dtype(array.dtype).newbyteorder("="),
        filters=None,
        compressors=[zarr.codecs.Crc32cCodec()],
        config={"write_empty_chunks": True},
    )
    start = 0
    for part in itertools.chain([first], parts):
        held[start : start + len(part)] = part
        start += len(part)


def open_store(given) -> TileStore:
    """Open a store; nothing in it is executed, and links out of it are refused.

    Raises:
        FileNotFoundError: there is nothing.
        ValueError: it is not a store of tiles, or one of another format.
    """
    location = given if isinstance(given, Location) else Location.of(given)
    about = stored_manifest(location)
    if about is None:
        raise FileNotFoundError(f"there is no store at {location.url}; lf.gram(store=) makes one")
    location.check_links()
    return TileStore(location, about)


def stored_manifest(location: Location) -> dict[str, Any] | None:
    """The manifest of the store at a place, None if there is no (finished) one.

    Raises:
        ValueError: there is something else.
    """
    if not location.exists():
        return None
    group = location.json("zarr.json")
    about = group.get("attributes", {}).get(_ABOUT) if isinstance(group, dict) else None
    if not isinstance(about, dict) or group.get("zarr_format") != 3:
        raise ValueError(
            f"{location.url} exists and is not a store of tiles; nothing is overwritten, choose "
            "another name"
        )
    if about.get("format") != FORMAT:
        raise ValueError(
            f"{location.url} has format {about.get('format')!r}, this version reads {FORMAT}"
        )
    if "unfinished" in about:
        return None
    check_form(about, location.url)
    return about


def transposed(tile: np.ndarray) -> np.ndarray:
    """K(y, x) from K(x, y): inputs and tokens change places."""
    tile = np.swapaxes(tile, 0, 1)
    return np.swapaxes(tile, 2, 3) if tile.ndim == 4 else tile
