"""Arrays from files, by their suffix: npy, npz, csv, parquet, zarr. Never a pickle.

`FILE:name` is one array of an npz or zarr, or columns of a table (`data.csv:price`,
`data.csv:age,height`).
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from limitformer.cli.write import SUFFIXES
from limitformer.data.columns import read_columns
from limitformer.extras import optional

TABLES = (".csv", ".parquet")


def split(given: str) -> tuple[Path, str | None]:
    """The file and the name in it.

    >>> split("data.npz:x")[1], split("C:data.npz")[1]
    ('x', None)
    """
    file, colon, name = given.rpartition(":")
    if colon and Path(file).suffix.lower() in SUFFIXES:
        return Path(file).expanduser(), name
    return Path(given).expanduser(), None


def read(given: str, option: str, without: tuple[str, ...] = ()) -> np.ndarray:
    """The array that an option names.

    Args:
        given: `FILE` or `FILE:name`.
        option: for messages, such as `--x`.
        without: columns of a table that are not part of it.

    Returns:
        The array as stored; columns of a table as float64 `(n, columns)`, or one named column as
        `(n,)`, of numbers or of text.

    Raises:
        ValueError, OSError: with the option, the file and what to do.
    """
    path, name = split(given)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{option} {given}: expected a file that ends in {', '.join(SUFFIXES)}, or FILE:name "
            "for one array of it"
        )
    if not path.exists():
        raise FileNotFoundError(f"{option} {given}: there is no file {path.absolute()}")
    try:
        found = _READERS[path.suffix.lower()](path, name, without)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        pickled = "allow_pickle" in str(error)
        why = "it holds Python objects (a pickle), which are never loaded" if pickled else error
        raise ValueError(f"{option} {given}: {why}") from None
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        bad = ~np.isfinite(found)
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{option} {given}: {bad.sum()} of {found.size} values are NaN or infinite, the first "
            f"at {place}; fill them or leave those rows out (tokens that are not there: --mask)"
        )
    return found


def table_names(given: str, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The columns of a table that `read` gives, empty for other files."""
    path, name = split(given)
    if path.suffix.lower() not in TABLES:
        return ()
    return tuple(name.split(",")) if name else _others(read_columns(path), without)


def _others(columns: Mapping[str, Any], without: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in columns if key not in without)


def _npy(path: Path, name: str | None, without: tuple[str, ...]) -> np.ndarray:
    if name is not None:
        raise ValueError(f"an npy file holds one array without a name; leave out :{name}")
    return np.load(path, allow_pickle=False)


def _npz(path: Path, name: str | None, without: tuple[str, ...]) -> np.ndarray:
    with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
        return file[_chosen(list(file.files), name, path)]


def _zarr(path: Path, name: str | None, without: tuple[str, ...]) -> np.ndarray:
    zarr = optional("zarr", "tiles")
    found = zarr.open(str(path), mode="r")
    if isinstance(found, zarr.Group):
        found = found[_chosen(sorted(found.array_keys()), name, path)]
    return np.asarray(found[...])


def _chosen(names: list[str], name: str | None, path: Path) -> str:
    if name is None and len(names) == 1:
        return names[0]
    if name is None or name not in names:
        problem = "which array?" if name is None else f"there is no array {name!r}."
        choices = " or ".join(f"{path}:{item}" for item in names) or "nothing: it is empty"
        raise ValueError(f"{problem} Give {choices}")
    return name


def _table(path: Path, name: str | None, without: tuple[str, ...]) -> np.ndarray:
    columns = read_columns(path)
    if name is not None and "," not in name:
        column = read_columns(path, only=(name,))[name]
        numbers = _numbers(column)
        return np.array([str(v).strip() for v in column]) if numbers is None else numbers
    chosen = _others(columns, without) if name is None else tuple(name.split(","))
    if name is not None:
        read_columns(path, only=chosen)  # says which column is not there
    numbers = {key: _numbers(columns[key]) for key in chosen}
    text = next((key for key, column in numbers.items() if column is None), None)
    if text is not None:
        others = ",".join(key for key, column in numbers.items() if column is not None)
        raise ValueError(
            f"column {text!r} is not numbers (such as {str(columns[text][0])!r}); name those that "
            f"are: {path}:{others or '...'}"
        )
    if not numbers:
        raise ValueError("there are no columns left")
    return np.stack([column for column in numbers.values() if column is not None], axis=1)


def _numbers(column: np.ndarray) -> np.ndarray | None:
    """A column as float64 (an empty field is NaN), None if it is text."""
    try:
        return np.array(
            [float("nan") if v is None or v == "" else float(v) for v in column], np.float64
        )
    except (TypeError, ValueError):
        return None


_READERS = {".npy": _npy, ".npz": _npz, ".zarr": _zarr, ".csv": _table, ".parquet": _table}
