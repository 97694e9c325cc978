"""What an estimator accepts as X: tables, sequences, images, token ids; checked and scaled."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import validate_data

from ..data.sequences import Sequences
from ..layers.base import leaves


@dataclasses.dataclass(frozen=True)
class Reading:
    """How X is turned into a network's input, fitted on the training inputs.

    Attributes:
        kind: "table" `(n, columns)`, "columns" `(n, columns, 1)`, "sequence" `(n, tokens,
            features)`, "image" `(n, height, width, channels)` or "ids" `(n, tokens)`.
        shape: what new inputs must have: the features of a token, or height, width and channels;
            None for token ids. Columns of tables are scikit-learn's to compare.
        scaler: mean and standard deviation of every column (tables), feature (sequences) or
            channel (images); None if inputs are taken as they are. Constant ones are only centred.
    """

    kind: str
    shape: tuple[int, ...] | None
    scaler: StandardScaler | None

    @classmethod
    def of(cls, values: np.ndarray, mask: np.ndarray | None, kind: str, scale: bool) -> Reading:
        """The reading that training inputs ask for."""
        if kind == "ids":
            return cls(kind, None, None)
        shape = values.shape[1:] if kind == "image" else values.shape[-1:]
        found = _by_column(values, kind) if mask is None else values[mask]
        scaler = StandardScaler().fit(found.reshape(-1, found.shape[-1])) if scale else None
        return cls(kind, shape, scaler)

    def scaled(self, values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Inputs standardised; padding is zero."""
        if self.scaler is None:
            return values
        if mask is not None:  # whatever stands in the padding is not looked at
            values = np.where(mask[..., None], values, np.zeros((), values.dtype))
        by_column = _by_column(values, self.kind)
        result = self.scaler.transform(by_column.reshape(-1, by_column.shape[-1]))
        result = np.asarray(result).reshape(values.shape)
        return result if mask is None else np.where(mask[..., None], result, 0.0)

    def check(self, values: np.ndarray, kind: str, name: str) -> None:
        """Raise if new inputs do not look like the training inputs."""
        if kind != self.kind:
            raise ValueError(
                f"X of shape {values.shape} is read as {kind}, but {name} was fitted on "
                f"{self.kind}; give inputs of the same kind"
            )
        if self.shape is not None and values.shape[values.ndim - len(self.shape) :] != self.shape:
            wanted = {"sequence": "(n, tokens, {})", "image": "(n, {}, {}, {})"}.get(
                kind, "(n, {})"
            )
            raise ValueError(
                f"X has shape {values.shape}, but {name} was fitted on inputs of shape "
                f"{wanted.format(*self.shape)}; give inputs of the same shape"
            )


def _by_column(values: np.ndarray, kind: str) -> np.ndarray:
    """The axis that is scaled last: a table's columns also where they are tokens."""
    return values[..., 0] if kind == "columns" else values


def read(
    estimator: Any, X: Any, reshape: Any, network: Any, *, reset: bool
) -> tuple[np.ndarray, np.ndarray | None, str]:
    """Checked inputs as an array with its mask, and their kind.

    Args:
        estimator: for scikit-learn's checks of tables, which set and compare its features.
        X: a table, `(n, tokens, features)`, images, `Sequences`, or token ids.
        reshape: of tables: None, "columns", (tokens, features) or (height, width, channels).
        network: the network given, None for the default; one with `lf.Embed` takes token ids.
        reset: True when fitting.

    Raises:
        TypeError: not numbers, sparse matrices, a mask without its values.
        ValueError: NaN, no rows, shapes that do not fit; the message says what to pass.
    """
    name = type(estimator).__name__
    least = 2 if reset else 1
    embeds = network is not None and any(
        type(leaf).__name__ == "Embed" for _, leaf in leaves(network)
    )
    if isinstance(X, Sequences):
        values, mask = X.values, X.mask
        kind = "ids" if values.ndim == 2 else "sequence"
    else:
        _refuse_text(X, name)
        X = _nested(X)
        if getattr(X, "ndim", 2) in (3, 4):
            values, mask = np.asarray(X), None
            kind = "sequence" if values.ndim == 3 else "image"
        else:
            return _table(estimator, X, reshape, embeds, least, reset)
    if reshape is not None:
        raise ValueError(
            f"reshape={reshape!r} is for tables (n, columns), and X has shape {values.shape}; "
            "leave reshape=None"
        )
    _check_numbers(values, mask, kind, name, least)
    if kind == "ids" and not (embeds or network is None):
        raise ValueError(
            f"X holds token ids of shape {values.shape}, but the network does not start with "
            "lf.Embed(); add it, or turn texts into vectors with lf.data.Embedder"
        )
    if reset:
        estimator.n_features_in_ = values.shape[-1]
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    if mask is not None and mask.all():
        mask = None
    if kind != "ids":  # half precision and bytes would lose digits when they are scaled
        values = values.astype(np.result_type(values.dtype, np.float32), copy=False)
    return values, mask, kind


def _table(estimator, X, reshape, embeds: bool, least: int, reset: bool):
    dtype = None if embeds else [np.float64, np.float32]
    X = np.asarray(validate_data(estimator, X, reset=reset, dtype=dtype, ensure_min_samples=least))
    if embeds:
        if reshape is not None:
            raise ValueError(f"reshape={reshape!r} does not go with a network of token ids")
        return X, None, "ids"
    if reshape is None:
        return X, None, "table"
    if isinstance(reshape, str):
        if reshape != "columns":
            raise ValueError(
                f'reshape={reshape!r}; choose None, "columns", (tokens, features) or '
                "(height, width, channels)"
            )
        return X[..., None], None, "columns"
    shape = tuple(reshape)
    if len(shape) not in (2, 3) or math.prod(shape) != X.shape[1]:
        raise ValueError(
            f"reshape={reshape!r} does not fit {X.shape[1]} columns; give (tokens, features) or "
            f"(height, width, channels) whose product is {X.shape[1]}"
        )
    return X.reshape(len(X), *shape), None, "sequence" if len(shape) == 2 else "image"


def _check_numbers(values, mask, kind: str, name: str, least: int) -> None:
    numbers = np.issubdtype(values.dtype, np.integer if kind == "ids" else np.number)
    if not (numbers or (values.dtype == bool and kind != "ids")) or np.iscomplexobj(values):
        wanted = "integers (token ids)" if kind == "ids" else "real numbers"
        raise TypeError(f"X has dtype {values.dtype}; {name} takes {wanted}")
    if len(values) < least:
        raise ValueError(
            f"X has {len(values)} sample(s), shape {values.shape}; a minimum of {least} is required"
        )
    if 0 in values.shape:
        raise ValueError(f"X has shape {values.shape}: there are no tokens or features")
    finite = np.isfinite(values).reshape(len(values), -1)
    if mask is not None and values.ndim == 3:
        finite = (np.isfinite(values).all(axis=-1)) | ~mask
    bad = np.flatnonzero(~finite.all(axis=1))
    if bad.size:
        raise ValueError(
            f"X contains NaN or infinity in rows {bad[:8].tolist()}; {name} does not accept "
            "missing values: impute them or drop the rows, and mask tokens that are not there "
            "with lf.data.Sequences(values, mask)"
        )


def _refuse_text(X, name: str) -> None:
    """Texts have a step of their own; scikit-learn would ask to reshape them."""
    first = X[0] if isinstance(X, list | tuple) and len(X) else None
    if isinstance(X, np.ndarray) and X.ndim == 1 and len(X):
        first = X[0]
    if isinstance(first, str):
        raise ValueError(
            f"X is a list of texts; {name} takes arrays. Put a step before it: "
            'Pipeline([("embed", lf.data.Embedder(vectors)), ("gp", ' + name + "())])"
        )


def _nested(X):
    """Lists of arrays with tokens as one array; other lists are scikit-learn's to check."""
    if not isinstance(X, list | tuple) or not len(X) or np.ndim(X[0]) < 2:
        return X
    shapes = {np.shape(row) for row in X}
    if len(shapes) > 1:
        raise ValueError(
            f"X is a list of arrays of different shapes, {sorted(shapes)[:4]}; pad sequences of "
            "different lengths with lf.data.Sequences.pad(X)"
        )
    return np.asarray(X)
