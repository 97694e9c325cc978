"""Columns of CSV and parquet files."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from ..extras import optional

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")


def read_columns(path: Path, delimiter: str = ",", only: tuple[str, ...] | None = None) -> dict:
    """The columns of a file by name, as arrays of one entry per row.

    Args:
        path: a `.parquet` file, or text with a header line.
        delimiter: between the fields of a text file.
        only: read these columns.

    Returns:
        Name -> array. Text files give object arrays of `str`; parquet files give the stored types,
        with objects for strings and for columns that have missing values.

    Raises:
        ValueError: no rows, a header with repeats, a row of another length, an unknown column.
        ModuleNotFoundError: a parquet file, and pyarrow is not installed.
    """
    columns = _parquet(path) if path.suffix in (".parquet", ".pq") else _csv(path, delimiter)
    absent = [name for name in only or () if name not in columns]
    if absent:
        raise ValueError(
            f"{path} has no column {', '.join(map(repr, absent))}; its columns are "
            f"{', '.join(map(repr, columns))}"
        )
    if not len(next(iter(columns.values()))):
        raise ValueError(f"{path} has a header and no rows")
    return columns if only is None else {name: columns[name] for name in only}


def _csv(path: Path, delimiter: str) -> dict:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) < len(header) or not all(header):
                raise ValueError(
                    f"the header of {path} is {header}; expected a different name for every column"
                )
            if not header:
                raise ValueError(f"{path} is empty; expected a header line with column names")
            rows = []
            for row in reader:
                if len(row) == len(header):
                    rows.append(row)
                elif row:
                    raise ValueError(
                        f"line {reader.line_num} of {path} has {len(row)} fields, the header "
                        f"{len(header)}; delimiter={delimiter!r} was used"
                    )
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}, near line {reader.line_num}: {error}") from None
    columns = {}
    for i, name in enumerate(header):
        columns[name] = np.empty(len(rows), object)
        columns[name][:] = [row[i] for row in rows]
    return columns


def _parquet(path: Path) -> dict:
    parquet = optional("pyarrow.parquet", "data")
    try:
        read = parquet.read_table(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as parquet: {error}") from None
    columns = {}
    for name in read.column_names:
        column = read.column(name)
        if column.null_count or column.type.num_fields:
            columns[name] = np.empty(len(column), object)
            columns[name][:] = column.to_pylist()
        else:
            columns[name] = column.to_numpy()
    return columns
