"""Texts with labels in one parquet or CSV file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .columns import read_columns
from .dataset import Dataset, texts
from .files import PathLike, existing

# A numbered class without a name, and no sign that most of the numbers are unused.
_MOST_CLASSES = 10_000


def sentences(
    path: PathLike,
    *,
    dataset: str | None = None,
    text: str = "text",
    label: str = "label",
    split: str = "split",
    train: str | Sequence[str] = "train",
    test: str | Sequence[str] = "test",
    class_names: Sequence[str] | None = None,
    name: str | None = None,
) -> Dataset:
    """Texts, labels and splits from the columns of one file.

    Args:
        path: a parquet file (needs `pip install "limitformer[data]"`), or CSV with a header.
        dataset: which rows to read of a file with several sets, by its column `dataset`.
        text: the column of texts.
        label: the column of labels: integers 0, 1, ..., or names.
        split: the column that says which part a row belongs to; a file without it, or a set with
            one part only, is all training rows.
        train: the part, or parts, to train on.
        test: the part, or parts, to test on.
        class_names: the names of integer labels.
        name: what to call it.

    Returns:
        Texts as an object array of `str` and labels `(n,)` int64; other columns are in
        `train_extra` and `test_extra`, and rows of other parts are counted in `notes`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a column, a set or a part that is not there, or labels that are not classes.

    Example:
        >>> sentences("/not/here.parquet")
        Traceback (most recent call last):
        FileNotFoundError: /not/here.parquet is not there; ...
    """
    where = existing(path, "lf.data.sentences")
    columns = read_columns(where)
    for needed in (text, label):
        if needed not in columns:
            raise ValueError(
                f"{where} has no column {needed!r}; its columns are "
                f"{', '.join(map(repr, columns))}: name them with text= and label="
            )
    if "dataset" in columns:
        sets = sorted({str(value) for value in columns["dataset"]})
        if dataset not in sets:
            raise ValueError(f"{where} has the sets {', '.join(sets)}; pass one as dataset=")
        rows = columns.pop("dataset") == dataset
        columns = {key: column[rows] for key, column in columns.items()}
    elif dataset is not None:
        raise ValueError(f"{where} has no column 'dataset', but dataset={dataset!r} was given")
    name = (dataset or where.stem) if name is None else name
    x = texts(columns.pop(text))
    y, names = _labels(columns.pop(label), class_names, str(where))
    parts = columns.pop(split, np.full(len(x), "all"))
    found = sorted({str(part) for part in parts})
    if len(found) == 1 and found[0] not in _parts(test):
        return Dataset.of_rows(name, x, y, class_names=names, train_extra=columns)
    absent = [part for part in (*_parts(train), *_parts(test)) if part not in found]
    if absent:
        raise ValueError(
            f"{name} has the parts {', '.join(found)}, not {', '.join(absent)}; choose with "
            "train= and test="
        )
    is_train, is_test = np.isin(parts, _parts(train)), np.isin(parts, _parts(test))
    if np.any(is_train & is_test):
        raise ValueError(f"train={train!r} and test={test!r} share rows")
    rest = sorted(set(found) - {*_parts(train), *_parts(test)})
    left = len(x) - int(is_train.sum() + is_test.sum())
    return Dataset(
        name,
        x[is_train],
        y[is_train],
        x[is_test],
        y[is_test],
        names,
        train_extra={key: column[is_train] for key, column in columns.items()},
        test_extra={key: column[is_test] for key, column in columns.items()},
        notes=(f"{left} rows of {', '.join(rest)} were left out",) if rest else (),
    )


def _parts(parts: str | Sequence[str]) -> list[str]:
    return [parts] if isinstance(parts, str) else list(parts)


def _labels(
    column: np.ndarray, class_names: Sequence[str] | None, where: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    try:
        numbers = np.array([int(value) for value in column])
        exact = all(float(value) == number for value, number in zip(column, numbers, strict=True))
    except (TypeError, ValueError):
        exact = False
    if not exact:
        if any(value is None or value != value or value == "" for value in column):
            raise ValueError(f"{where} has rows without a label; leave them out of the file")
        if np.issubdtype(column.dtype, np.number):
            raise ValueError(f"the labels of {where} are not whole numbers: {column[:5]}")
        values, codes = np.unique([str(value) for value in column], return_inverse=True)
        if class_names is None:
            return codes.astype(np.int64), tuple(str(value) for value in values)
        unnamed = sorted(set(values.tolist()) - set(class_names))
        if unnamed:
            raise ValueError(
                f"{where} has the labels {', '.join(unnamed[:5])}, which are not in class_names="
                f"{tuple(class_names)}"
            )
        order = np.array([list(class_names).index(value) for value in values])
        return order[codes].astype(np.int64), tuple(class_names)
    count = int(numbers.max()) + 1 if class_names is None else len(class_names)
    if numbers.min() < 0 or numbers.max() >= count or count > _MOST_CLASSES:
        raise ValueError(
            f"the labels of {where} go from {numbers.min()} to {numbers.max()}; expected 0 to "
            f"{min(count, _MOST_CLASSES) - 1}. -1 often stands for a label that was held back: "
            "leave those rows out"
        )
    names = map(str, range(count)) if class_names is None else class_names
    return numbers.astype(np.int64), tuple(names)
