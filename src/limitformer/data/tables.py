"""Tables: numeric and categorical columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from .columns import MISSING, read_columns
from .dataset import Dataset
from .files import PathLike, existing

_MOST_CATEGORIES = 100


def table(
    path: PathLike,
    *,
    target: str | Sequence[str],
    task: Literal["classification", "regression"] | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    missing: Literal["error", "drop"] = "error",
    delimiter: str = ",",
) -> Dataset:
    """Rows of a CSV file with a header line, or of a parquet file.

    A column of numbers is one feature. Any other column is categorical: one feature 0 or 1 for
    each of its values, named `column=value`. Nothing is scaled.

    Args:
        path: the file; parquet needs `pip install "limitformer[data]"`.
        target: the column to predict, or several columns of numbers.
        task: whether the target are classes or numbers; by default numbers are numbers, and text
            is classes.
        categorical: columns of numbers that are categories.
        drop: columns to leave out.
        missing: what to do with rows that have an empty field (or ?, NA, NaN, null): an error, or
            drop them and say so in `notes`.
        delimiter: between the fields of a text file.

    Returns:
        Features `(n, features)` float64 with `feature_names`; labels `(n,)` int64 with
        `class_names`, or targets float64 `(n,)`, or `(n, outputs)` for several. All rows are
        training rows: `take` divides them.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a column that is not there, missing or infinite values, a text column with
            more than 100 different values, or no features.

    Example:
        >>> table("/not/here.csv", target="price")
        Traceback (most recent call last):
        FileNotFoundError: /not/here.csv is not there; ...
    """
    where = existing(path, "lf.data.table")
    targets = [target] if isinstance(target, str) else list(target)
    columns = read_columns(where, delimiter)
    named = (*targets, *categorical, *drop)
    if not targets or any(name not in columns for name in named):
        absent = ", ".join(repr(name) for name in named if name not in columns)
        raise ValueError(
            f"{where} has no column {absent or 'named by target='}; its columns are "
            f"{', '.join(map(repr, columns))}"
        )
    columns = {name: column for name, column in columns.items() if name not in drop}
    if any(name not in columns for name in targets):
        raise ValueError(f"target={target!r} is also in drop={list(drop)}")
    notes = [f"columns left out: {', '.join(drop)}"] if drop else []

    gaps = {name: _gaps(column) for name, column in columns.items()}
    bad = np.any(list(gaps.values()), axis=0)
    if bad.any() and missing == "error":
        worst = {name: int(gap.sum()) for name, gap in gaps.items() if gap.any()}
        raise ValueError(
            f"{where}: {bad.sum()} of {len(bad)} rows have missing values "
            f"({', '.join(f'{name}: {count}' for name, count in worst.items())}); fill them, "
            'leave columns out with drop=, or pass missing="drop" to leave out the rows'
        )
    if bad.any():
        notes.append(f"{bad.sum()} of {len(bad)} rows with missing values were dropped")
        columns = {name: column[~bad] for name, column in columns.items()}
        if bad.all():
            raise ValueError(f"{where}: every row has missing values")

    features, names = [], []
    for name, column in columns.items():
        if name in targets:
            continue
        numbers = None if name in categorical else _numbers(column, name)
        if numbers is not None:
            features.append(numbers)
            names.append(name)
            continue
        values, codes = _categories(column)
        if len(values) > _MOST_CATEGORIES:
            raise ValueError(
                f"column {name!r} of {where} is text with {len(values)} different values (such as "
                f"{values[0]!r}); leave it out with drop=[{name!r}], or read texts with "
                "lf.data.sentences"
            )
        features += [(codes == i).astype(np.float64) for i in range(len(values))]
        names += [f"{name}={value}" for value in values]
    if not features:
        raise ValueError(f"{where} has no columns besides the target and those left out")
    y, class_names = _target({name: columns[name] for name in targets}, task)
    return Dataset.of_rows(
        where.stem,
        np.stack(features, axis=1),
        y,
        class_names=class_names,
        feature_names=tuple(names),
        notes=tuple(notes),
    )


def _gaps(column: np.ndarray) -> np.ndarray:
    if column.dtype == object:
        empty = [
            v is None or v != v or (isinstance(v, str) and v.strip() in MISSING) for v in column
        ]
        return np.array(empty)
    return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), bool)


def _numbers(column: np.ndarray, name: str) -> np.ndarray | None:
    """The column as float64, or None if it is not numbers."""
    try:
        numbers = np.array([float(value) for value in column])
    except (TypeError, ValueError):
        return None
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(
            f"column {name!r} has {column[row]!r} in row {row}; expected finite values"
        )
    return numbers


def _categories(column: np.ndarray) -> tuple[list[str], np.ndarray]:
    numbers = _numbers(column, "")
    if numbers is not None:  # 9 before 10, and 1 and 1.0 are one category
        values, codes = np.unique(numbers, return_inverse=True)
        return [f"{value:g}" for value in values], codes
    values, codes = np.unique([str(value).strip() for value in column], return_inverse=True)
    return [str(value) for value in values], codes


def _target(columns: dict, task: str | None) -> tuple[np.ndarray, tuple[str, ...]]:
    numbers = {name: _numbers(column, name) for name, column in columns.items()}
    text = [name for name, values in numbers.items() if values is None]
    if task == "regression" and text:
        raise ValueError(f'target {text[0]!r} is not numbers; pass task="classification"')
    if task == "classification" or (task is None and text):
        if len(columns) > 1:
            raise ValueError(f"expected one target column for classes, not {list(columns)}")
        values, codes = _categories(next(iter(columns.values())))
        return codes.astype(np.int64), tuple(values)
    stacked = np.stack([values for values in numbers.values() if values is not None], axis=1)
    return (stacked[:, 0] if len(columns) == 1 else stacked), ()
