"""IMDb's reviews as padded word vectors, also from one small file that needs no other package."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from ..data.dataset import Dataset
from ..data.glove_vectors import Vectors, glove
from ..data.imdb_reviews import imdb
from ..data.text_report import tokenised
from ..data.tokenizer import Tokenizer

_FIELDS = ("ids", "lengths", "labels", "vectors", "train", "about")


@dataclasses.dataclass(frozen=True, eq=False)
class Reviews:
    """Reviews as word ids, and the words' vectors.

    Args:
        ids: `(n, tokens)`, padded with 0; id 0 is a word without a vector.
        lengths: `(n,)` valid tokens.
        labels: `(n,)`, 1 = positive.
        vectors: `(words, features)`; the first is zero.
        train: how many of the reviews are training reviews, the first ones.
        about: where they are from and what was cut.
    """

    ids: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    vectors: np.ndarray
    train: int
    about: str

    @classmethod
    def of(
        cls,
        data: Any,
        vectors: Any,
        *,
        tokens: int = 500,
        train: int = 3200,
        validation: int = 1600,
        seed: int = 0,
    ) -> Reviews:
        """Balanced reviews of the training part, cut after `tokens` tokens.

        Args:
            data: a path for `lf.data.imdb`, or its dataset.
            vectors: a path for `lf.data.glove`, or its vectors.
        """
        data = data if isinstance(data, Dataset) else imdb(data)
        vectors = vectors if isinstance(vectors, Vectors) else glove(vectors)
        rows = Dataset.of_rows(data.name, data.x_train, data.y_train, class_names=data.class_names)
        rows = rows.take(train, validation, key=seed)
        texts = np.concatenate([rows.x_train, rows.x_test])
        words, report = tokenised(texts, Tokenizer(), vectors.index, tokens)
        used = sorted({vectors.index[w] for row in words for w in row if w in vectors.index})
        place = {vectors.words[row]: i for i, row in enumerate(used, 1)}
        lengths = np.array([max(len(row), 1) for row in words])
        ids = np.zeros((len(words), lengths.max()), np.uint16 if len(used) < 2**16 else np.uint32)
        for i, row in enumerate(words):
            ids[i, : len(row)] = [place.get(word, 0) for word in row]
        zero = np.zeros((1, vectors.features), vectors.vectors.dtype)
        about = (
            f"{train} training and {validation} validation reviews of {data.name}'s training part, "
            f"balanced, seed {seed}; GloVe of {vectors.features} dimensions, {len(vectors)} words; "
            f"{report}"
        )
        table = np.concatenate([zero, vectors.vectors[used]])
        labels = np.concatenate([rows.y_train, rows.y_test])
        return cls(ids, lengths, labels, table, train, about)

    @classmethod
    def load(cls, path: Path) -> Reviews:
        """Reviews that `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in _FIELDS if name not in file.files]
            if missing:
                raise ValueError(
                    f"{path} has no {', '.join(missing)}; write it with "
                    "limitformer reproduce prepare imdb"
                )
            a = {name: file[name] for name in _FIELDS}
        vectors = a["vectors"].astype(np.float32)
        lengths, labels = a["lengths"].astype(int), a["labels"].astype(int)
        return cls(a["ids"], lengths, labels, vectors, int(a["train"]), str(a["about"]))

    def save(self, path: Path) -> None:
        """Write one npz; vectors are stored in half precision, as GloVe's copies often are."""
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            path,
            ids=self.ids,
            lengths=self.lengths.astype(np.int32),
            labels=self.labels.astype(np.int8),
            vectors=self.vectors.astype(np.float16),
            train=np.array(self.train),
            about=np.array(self.about),
        )

    def take(self, train: int, validation: int, tokens: int) -> Reviews:
        """The first reviews of both parts, cut after `tokens` tokens."""
        have = self.train, len(self.ids) - self.train
        if train > have[0] or validation > have[1] or min(train, validation) < 1:
            raise ValueError(
                f"there are {have[0]} training and {have[1]} validation reviews; {train} and "
                f"{validation} were asked for"
            )
        rows = np.concatenate([np.arange(train), np.arange(self.train, self.train + validation)])
        lengths = np.minimum(self.lengths[rows], tokens)
        cut = int(np.sum(self.lengths[rows] > tokens))
        about = self.about
        if cut or len(rows) < len(self.ids):
            about += f"; of these {train} and {validation}, {cut} of them cut after {tokens} tokens"
        ids = self.ids[rows, : lengths.max()]
        ids = np.where(np.arange(ids.shape[1]) < lengths[:, None], ids, 0)
        return Reviews(ids, lengths, self.labels[rows], self.vectors, train, about)

    @property
    def mask(self) -> np.ndarray:
        """Valid tokens, `(n, tokens)`."""
        return np.arange(self.ids.shape[1]) < self.lengths[:, None]

    def values(self, rows: Any) -> np.ndarray:
        """Word vectors `(rows, tokens, features)`."""
        return self.vectors[self.ids[rows]]
