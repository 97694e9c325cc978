"""Sequences of different lengths in one padded array."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .text_report import TextReport


@dataclasses.dataclass(frozen=True, eq=False)
class Sequences:
    """A padded array with its mask, which index arrays can index as if it were one array.

    This is what text becomes, and what the estimators take as `X`; scikit-learn's splitters and
    searches index it by rows.

    Args:
        values: `(n, tokens, features)`, or token ids `(n, tokens)`.
        mask: `(n, tokens)` bool, True = valid.
        report: what happened to the texts on the way here, if they were texts.

    Raises:
        TypeError: the mask is not bool.
        ValueError: shapes that do not fit, or rows without a valid token.

    Example:
        >>> x = Sequences.pad([np.ones((3, 2)), np.ones((1, 2))])
        >>> x.shape, x.lengths
        ((2, 3, 2), array([3, 1]))
        >>> x[np.array([1])].trimmed().shape
        (1, 1, 2)
    """

    values: np.ndarray
    mask: np.ndarray
    report: TextReport | None = None

    def __post_init__(self) -> None:
        if self.mask.dtype != bool:
            raise TypeError(
                f"the mask has dtype {self.mask.dtype}, expected bool with True = valid; for "
                "lengths use Sequences.of_lengths(values, lengths)"
            )
        if self.values.ndim not in (2, 3) or self.values.shape[:2] != self.mask.shape:
            raise ValueError(
                f"values of shape {self.values.shape} and a mask of shape {self.mask.shape} do not "
                "fit; expected (n, tokens, features) or (n, tokens), and (n, tokens)"
            )
        empty = np.flatnonzero(~self.mask.any(axis=1))
        if len(empty):
            rows = ", ".join(str(i) for i in empty[:5])
            raise ValueError(
                f"{len(empty)} rows have no valid token ({rows}); give them one, or drop them"
            )

    @classmethod
    def pad(cls, rows: Sequence[Any], report: TextReport | None = None) -> Sequences:
        """Rows of different lengths, padded at their ends with zeros.

        Args:
            rows: `n` arrays `(tokens_i, features)`, or of ids `(tokens_i,)`.
            report: see the class.

        Returns:
            The sequences.

        Raises:
            ValueError: no rows, or rows whose features differ.
        """
        arrays = [np.asarray(row) for row in rows]
        if not arrays:
            raise ValueError("there are no rows to pad")
        shapes = {array.shape[1:] for array in arrays}
        if len(shapes) > 1 or min(a.ndim for a in arrays) < 1:
            found = sorted({array.shape for array in arrays})[:5]
            raise ValueError(
                f"rows have shapes {found}; expected (tokens, features) with the same features, "
                "or (tokens,)"
            )
        lengths = np.array([len(array) for array in arrays])
        shape = (len(arrays), max(int(lengths.max()), 1), *shapes.pop())
        values = np.zeros(shape, np.result_type(*{array.dtype for array in arrays}))
        for i, array in enumerate(arrays):
            values[i, : len(array)] = array
        return cls(values, np.arange(shape[1]) < lengths[:, None], report)

    @classmethod
    def of_lengths(cls, values: np.ndarray, lengths: Any) -> Sequences:
        """A padded array whose row i has `lengths[i]` valid tokens at its start.

        Args:
            values: `(n, tokens, features)` or `(n, tokens)`.
            lengths: `(n,)` integers from 1 to tokens.

        Returns:
            The sequences.

        Raises:
            ValueError: lengths that do not fit.

        Example:
            >>> Sequences.of_lengths(np.ones((2, 3)), [3, 1]).mask.sum()
            np.int64(4)
        """
        lengths = np.asarray(lengths)
        values = np.asarray(values)
        tokens = values.shape[1] if values.ndim > 1 else 0
        fits = lengths.shape == values.shape[:1] and np.issubdtype(lengths.dtype, np.integer)
        if not fits or np.any(lengths < 1) or np.any(lengths > tokens):
            raise ValueError(
                f"lengths must be {len(values)} integers from 1 to {tokens}; they have shape "
                f"{lengths.shape} and dtype {lengths.dtype}"
                + (f", from {lengths.min()} to {lengths.max()}" if lengths.size else "")
            )
        return cls(values, np.arange(tokens) < lengths[:, None])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return self.values.shape

    @property
    def ndim(self) -> int:
        """The number of axes of the values."""
        return self.values.ndim

    @property
    def dtype(self) -> np.dtype:
        """The type of the values."""
        return self.values.dtype

    @property
    def lengths(self) -> np.ndarray:
        """The number of valid tokens of each row."""
        return self.mask.sum(axis=1)

    def trimmed(self) -> Sequences:
        """Without the columns that are padding in every row."""
        used = np.flatnonzero(self.mask.any(axis=0))
        tokens = int(used[-1]) + 1 if len(used) else 0
        return Sequences(self.values[:, :tokens], self.mask[:, :tokens], self.report)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        """Some of the rows, without a report; for one integer, the valid tokens of that row."""
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # scikit-learn indexes rows in this way
        if isinstance(rows, tuple) or rows is None or rows is Ellipsis:
            raise IndexError("Sequences are indexed by rows; index .values and .mask for the rest")
        if isinstance(rows, int | np.integer):
            return self.values[rows][self.mask[rows]]
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            if rows.ndim != 1:
                raise IndexError(f"expected rows as one axis, not an index of shape {rows.shape}")
            if rows.size == 0:
                rows = rows.astype(int)
        return Sequences(self.values[rows], self.mask[rows])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(
            "Sequences are not one array: pass x.values, and x.mask as x_mask (a plain array would "
            "lose which tokens are padding)"
        )

    def __repr__(self) -> str:
        lengths = self.lengths
        span = f"{lengths.min()} to {lengths.max()}" if len(lengths) else "no"
        return f"Sequences(shape={self.shape}, {self.dtype}, {span} valid tokens)"
