"""Small sets that come with scikit-learn: nothing to get, nothing to download."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..extras import optional
from .dataset import Dataset


def _load(name: str, **options: Any) -> Any:
    return getattr(optional("sklearn.datasets", "sklearn"), name)(**options)


def digits() -> Dataset:
    """1797 handwritten digits of 8 x 8 pixels: images `(n, 8, 8, 1)`, values 0 to 16, float64.

    No test rows are published: `take` divides them.

    Example:
        >>> digits().take(500, 200, key=0)
        Dataset('digits': train (500, 8, 8, 1) float64, test (200, 8, 8, 1) float64, 10 classes)

    Reference:
        Alpaydin and Kaynak (1998), Optical recognition of handwritten digits, UCI.
    """
    bunch = _load("load_digits")
    names = tuple(str(name) for name in bunch.target_names)
    return Dataset.of_rows(
        "digits", bunch.images[..., None], bunch.target.astype(np.int64), class_names=names
    )


def diabetes() -> Dataset:
    """442 patients, 10 measurements, the progression of diabetes a year later; not scaled.

    No test rows are published: `take` divides them.

    Example:
        >>> diabetes()
        Dataset('diabetes': train (442, 10) float64, test (0, 10) float64, real targets)

    Reference:
        Efron, Hastie, Johnstone and Tibshirani (2004), Least angle regression.
    """
    bunch = _load("load_diabetes", scaled=False)
    return Dataset.of_rows(
        "diabetes",
        bunch.data.astype(np.float64),
        bunch.target.astype(np.float64),
        feature_names=tuple(bunch.feature_names),
    )


def breast_cancer() -> Dataset:
    """569 tumours, 30 measurements each, malignant or benign; not scaled.

    No test rows are published: `take` divides them.

    Example:
        >>> breast_cancer().class_names
        ('malignant', 'benign')

    Reference:
        Street, Wolberg and Mangasarian (1993), Nuclear feature extraction, UCI.
    """
    return _table("breast_cancer")


def wine() -> Dataset:
    """178 wines of three growers, 13 chemical measurements each; not scaled.

    No test rows are published: `take` divides them.

    Example:
        >>> wine()
        Dataset('wine': train (178, 13) float64, test (0, 13) float64, 3 classes)

    Reference:
        Aeberhard and Forina (1992), Wine, UCI.
    """
    return _table("wine")


def _table(name: str) -> Dataset:
    bunch = _load(f"load_{name}")
    return Dataset.of_rows(
        name,
        bunch.data.astype(np.float64),
        bunch.target.astype(np.int64),
        class_names=tuple(str(item) for item in bunch.target_names),
        feature_names=tuple(str(item) for item in bunch.feature_names),
    )
