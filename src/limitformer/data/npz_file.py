"""Arrays in an npz file."""

from __future__ import annotations

import zipfile

import numpy as np

from .dataset import Dataset
from .files import PathLike, existing


def npz(
    path: PathLike, *, name: str | None = None, class_names: tuple[str, ...] | None = None
) -> Dataset:
    """A dataset from an npz with `x_train`, `y_train` and, if there are, `x_test`, `y_test`.

    Other arrays `train_...` and `test_...` with one entry per row become `train_extra` and
    `test_extra`; `class_names` in the file names the classes. Integer `y` without names gets the
    names "0", "1", ...

    Args:
        path: the file.
        name: what to call it; the file's name if None.
        class_names: the names of the labels, if the file has none.

    Returns:
        The dataset, with labels as int64 and everything else as stored.

    Raises:
        FileNotFoundError: no such file.
        ValueError: arrays missing, or the file holds pickled objects, which are never loaded.

    Example:
        >>> npz("/not/here.npz")
        Traceback (most recent call last):
        FileNotFoundError: /not/here.npz is not there; ...
    """
    where = existing(path, "lf.data.npz")
    try:
        with np.load(where, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(
            f"{where} cannot be read as arrays ({error}); write it with np.savez and without "
            "object arrays, which are pickles and never loaded"
        ) from None
    needed = [key for key in ("x_train", "y_train") if key not in arrays]
    if ("x_test" in arrays) != ("y_test" in arrays):
        needed.append("x_test with y_test")
    if needed:
        raise ValueError(
            f"{where} has {', '.join(arrays)}, but no {', '.join(needed)}; write it with "
            "np.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)"
        )
    stored = arrays.pop("class_names", None)
    if stored is not None:
        class_names = tuple(str(item) for item in stored)
    x, y = arrays.pop("x_train"), arrays.pop("y_train")
    x_test = arrays.pop("x_test", x[:0])
    y_test = arrays.pop("y_test", y[:0])
    if class_names is None:
        class_names = ()
        if np.issubdtype(y.dtype, np.integer) and y.ndim == 1 and y.size:
            class_names = tuple(str(i) for i in range(1 + int(np.max(np.append(y, y_test)))))
    if class_names:
        y, y_test = y.astype(np.int64), y_test.astype(np.int64)
    extra = {
        part: {k.removeprefix(f"{part}_"): v for k, v in arrays.items() if k.startswith(f"{part}_")}
        for part in ("train", "test")
    }
    left = [key for key in arrays if not key.startswith(("train_", "test_"))]
    notes = (f"not used from the file: {', '.join(left)}",) if left else ()
    return Dataset(
        where.stem if name is None else name,
        x,
        y,
        x_test,
        y_test,
        class_names,
        train_extra=extra["train"],
        test_extra=extra["test"],
        notes=notes,
    )
