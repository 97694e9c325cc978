"""The IMDb table of Hron 2020: word vectors, a convolution, then attention or mean pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..layers.attention import Attention
from ..layers.base import AnyLayer, Layer, choice
from ..layers.combine import Parallel, Serial
from ..layers.conv import Conv
from ..layers.dense import Dense
from ..layers.named import Erf, Relu
from ..layers.norm import LayerNorm
from ..layers.pool import MeanPool
from ..layers.position import Position, SquaredExponential
from .kept import Kept
from .published import IMDB, IMDB_VALIDATION
from .reviews import Reviews
from .run import Column, row_of, run
from .shared_trunk import shared_kernels
from .tables import Reproduction, machine

SCALES = {"relu": (2.0**0.5, 0.01**0.5), "erf": (1.7562**0.5, 0.1841**0.5)}
QK = (0.1, 1.0)


def network(
    activations: Sequence[str] = ("relu",), qk: Sequence[float] = QK
) -> tuple[AnyLayer, tuple[str, ...]]:
    """All networks of the table as one that branches, and the names of its branches.

    Args:
        activations: "relu" (weight variance 2, bias .01), "erf" (1.7562, .1841) or both.
        qk: s_QK of structured attention, which the paper does not give for this table.
    """
    heads: list[Layer] = [Serial(MeanPool(), Dense())]
    names = ["mean of words"]
    for activation in activations:
        choice("activation", activation, tuple(SCALES))
        w, b = SCALES[activation]
        phi = Relu if activation == "relu" else Erf
        heads.append(Serial(MeanPool(), Dense(w, b), phi(), Dense()))
        names.append(f"mean pool + FC, {activation}")
        ends: list[Layer] = [Serial(MeanPool(), Dense())]
        names.append(f"conv + mean pool, {activation}")
        for s in qk:
            place = Position(SquaredExponential(phi=2.5, rho=1.0), content=0.75, weight=0.25)
            attention = Attention(scale="linear", qk_std=s, position=place)
            ends.append(Serial(attention, LayerNorm(), MeanPool(), Dense()))
            names.append(f"structured {s:g}, {activation}")
        heads.append(Serial(Conv((9,), w, b), phi(), Parallel(*ends)))
    return Parallel(*heads), tuple(names)


def hron_imdb(
    data: Any,
    vectors: Any = None,
    *,
    tokens: int = 100,
    train: int = 3200,
    validation: int = 1600,
    activations: Sequence[str] = ("relu",),
    qk: Sequence[float] = QK,
    kinds: Any = ("nngp", "ntk"),
    dtype: Any = np.float32,
    seed: int = 0,
    band: int = 1000,
    memory: Any = None,
    progress: bool | Callable = False,
    report: Callable[[Reproduction], None] | None = None,
    keep: Any = None,
) -> Reproduction:
    """The IMDb table of Hron 2020 with 3200 and 1600 reviews.

    Args:
        data: a path for `lf.data.imdb` (or its dataset), or an npz that
            `limitformer reproduce prepare imdb` wrote.
        vectors: a path for `lf.data.glove` (or its vectors); not needed with such an npz.
        tokens: how many tokens to keep of each review: the work grows with its square.
        train, validation: numbers of reviews, both from the training part of the data.
        activations, qk: see `network`.
        kinds, dtype, band, memory, progress, report, keep: as for `hron_cifar`.
        seed: draws the reviews.

    Returns:
        The table, with `.table()`, `.markdown()`, `.to_json()`.

    Raises:
        FileNotFoundError: no data there; the message says where to get it.
    """
    start = time.monotonic()
    if isinstance(data, Reviews):
        reviews = data
    elif isinstance(data, str | Path) and Path(data).suffix == ".npz":
        reviews = Reviews.load(Path(data))
    else:
        reviews = Reviews.of(
            data, vectors, tokens=tokens, train=train, validation=validation, seed=seed
        )
    reviews = reviews.take(train, validation, tokens)
    net, names = network(activations, qk)
    columns = [_column(name) for name in names]
    x = reviews.values(slice(train))
    mask, right = reviews.mask, reviews.labels[train:]

    def kernels(part):
        options = {"readouts": len(columns), "kinds": kinds, "dtype": dtype, "memory": memory}
        options |= {"progress": progress, "block": train}
        if part is None:
            return shared_kernels(net, x, x_mask=mask[:train], **options)
        rows = slice(train + part.start, train + part.stop)
        return shared_kernels(
            net, reviews.values(rows), x, x_mask=mask[rows], y_mask=mask[:train], **options
        )

    settings = {
        "reviews": reviews.about,
        "tokens": f"at most {tokens}, {np.mean(reviews.lengths):.0f} on average",
        "token kernels": f"{np.dtype(dtype)}, summed in float64",
        "machine": machine(),
    }
    targets = (reviews.labels[:train] - 0.5)[:, None]
    result: Reproduction | None = None
    same = {k: settings[k] for k in ("reviews", "tokens", "token kernels")}
    same |= {"columns": ", ".join(names), "kinds": str(kinds)}
    kept = Kept(keep, same, x, reviews.mask, reviews.labels)
    for found in run(kept(kernels), columns, targets, right, band):
        rows = tuple(row_of(*entry) for entry in found)
        rows = tuple(row for row in rows if row.network != "mean of words" or row.kind == "nngp")
        seconds = time.monotonic() - start + kept.seconds
        result = Reproduction("Hron 2020, IMDb", rows, settings, seconds, _NOTES, "best")
        if report is not None:
            report(result)
    assert result is not None
    return result


_NOTES = (
    "the paper uses GloVe 6B of 50 dimensions with its whole vocabulary; here the dimensions and "
    "words are those given above, and words without a vector are zero vectors",
    "reviews are cut after the number of tokens given above",
    "the paper does not give s_QK of structured attention here: the name has it, and "
    "every one that was tried is shown; attention is followed by LayerNorm and a mean pool",
    "one fully connected layer after the mean pool; a convolution of window 9 with zero padding",
    "the NTK of the mean of words is that of the NNGP, a linear kernel",
)


def _column(name: str) -> Column:
    paper = next((IMDB[key] for key in IMDB if name.startswith(key)), {})
    return Column(name, None, tuple(paper.items()), IMDB_VALIDATION)
