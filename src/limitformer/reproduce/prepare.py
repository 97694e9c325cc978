"""The inputs of the reproductions in small files, for a machine without the other packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..data.cifar import cifar10
from ..data.dataset import Dataset
from .reviews import Reviews


def cifar(data: Any, out: Path, *, images: int = 6000, seed: int = 0) -> None:
    """Balanced images of CIFAR-10's training part as an npz for `lf.data.cifar10`.

    Args:
        data: a path for `lf.data.cifar10`.
        out: the npz, 18 MB for 6000 images.
        images: how many.
        seed: draws them.
    """
    found = cifar10(data)
    rows = Dataset.of_rows(found.name, found.x_train, found.y_train, class_names=found.class_names)
    rows = rows.take(images, key=seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        out,
        x_train=rows.x_train,
        y_train=rows.y_train.astype(np.uint8),
        class_names=np.array(found.class_names),
    )


def imdb(data: Any, vectors: Any, out: Path, *, tokens: int = 500, seed: int = 0) -> None:
    """3200 and 1600 reviews as word ids with the vectors of their words, one npz of about 9 MB.

    Args:
        data: a path for `lf.data.imdb`.
        vectors: a path for `lf.data.glove`.
        out: the npz.
        tokens: how many to keep of each review.
        seed: draws them.
    """
    Reviews.of(data, vectors, tokens=tokens, seed=seed).save(out)
