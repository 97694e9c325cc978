"""A dataset in memory: training and test rows, their labels, and what was done to get them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test rows with their labels.

    Args:
        name: what it is.
        x_train: inputs, the first axis are the rows; texts are an object array of `str`.
        y_train: integer labels `(n,)`, or real targets `(n,)` or `(n, outputs)`.
        x_test: inputs of the published test rows; no rows where none are published.
        y_test: their labels.
        class_names: the names of the labels 0, 1, ...; empty for real targets.
        feature_names: the names of the columns of a table; empty otherwise.
        train_extra: other values per training row (`rating`, `index`).
        test_extra: other values per test row.
        notes: what was left out or changed on the way here.

    Raises:
        ValueError: numbers of rows that differ, or labels without a class name.

    Example:
        >>> Dataset.of_rows("two points", np.eye(2), np.array([0, 1]), class_names=("no", "yes"))
        Dataset('two points': train (2, 2) float64, test (0, 2) float64, 2 classes)
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    train_extra: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    test_extra: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            rows = {f"x_{part}": len(x), f"y_{part}": len(y)}
            rows |= {key: len(value) for key, value in getattr(self, f"{part}_extra").items()}
            if len(set(rows.values())) > 1:
                counts = ", ".join(f"{key} has {count}" for key, count in rows.items())
                raise ValueError(f"{self.name}: the numbers of rows differ: {counts}")
            if self.class_names and len(y) and not _labels(y, len(self.class_names)):
                raise ValueError(
                    f"{self.name}: y_{part} has to hold integers from 0 to "
                    f"{len(self.class_names) - 1}, one per class name; it has dtype {y.dtype} "
                    f"and values from {np.min(y)} to {np.max(y)}"
                )

    @classmethod
    def of_rows(cls, name: str, x: np.ndarray, y: np.ndarray, **fields: Any) -> Dataset:
        """A dataset without published test rows."""
        extra = fields.get("train_extra", {})
        empty = {key: value[:0] for key, value in extra.items()}
        return cls(name, x, y, x[:0], y[:0], test_extra=empty, **fields)

    def __repr__(self) -> str:
        parts = [
            f"{part} {x.shape} {'text' if x.dtype == object else x.dtype}"
            for part, x in (("train", self.x_train), ("test", self.x_test))
        ]
        kind = f"{len(self.class_names)} classes" if self.class_names else "real targets"
        return f"Dataset({self.name!r}: {', '.join(parts)}, {kind})"

    def take(
        self, n_train: int, n_test: int = 0, *, key: Any, balanced: bool | None = None
    ) -> Dataset:
        """Draw rows without replacement.

        The same key gives nested training sets: the first 100 rows of `take(200, 50, key=0)` are
        `take(100, 50, key=0)`. Where no test rows are published, both parts come from the
        training rows, and no row is in both.

        Args:
            n_train: how many training rows.
            n_test: how many test rows.
            key: a JAX key, or an integer seed.
            balanced: equally many rows of each class, up to one where the number is not a
                multiple of the classes. None: wherever there are classes.

        Returns:
            The smaller dataset, rows in the order drawn.

        Raises:
            ValueError: more rows asked for than there are (of a class), or balanced without
                classes.

        Example:
            >>> rows = Dataset.of_rows(
            ...     "ten", np.arange(10.0)[:, None], np.arange(10) % 2, class_names=("even", "odd")
            ... )
            >>> small = rows.take(4, 2, key=0)
            >>> np.bincount(small.y_train), np.bincount(small.y_test)
            (array([2, 2]), array([1, 1]))
        """
        if min(n_train, n_test) < 0:
            raise ValueError(f"n_train={n_train} and n_test={n_test} must not be negative")
        if balanced is None:
            balanced = bool(self.class_names)
        if balanced and not self.class_names:
            raise ValueError(f"{self.name} has no classes to balance; pass balanced=False")
        for_train, for_test = _generators(key)
        if len(self.x_test):
            x, y, extra = self.x_test, self.y_test, self.test_extra
            test = self._draw(n_test, y, for_test, balanced, "test")
            train = self._draw(n_train, self.y_train, for_train, balanced, "training")
        else:
            x, y, extra = self.x_train, self.y_train, self.train_extra
            test = self._draw(n_test, y, for_test, balanced, "training")
            rest = np.setdiff1d(np.arange(len(y)), test)
            part = "training" if n_test == 0 else f"training (beside {n_test} test)"
            train = rest[self._draw(n_train, y[rest], for_train, balanced, part)]
        return dataclasses.replace(
            self,
            x_train=self.x_train[train],
            y_train=self.y_train[train],
            x_test=x[test],
            y_test=y[test],
            train_extra={name: value[train] for name, value in self.train_extra.items()},
            test_extra={name: value[test] for name, value in extra.items()},
        )

    def _draw(
        self, n: int, y: np.ndarray, rng: np.random.Generator, balanced: bool, part: str
    ) -> np.ndarray:
        if n > len(y):
            raise ValueError(f"{self.name} has {len(y)} {part} rows, {n} were asked for")
        order = rng.permutation(len(y))
        if not balanced or n == 0:
            return order[:n]
        # The k-th row of each class belongs to round k; whole rounds are balanced.
        labels = y[order]
        rounds = np.empty(len(y), int)
        for label in range(len(self.class_names)):
            rounds[labels == label] = np.arange(np.sum(labels == label))
        counts = np.bincount(y, minlength=len(self.class_names))
        least = int(np.argmin(counts))
        full, rest = divmod(n, len(self.class_names))
        if counts[least] < full or np.sum(counts > full) < rest:
            raise ValueError(
                f"{self.name} has {counts[least]} {part} rows of class "
                f"{self.class_names[least]!r}, and {n} balanced rows need {full + (rest > 0)} of "
                "each class; ask for fewer, or pass balanced=False"
            )
        return order[np.argsort(rounds, kind="stable")][:n]


def _labels(y: np.ndarray, classes: int) -> bool:
    return bool(np.issubdtype(y.dtype, np.integer) and y.min() >= 0 and y.max() < classes)


def _generators(key: Any) -> tuple[np.random.Generator, np.random.Generator]:
    """One generator for the training rows, one for the test rows."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        seed = [int(key)]
        if seed[0] < 0:
            raise ValueError(f"key={key} is negative; take a seed from 0 upwards")
    elif isinstance(key, jax.Array):
        typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        data = jax.random.key_data(key) if typed else key
        seed = [int(word) for word in np.asarray(data).ravel()]
    else:
        raise TypeError(f"key is a JAX key or an integer seed, not {type(key).__name__}")
    train, test = np.random.SeedSequence(seed).spawn(2)
    return np.random.default_rng(train), np.random.default_rng(test)


def texts(rows: Any) -> np.ndarray:
    """Texts as an object array of `str`, which index arrays can index.

    Args:
        rows: an iterable of `str`.

    Returns:
        An object array `(n,)`.

    Raises:
        TypeError: one of the rows is not a `str`.
    """
    if isinstance(rows, str):
        raise TypeError(
            f"expected a list of texts, not the single text {rows[:40]!r}; put it in []"
        )
    rows = list(rows)
    for i, row in enumerate(rows):
        if not isinstance(row, str):
            raise TypeError(f"text {i} is {row!r}, a {type(row).__name__}; expected a str")
    out = np.empty(len(rows), object)
    out[:] = rows
    return out
