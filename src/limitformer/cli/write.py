"""Results in files, by their suffix: whole or not at all, and none is replaced unless asked."""

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from limitformer.extras import optional

SUFFIXES = (".npy", ".npz", ".csv", ".parquet", ".zarr")


def check_out(path: Path, force: bool, suffixes: tuple[str, ...] = SUFFIXES) -> Path:
    """Raise unless a result may be written to `path`; called before the work and again after.

    Raises:
        ValueError: another suffix.
        FileExistsError: it is there and `force` is false, or a folder is in the way.
    """
    path = path.expanduser()
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"--out {path}: expected a name that ends in {', '.join(suffixes)}")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; choose another name, or replace it with --force")
    if path.is_dir() and not (path / "zarr.json").is_file():
        raise FileExistsError(f"{path} is a folder and no zarr array; choose another name")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"--out {path}: there is no folder {path.absolute().parent}")
    return path


def write(path: Path, arrays: Mapping[str, Any], force: bool = False) -> Path:
    """Write arrays into a new file, whole or not at all.

    Args:
        path: npz and zarr take all arrays by name; npy takes one; csv and parquet take columns,
            those of an array `(n, m)` as `name_0`, `name_1`, ...
        arrays: name -> array; None is left out.
        force: replace a file that is there.

    Raises:
        ValueError: arrays that do not fit into this kind of file.
        FileExistsError: as for `check_out`.
    """
    path = check_out(path, force)
    given = {name: np.asarray(a) for name, a in arrays.items() if a is not None}
    suffix = path.suffix.lower()
    part = path.absolute().with_name(f".{path.stem}-{uuid.uuid4().hex[:8]}{suffix}")
    try:
        _WRITERS[suffix](part, given)
        check_out(path, force)
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)
    return path


def write_bytes(path: Path, content: bytes, force: bool = False) -> None:
    """Write a file, whole or not at all."""
    part = path.absolute().with_name(f".{path.stem}-{uuid.uuid4().hex[:8]}{path.suffix}")
    try:
        part.write_bytes(content)
        check_out(path, force, (path.suffix.lower(),))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _write_npy(path: Path, arrays: dict[str, np.ndarray]) -> None:
    if len(arrays) > 1:
        raise ValueError(
            f"an npy file holds one array, and there are {', '.join(arrays)}; write an npz"
        )
    np.save(path, next(iter(arrays.values())), allow_pickle=False)


def _write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(path, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]


def _write_zarr(path: Path, arrays: dict[str, np.ndarray]) -> None:
    group = optional("zarr", "tiles").create_group(str(path))
    for name, array in arrays.items():
        group.create_array(name, data=array)


def _columns(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if array.ndim > 2:
            raise ValueError(
                f"{name} has shape {array.shape}, which no table holds; write an npz or a zarr"
            )
        if array.ndim == 2:
            columns |= {f"{name}_{i}": column for i, column in enumerate(array.T)}
        else:
            columns[name] = np.atleast_1d(array)
    return columns


def _write_csv(path: Path, arrays: dict[str, np.ndarray]) -> None:
    import csv

    columns = _columns(arrays)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        # repr of a float reads back as the same float
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def _write_parquet(path: Path, arrays: dict[str, np.ndarray]) -> None:
    pyarrow, parquet = optional("pyarrow", "data"), optional("pyarrow.parquet", "data")
    parquet.write_table(pyarrow.table({k: v.tolist() for k, v in _columns(arrays).items()}), path)


_WRITERS = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".zarr": _write_zarr,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
