"""Safetensors files, read without PyTorch and without executing anything.

A file is eight bytes with the length of a JSON header, the header {name: {dtype, shape,
data_offsets}}, and the numbers. Half precision comes back as float32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_LARGEST_HEADER = 100_000_000


class SafetensorsFile(Mapping[str, np.ndarray]):
    """The arrays of one safetensors file by name, read when asked for.

    Args:
        path: of the file.

    Raises:
        ValueError: the file is truncated, corrupted or of an unknown type.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise self._broken(f"its header should have {length} bytes, the file has {size}")
            raw = file.read(length)
        try:
            header = json.loads(raw)
        except ValueError:
            raise self._broken("its header is not JSON") from None
        if not isinstance(header, dict):
            raise self._broken("its header is not a table of arrays")
        header.pop("__metadata__", None)
        self._start = 8 + length
        self._entries: dict[str, tuple[str, tuple[int, ...], int]] = {}
        for name, entry in header.items():
            self._entries[name] = self._check(name, entry, size - self._start)

    def _check(self, name: str, entry: Any, size: int) -> tuple[str, tuple[int, ...], int]:
        try:
            dtype, shape = entry["dtype"], tuple(int(s) for s in entry["shape"])
            begin, end = (int(at) for at in entry["data_offsets"])
        except (TypeError, KeyError, ValueError):
            raise self._broken(f"the entry of {name!r} is not a description of an array") from None
        if dtype not in _DTYPES:
            raise ValueError(
                f"{self.path}: {name!r} has dtype {dtype}; read are {', '.join(_DTYPES)}. "
                "Convert the checkpoint, for example to F16"
            )
        expected = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
        if min((begin, *shape), default=0) < 0 or end - begin != expected:
            raise self._broken(f"{name!r} of shape {shape} should have {expected} bytes")
        if end > size:
            raise self._broken(f"{name!r} ends at byte {end} of the data, and {size} are there")
        return dtype, shape, self._start + begin

    def _broken(self, reason: str) -> ValueError:
        return ValueError(
            f"{self.path} is not a whole safetensors file: {reason}. It is truncated or corrupted: "
            "fetch it again"
        )

    def __getitem__(self, name: str) -> np.ndarray:
        dtype, shape, start = self._entries[name]
        if 0 in shape:
            return np.zeros(shape, np.float32)
        array = np.memmap(self.path, _DTYPES[dtype], "r", start, shape)
        if dtype == "BF16":
            return (np.asarray(array).astype(np.uint32) << 16).view(np.float32)
        return np.asarray(array.astype(np.float32) if dtype == "F16" else array)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Sharded(Mapping[str, np.ndarray]):
    """A checkpoint in several safetensors files, by its index `model.safetensors.index.json`."""

    def __init__(self, index: str | Path):
        index = Path(index)
        self._places: dict[str, str] = json.loads(index.read_text())["weight_map"]
        missing = [f for f in {*self._places.values()} if not (index.parent / f).is_file()]
        if missing:
            raise FileNotFoundError(f"{index} names files that are not there: {sorted(missing)}")
        self._files = {f: SafetensorsFile(index.parent / f) for f in {*self._places.values()}}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._files[self._places[name]][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
