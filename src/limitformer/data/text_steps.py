"""Texts into arrays, as steps of a scikit-learn pipeline.

scikit-learn is needed here, so `limitformer.data` imports this file when one of its names is first
used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .glove_vectors import Vectors
from .sequences import Sequences
from .text_report import TextReport, tokenised
from .tokenizer import Tokenizer

Split = Callable[[str], list[str]]


class _TextStep(TransformerMixin, BaseEstimator):
    """What both steps share: they take texts, and say what happened to them."""

    tokenizer: Split | None
    max_tokens: int | None

    def _tokenised(self, texts: Any, known: Any) -> tuple[list[list[str]], TextReport]:
        tokenizer = Tokenizer() if self.tokenizer is None else self.tokenizer
        return tokenised(texts, tokenizer, known, self.max_tokens)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        return tags


class Embedder(_TextStep):
    """Texts into sequences of word vectors, (n, tokens, features).

    A word without a vector is a zero vector that stays a valid token; a text without any token is
    one zero vector. Both are counted: `transform(texts).report`.

    Args:
        vectors: the words and their vectors, from `lf.data.glove`.
        tokenizer: one text -> its tokens; `Tokenizer()` if None.
        max_tokens: how many tokens to keep from the start of each text; None keeps all. What was
            cut is in the report (`truncated`, `dropped`).
        memory: the most bytes that the padded array may take.

    Example:
        >>> two = Vectors(("cat", "dog"), np.eye(2, dtype=np.float32))
        >>> x = Embedder(two).fit_transform(["cat dog", "what"])
        >>> x.values[:, :, 0], x.mask
        (array([[1., 0.], [0., 0.]], dtype=float32), array([[ True,  True], [ True, False]]))
        >>> x.report.coverage, x.report.blank
        (0.6666666666666666, 1)
    """

    def __init__(
        self,
        vectors: Vectors,
        *,
        tokenizer: Split | None = None,
        max_tokens: int | None = None,
        memory: int = 4 * 2**30,
    ) -> None:
        self.vectors = vectors
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.memory = memory

    def fit(self, texts: Any, y: Any = None) -> Embedder:
        """Nothing is learned from the texts."""
        self.n_features_out_ = self.vectors.features
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def report(self, texts: Any) -> TextReport:
        """What `transform` would do to these texts."""
        return self._tokenised(texts, self.vectors.index)[1]

    def transform(self, texts: Any) -> Sequences:
        """Texts `(n,)` into vectors `(n, tokens, features)` with their mask and the report.

        Raises:
            ValueError: no texts, or an array beyond `memory`.
        """
        rows, report = self._tokenised(texts, self.vectors.index)
        if not rows:
            raise ValueError("there are no texts to embed")
        lengths = np.array([max(len(row), 1) for row in rows])
        tokens = int(lengths.max())
        size = len(rows) * tokens * self.vectors.features * self.vectors.vectors.itemsize
        if size > self.memory:
            most = int(np.quantile(lengths, 0.95))
            raise ValueError(
                f"{len(rows)} texts padded to {tokens} tokens of {self.vectors.features} features "
                f"take {size / 2**30:.3g} GiB, more than memory={self.memory / 2**30:.3g} GiB. "
                f"95 % of them have at most {most} tokens: pass max_tokens={most}, or more memory="
            )
        values = np.zeros((len(rows), tokens, self.vectors.features), self.vectors.vectors.dtype)
        index = self.vectors.index
        for i, row in enumerate(rows):
            places = [a for a, token in enumerate(row) if token in index]
            values[i, places] = self.vectors.vectors[[index[row[a]] for a in places]]
        return Sequences(values, np.arange(tokens) < lengths[:, None], report)


class Vocabulary(_TextStep):
    """Texts into sequences of token ids, (n, tokens), for a network that starts with `lf.Embed`.

    Ids are 1, 2, ... for the words of the training texts, the most frequent first. Every other
    word has the id 0, so `lf.Embed` takes all of them for one and the same word; an empty text is
    one token 0. Both are counted: `transform(texts).report`.

    Args:
        size: keep this many words, the most frequent; None keeps all.
        min_count: keep words that occur at least this often.
        tokenizer: one text -> its tokens; `Tokenizer()` if None.
        max_tokens: how many tokens to keep from the start of each text; None keeps all. What was
            cut is in the report (`truncated`, `dropped`).

    Example:
        >>> ids = Vocabulary().fit(["a cat and a dog"])
        >>> x = ids.transform(["a cat", "a bird and", ""])
        >>> x.values
        array([[1, 3, 0], [1, 0, 2], [0, 0, 0]], dtype=int32)
        >>> x.lengths, x.report.empty, ids.size_
        (array([2, 3, 1]), 1, 5)
    """

    def __init__(
        self,
        *,
        size: int | None = None,
        min_count: int = 1,
        tokenizer: Split | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.size = size
        self.min_count = min_count
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens

    def fit(self, texts: Any, y: Any = None) -> Vocabulary:
        """Learn the words; `words_`, `index_` and `size_` (the ids, with 0) are set.

        Raises:
            ValueError: no word is left.
        """
        if self.size is not None and self.size < 1:
            raise ValueError(f"size={self.size} keeps nothing; take at least 1, or None for all")
        rows, _ = self._tokenised(texts, ())
        counts = Counter(token for row in rows for token in row)
        # Equal counts in alphabetical order, so that the ids do not depend on the texts' order.
        order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        words = [word for word, count in order if count >= self.min_count][: self.size]
        if not words:
            raise ValueError(
                f"no word of the {len(rows)} texts occurs min_count={self.min_count} times"
            )
        self.words_ = tuple(words)
        self.index_ = {word: i for i, word in enumerate(words, 1)}
        self.size_ = len(words) + 1
        return self

    def report(self, texts: Any) -> TextReport:
        """What `transform` would do to these texts."""
        check_is_fitted(self)
        return self._tokenised(texts, self.index_)[1]

    def transform(self, texts: Any) -> Sequences:
        """Texts `(n,)` into ids `(n, tokens)` int32 with their mask and the report."""
        check_is_fitted(self)
        rows, report = self._tokenised(texts, self.index_)
        ids: Iterable[list[int]] = ([self.index_.get(t, 0) for t in row] or [0] for row in rows)
        return Sequences.pad([np.array(row, np.int32) for row in ids], report)
