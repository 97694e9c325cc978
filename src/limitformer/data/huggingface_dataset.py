"""Datasets of Hugging Face's library `datasets`, which is not imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .dataset import Dataset, texts


def huggingface(
    dataset: Any,
    *,
    text: str | None = None,
    image: str | None = None,
    columns: Sequence[str] | None = None,
    label: str = "label",
    train: str = "train",
    test: str = "test",
    name: str = "a Hugging Face dataset",
) -> Dataset:
    """Arrays from a `datasets.Dataset`, or from a `datasets.DatasetDict` with its splits.

    Args:
        dataset: anything with `column_names` whose `[column]` gives the values of a column, or a
            mapping from split names to such.
        text: the column of texts; give exactly one of `text`, `image`, `columns`.
        image: the column of images (PIL images or arrays), all of one size.
        columns: columns of numbers, one feature each.
        label: the column of labels. Integers are classes, named by the dataset's own
            `features[label].names`; names are classes; other numbers are real targets.
        train: the split to train on, of a mapping.
        test: the split to test on, of a mapping that has it.
        name: what to call it.

    Returns:
        Texts as an object array of `str`, images `(n, height, width, channels)` as stored, or
        features `(n, features)` float64; labels int64 or targets float64.

    Raises:
        TypeError: not such an object.
        ValueError: not one kind of input, a column that is not there, images of several sizes,
            labels that were held back (-1).

    Example:
        >>> class Rows(dict):
        ...     column_names = property(list)
        >>> huggingface(Rows(text=["good", "bad"], label=[1, 0]), text="text")
        Dataset('a Hugging Face dataset': train (2,) text, test (0,) text, 2 classes)
    """
    kinds = {"text": text, "image": image, "columns": columns}
    given = [kind for kind, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise ValueError(
            f"give exactly one of text=, image=, columns=; given: {', '.join(given) or 'none'}"
        )
    parts = _splits(dataset, train, test)
    wanted = [*(columns or [text or image]), label]
    for part in parts:
        absent = [column for column in wanted if column not in part.column_names]
        if absent:
            raise ValueError(
                f"{name} has no column {', '.join(map(repr, absent))}; its columns are "
                f"{', '.join(map(repr, part.column_names))}"
            )
    inputs = [_inputs(part, text, image, columns) for part in parts]
    raw = [np.asarray(list(part[label])) for part in parts]
    targets, class_names = _targets(raw, _names(parts[0], label), name)
    if len(parts) == 1:
        return Dataset.of_rows(name, inputs[0], targets[0], class_names=class_names)
    if inputs[0].shape[1:] != inputs[1].shape[1:]:
        raise ValueError(
            f"{name}: {train} has inputs of shape {inputs[0].shape[1:]}, {test} of "
            f"{inputs[1].shape[1:]}"
        )
    return Dataset(name, inputs[0], targets[0], inputs[1], targets[1], class_names)


def _splits(dataset: Any, train: str, test: str) -> list[Any]:
    # A DatasetDict has column_names too, a mapping by split.
    if isinstance(dataset, Mapping) and all(hasattr(p, "column_names") for p in dataset.values()):
        if train not in dataset:
            raise ValueError(f"there is no split {train!r}; there are {', '.join(dataset)}")
        return [dataset[part] for part in (train, test) if part in dataset]
    if not hasattr(dataset, "column_names") or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"expected a datasets.Dataset or datasets.DatasetDict, not {type(dataset).__name__}; "
            "lf.data.table, lf.data.sentences and lf.data.npz read files"
        )
    return [dataset]


def _inputs(part: Any, text: Any, image: Any, columns: Any) -> np.ndarray:
    if text is not None:
        return texts(part[text])
    if columns is not None:
        rows = [np.asarray(list(part[column])) for column in columns]
        for column, values in zip(columns, rows, strict=True):
            if values.ndim != 1 or values.dtype.kind not in "biuf":
                raise ValueError(f"column {column!r} is not numbers, one per row")
        return np.stack([values.astype(np.float64) for values in rows], axis=1)
    images = [np.asarray(one) for one in part[image]]
    shapes = {one.shape for one in images}
    if len(shapes) != 1 or len(next(iter(shapes))) not in (2, 3):
        raise ValueError(
            f"column {image!r} has images of shapes {sorted(shapes)[:5]}; expected one shape, "
            "(height, width) or (height, width, channels): convert them with dataset.map"
        )
    stacked = np.stack(images)
    return stacked[..., None] if stacked.ndim == 3 else stacked


def _names(part: Any, label: str) -> tuple[str, ...] | None:
    features = getattr(part, "features", None)
    feature = features.get(label) if isinstance(features, Mapping) else None
    names = getattr(feature, "names", None)
    return None if names is None else tuple(names)


def _targets(
    raw: list[np.ndarray], names: tuple[str, ...] | None, name: str
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    both = np.concatenate(raw)
    if both.dtype.kind == "f":
        return [part.astype(np.float64) for part in raw], ()
    if both.dtype.kind in "iub":
        if both.min() < 0:
            raise ValueError(
                f"{name} has labels down to {both.min()}; -1 stands for labels that were held "
                "back: take a split that has them, or filter the rows"
            )
        names = tuple(map(str, range(int(both.max()) + 1))) if names is None else names
        return [part.astype(np.int64) for part in raw], names
    if both.dtype.kind != "U":
        raise ValueError(f"{name} has labels of type {both.dtype}; expected numbers or names")
    values, codes = np.unique(both, return_inverse=True)
    cut = np.cumsum([len(part) for part in raw])[:-1]
    return np.split(codes.astype(np.int64), cut), tuple(str(value) for value in values)
