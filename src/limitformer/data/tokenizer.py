"""Texts into words."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache

# In this order: do|n't, it|'s, 1,000.5, words, and every other sign by itself.
PATTERN = r"\w+?(?=n't\b)|n't\b|'(?:s|m|d|ll|re|ve)\b|\d+(?:[.,]\d+)+|\w+|[^\w\s]"
MARKUP = r"<[a-zA-Z/][^>]*>"


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Lower-case words, contractions split as in the Penn treebank, punctuation by itself.

    These are the conventions behind the vocabulary of GloVe 6B: "don't" is `do`, `n't`; "it's" is
    `it`, `'s`; words are cut at hyphens. Curly apostrophes become straight ones.

    Args:
        lower: turn texts into lower case (not for GloVe 840B, whose words are cased).
        pattern: a regular expression, applied after that; its matches are the tokens.
        markup: a regular expression of what is a space (HTML tags, which the reviews of IMDb
            have); "" to keep everything.

    Raises:
        ValueError: not a regular expression, or one with groups.

    Example:
        >>> Tokenizer()("It's well-made, isn't it?<br />10.5 of 10!")
        ['it', "'s", 'well', '-', 'made', ',', 'is', "n't", 'it', '?', '10.5', 'of', '10', '!']
        >>> Tokenizer(pattern=r"[a-z]+")("One, two")
        ['one', 'two']
    """

    lower: bool = True
    pattern: str = PATTERN
    markup: str = MARKUP

    def __post_init__(self) -> None:
        for name in ("pattern", "markup"):
            value = getattr(self, name)
            try:
                groups = re.compile(value).groups
            except re.error as error:
                raise ValueError(f"{name}={value!r} is not a regular expression: {error}") from None
            if name == "pattern" and groups:
                raise ValueError(f"pattern={value!r} has groups; write (?:...) for (...)")

    def __call__(self, text: str) -> list[str]:
        """The tokens of one text."""
        if self.markup:
            text = _compiled(self.markup).sub(" ", text)
        text = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        if self.lower:
            text = text.lower()
        return _compiled(self.pattern).findall(text)


_compiled = lru_cache(maxsize=32)(re.compile)
