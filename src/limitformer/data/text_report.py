"""What happened to texts on their way to arrays."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Container, Iterable

from .dataset import texts as as_texts


@dataclasses.dataclass(frozen=True)
class TextReport:
    """Counts of what was kept, cut and not known.

    Args:
        texts: how many texts.
        tokens: how many tokens they have, before anything is cut.
        known: how many of the tokens that were kept are known words.
        unknown: how many are not.
        truncated: how many texts were cut at `max_tokens`.
        dropped: how many tokens that cost.
        empty: how many texts have no token at all; each is kept as one unknown token.
        blank: how many texts have no known word.
        longest: the tokens of the longest text, before anything is cut.
        missing: the commonest unknown words with their counts.
    """

    texts: int
    tokens: int
    known: int
    unknown: int
    truncated: int = 0
    dropped: int = 0
    empty: int = 0
    blank: int = 0
    longest: int = 0
    missing: tuple[tuple[str, int], ...] = ()

    @property
    def coverage(self) -> float:
        """The fraction of the kept tokens that are known words; NaN if there are none."""
        kept = self.known + self.unknown
        return self.known / kept if kept else float("nan")

    def __str__(self) -> str:
        words = ", ".join(f"{word!r} {count}" for word, count in self.missing[:5])
        return (
            f"{self.texts} texts, {self.tokens} tokens, {self.coverage:.1%} of them known"
            + (f" (missing: {words})" if words else "")
            + f"; {self.truncated} texts truncated by {self.dropped} tokens in all; "
            f"{self.empty} empty; {self.blank} without a known word"
        )


def tokenised(
    texts: Iterable[str],
    tokenizer: Callable[[str], list[str]],
    known: Container[str],
    max_tokens: int | None = None,
) -> tuple[list[list[str]], TextReport]:
    """The tokens of each text, cut at `max_tokens`, and the report.

    Args:
        texts: `n` texts.
        tokenizer: one text -> its tokens.
        known: the words that count as known.
        max_tokens: how many tokens to keep from the start of a text; None for all.

    Returns:
        `n` lists of tokens (an empty text has none), and what happened.

    Raises:
        TypeError: a text is not a `str`.
        ValueError: `max_tokens` below 1.

    Example:
        >>> rows, report = tokenised(["a b c", ""], str.split, {"a"}, max_tokens=2)
        >>> rows, report.truncated, report.empty, report.coverage
        ([['a', 'b'], []], 1, 1, 0.5)
    """
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens} keeps nothing; take at least 1, or None for all")
    rows = [tokenizer(text) for text in as_texts(texts)]
    lengths = [len(row) for row in rows]
    kept = rows if max_tokens is None else [row[:max_tokens] for row in rows]
    counts = Counter(token for row in kept for token in row)
    missing = Counter({word: count for word, count in counts.items() if word not in known})
    unknown = sum(missing.values())
    report = TextReport(
        texts=len(rows),
        tokens=sum(lengths),
        known=sum(counts.values()) - unknown,
        unknown=unknown,
        truncated=sum(len(a) > len(b) for a, b in zip(rows, kept, strict=True)),
        dropped=sum(lengths) - sum(counts.values()),
        empty=lengths.count(0),
        blank=sum(all(token in missing for token in row) for row in kept),
        longest=max(lengths, default=0),
        missing=tuple(missing.most_common(10)),
    )
    return kept, report
