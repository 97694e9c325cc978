"""The course of a reproduction: training kernels, fits, then validation points band by band."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .fit import Fit, fit
from .tables import Row


@dataclasses.dataclass(frozen=True)
class Column:
    """A readout of the shared trunk: which network it belongs to, and what the paper has for it."""

    network: str
    depth: int | None = None
    published: tuple[tuple[str, float], ...] = ()  # (kind, accuracy)
    published_n: int = 0


Kernels = Callable[[Any], dict[str, np.ndarray]]
"""A slice of validation points (None: the training points) -> kernels `(m, n, readouts)`."""


def run(
    kernels: Kernels,
    columns: Sequence[Column],
    targets: np.ndarray,
    labels: np.ndarray,
    band: int,
) -> Iterator[list[tuple[Column, str, Fit, np.ndarray, int]]]:
    """Yield what is known after the training kernels, and after every band of validation points.

    Args:
        kernels: see `Kernels`.
        columns: the readouts, in order.
        targets: `(n, outputs)` of the training points.
        labels: `(m,)` of the validation points.
        band: validation points at a time.

    Yields:
        For every readout and kind of kernel: the column, the kind, the fit, how many labels every
        ridge got right, and of how many.
    """
    fits = [
        (column, kind, fit(K[..., i], targets))
        for kind, K in kernels(None).items()
        for i, column in enumerate(columns)
    ]
    right = [np.zeros(len(f.ridges), int) for _, _, f in fits]
    yield [(*entry, count, 0) for entry, count in zip(fits, right, strict=True)]
    for start in range(0, len(labels), band):
        part = slice(start, min(start + band, len(labels)))
        K = kernels(part)
        places = [(kind, i) for kind in K for i in range(len(columns))]
        for (kind, i), (_, _, f), count in zip(places, fits, right, strict=True):
            count += f.correct(K[kind][..., i], labels[part])
        done = part.stop
        yield [(*entry, count, done) for entry, count in zip(fits, right, strict=True)]


def row_of(column: Column, kind: str, found: Fit, right: np.ndarray, n: int) -> Row:
    """A row of the table."""
    accuracy = right / n if n else np.full(len(found.ridges), np.nan)
    best = int(np.nanargmax(accuracy)) if n else found.chosen
    return Row(
        column.network,
        column.depth,
        kind,
        n,
        float(accuracy[found.fixed]),
        float(accuracy[found.chosen]),
        float(found.ridges[found.chosen]),
        float(found.loo_accuracy[found.chosen]),
        float(accuracy[best]),
        float(found.ridges[best]),
        dict(column.published).get(kind),
        column.published_n,
    )
