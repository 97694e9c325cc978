"""Inputs of a large Gram matrix: read by blocks of rows, digested, and copied into its store."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..kernel.inputs import as_arrays

_BLOCK = 16 * 2**20  # bytes of rows that are read at once


@dataclasses.dataclass(frozen=True)
class Inputs:
    """One side of a Gram matrix.

    Attributes:
        arrays: one array-like per input of the network, rows first; for sequences of different
            lengths one array of all tokens one after the other.
        masks: one mask or None each.
        lengths: tokens of every sequence, where they differ.
        order: row r is the caller's row `order[r]`, where sequences were sorted by length.
    """

    arrays: tuple[Any, ...]
    masks: tuple[Any, ...]
    lengths: np.ndarray | None = None
    order: np.ndarray | None = None

    @property
    def n(self) -> int:
        return int(self.arrays[0].shape[0]) if self.lengths is None else len(self.lengths)

    def rows(self, part: slice) -> tuple[Any, Any]:
        """The inputs of some rows and their masks, as `net.kernel` takes them."""
        if self.lengths is not None:
            return self._padded(part)
        arrays = tuple(np.asarray(a[part]) for a in self.arrays)
        masks = tuple(None if m is None else np.asarray(m[part]) for m in self.masks)
        if len(arrays) == 1:
            return arrays[0], masks[0]
        return arrays, None if all(m is None for m in masks) else masks

    def _padded(self, part: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Sequences padded to the longest of them, rounded up so that few shapes are compiled."""
        every = np.asarray(self.lengths)
        lengths, ends = every[part], np.concatenate([[0], np.cumsum(every)])
        flat = np.asarray(self.arrays[0][int(ends[part.start]) : int(ends[part.stop])])
        size = bucket(int(lengths.max()))
        mask = np.arange(size) < lengths[:, None]
        values = np.zeros((len(lengths), size, *flat.shape[1:]), flat.dtype)
        values[mask] = flat
        return values, None if mask.all() else mask

    def named(self) -> dict[str, Any]:
        """What describes this side completely, by name."""
        found = {f"array{i}": a for i, a in enumerate(self.arrays)}
        found |= {f"mask{i}": m for i, m in enumerate(self.masks) if m is not None}
        for name in ("lengths", "order"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return found

    def digest(self) -> str:
        """SHA-256 of names, types, shapes and values."""
        sha = hashlib.sha256()
        for name, array in self.named().items():
            kind = np.dtype(array.dtype).newbyteorder("<")
            sha.update(f"{name} {kind.str} {tuple(array.shape)}\n".encode())
            for block in blocks(array):
                sha.update(np.ascontiguousarray(block, kind).data)
        return sha.hexdigest()


def blocks(array) -> Iterator[np.ndarray]:
    """An array-like a few megabytes at a time."""
    row = np.dtype(array.dtype).itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    step = max(1, _BLOCK // max(1, row))
    for start in range(0, array.shape[0], step):
        yield np.asarray(array[start : start + step])


def bucket(length: int) -> int:
    """The padded length of sequences: at most an eighth (or 7 tokens) more.

    Example:
        >>> [bucket(n) for n in (3, 8, 30, 100, 129)]
        [8, 8, 32, 104, 144]
    """
    step = max(8, 2 ** max(0, (length - 1).bit_length() - 4))
    return -(-length // step) * step


def inputs_of(x: Any, mask: Any, name: str) -> Inputs:
    """Arrays, memory maps, Zarr arrays or a list of sequences of different lengths, in one form.

    Raises:
        ValueError: an empty list, a mask for sequences that carry their lengths, shapes that do
            not go together.
    """
    if isinstance(x, list) and _ragged(x):
        if mask is not None:
            raise ValueError(
                f"{name} is a list of sequences of different lengths, which needs no {name}_mask; "
                "drop the mask, or pad the sequences and keep it"
            )
        return _sequences(x, name)
    given = x if isinstance(x, tuple) else (x,)
    arrays: tuple[Any, ...] = tuple(_lazy(a, name) for a in given)
    masks = mask if isinstance(mask, tuple) else (mask,)
    masks = (None,) * len(arrays) if mask is None else tuple(_lazy(m, name) for m in masks)
    if len(masks) != len(arrays):
        raise ValueError(
            f"{name} has {len(arrays)} inputs but {name}_mask has {len(masks)}; give a tuple with "
            "one mask (or None) each"
        )
    counts = {a.shape[0] if len(a.shape) else 0 for a in (*arrays, *masks) if a is not None}
    if len(counts) > 1:
        raise ValueError(f"the inputs in {name} have different numbers of rows {sorted(counts)}")
    if 0 in counts:
        raise ValueError(f"{name} has shape {arrays[0].shape}: it is empty (no rows)")
    return Inputs(arrays, masks)


def _lazy(a, name: str) -> Any:
    """An array that can be read by rows; NumPy arrays, memory maps and Zarr arrays as they are."""
    if a is None:
        return None
    if all(hasattr(a, part) for part in ("shape", "dtype", "__getitem__")):
        if isinstance(a, jax.Array) or np.dtype(a.dtype).kind not in "fiub":
            (a,) = as_arrays(np.asarray(a), name)
            return a if a.dtype.kind in "fiub" else a.astype(np.float32)  # bfloat16
        return a
    (a,) = as_arrays(a, name)
    return np.asarray(a)


def _ragged(x: list) -> bool:
    if not x:
        return False
    if any(np.ndim(row) == 0 for row in x):
        return False
    return len({len(row) for row in x}) > 1


def _sequences(x: list, name: str) -> Inputs:
    """Sequences in order of length, one after the other."""
    rows = [np.asarray(row) for row in x]
    lengths = np.array([len(row) for row in rows])
    if not lengths.all():
        empty = np.flatnonzero(lengths == 0)[:8].tolist()
        raise ValueError(f"{name} has sequences without tokens in rows {empty}; drop these rows")
    shapes = {row.shape[1:] for row in rows}
    if len(shapes) > 1 or any(row.ndim > 2 for row in rows):
        raise ValueError(
            f"{name} has sequences of shapes {sorted({row.shape for row in rows})[:4]}; expected "
            "token ids (tokens,), or (tokens, features) with the same features"
        )
    order = np.argsort(lengths, kind="stable")
    flat = np.concatenate([rows[r] for r in order])
    (flat,) = as_arrays(flat, name)
    return Inputs((flat,), (None,), lengths[order], order)
