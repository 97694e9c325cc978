"""What can be moved on the page, its range, and how it stands in a query string."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

INFINITE = "inf"


@dataclasses.dataclass(frozen=True)
class Range:
    """A number between two others, on a slider."""

    low: float
    high: float
    step: float

    @property
    def whole(self) -> bool:
        return isinstance(self.step, int)

    def read(self, text: str) -> float:
        value = float(text) if not self.whole else int(text)
        if not (math.isfinite(value) and self.low <= value <= self.high):
            raise ValueError
        return value

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.low:g} to {self.high:g}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of some words, with what the page calls them."""

    names: Mapping[str, str]

    def read(self, text: str) -> str:
        if text not in self.names:
            raise ValueError
        return text

    def __str__(self) -> str:
        return "one of " + ", ".join(self.names)


@dataclasses.dataclass(frozen=True)
class Control:
    """One input of the page.

    Attributes:
        label: its name on the page.
        help: one sentence.
        group: the part of the form it stands in.
    """

    kind: Range | Choice
    default: Any
    label: str
    help: str
    group: str


_HEADS = ("1", "2", "3", "4", "6", "8", "12", "16", INFINITE)

CONTROLS: Mapping[str, Control] = {
    "heads": Control(
        Choice({h: "∞" if h == INFINITE else h for h in _HEADS}),
        "1",
        "heads",
        "Heads of every attention layer; at ∞ the network is a Gaussian process.",
        "attention",
    ),
    "qk_std": Control(
        Range(0.0, 4.0, 0.05),
        3.0,
        "score size",
        "qk_std, the scale of the attention scores.",
        "attention",
    ),
    "scale": Control(
        Choice({"sqrt": "1/√d", "linear": "1/d"}),
        "sqrt",
        "scale",
        "Of the scores: 1/√d as transformers do (random scores), 1/d (fixed scores).",
        "attention",
    ),
    "causal": Control(
        Choice({"no": "all", "yes": "earlier"}),
        "no",
        "tokens seen",
        "All, or only earlier ones (a causal mask).",
        "attention",
    ),
    "depth": Control(Range(1, 24, 1), 3, "depth", "Blocks.", "block"),
    "skip": Control(
        Range(0.0, 1.5, 0.05), 0.5, "skip", "Weight of the skip around each layer.", "block"
    ),
    "norm": Control(
        Choice({"pre": "before", "post": "after", "none": "none"}),
        "pre",
        "norm",
        "LayerNorm before each layer, after each sum, or none.",
        "block",
    ),
    "activation": Control(
        Choice(
            {
                "none": "no MLP",
                "relu": "ReLU",
                "gelu": "GELU",
                "erf": "erf",
                "sin": "sin",
                "abs": "|u|",
            }
        ),
        "gelu",
        "MLP",
        "Activation of the MLP of each block, or attention alone.",
        "block",
    ),
    "w_std": Control(
        Range(0.0, 2.0, 0.05),
        1.0,
        "MLP weights",
        "Standard deviation of the two weight matrices of the MLP.",
        "block",
    ),
    "tokens": Control(Range(2, 64, 1), 12, "tokens", "Length of the sequence.", "input"),
    "input": Control(
        Choice({"equal": "all", "near": "neighbours", "groups": "two groups"}),
        "near",
        "alike",
        "Which tokens of the input are correlated: any two, neighbours, or within each half.",
        "input",
    ),
    "correlation": Control(
        Range(0.0, 0.95, 0.05), 0.5, "correlation", "Of tokens that are alike.", "input"
    ),
    "positions": Control(
        Choice(
            {"none": "none", "onehot": "learned", "smooth": "smooth", "alibi": "ALiBi"},
        ),
        "none",
        "positions",
        "A code of its own for every position, a smooth code, or ALiBi's score biases.",
        "input",
    ),
    "of": Control(
        Choice({"token": "first", "mean": "mean", "difference": "1st − 2nd"}),
        "difference",
        "output of",
        "Which token's output the density is of: the first, their mean, a difference.",
        "output",
    ),
    "width": Control(
        Choice({w: w for w in ("8", "16", "32", "64")}),
        "32",
        "twin's width",
        "Channels of the finite networks.",
        "output",
    ),
}


class BadSettings(ValueError):
    """A query string that is no point of the controls; the message says what would be."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """One point of all controls.

    Example:
        >>> read("heads=4&tokens=16").tokens
        16
        >>> read("tokens=1000000000")
        Traceback (most recent call last):
            ...
        limitformer.explore.settings.BadSettings: tokens='1000000000': expected a whole number
        from 2 to 64
    """

    heads: str = CONTROLS["heads"].default
    qk_std: float = CONTROLS["qk_std"].default
    scale: str = CONTROLS["scale"].default
    causal: str = CONTROLS["causal"].default
    depth: int = CONTROLS["depth"].default
    skip: float = CONTROLS["skip"].default
    norm: str = CONTROLS["norm"].default
    activation: str = CONTROLS["activation"].default
    w_std: float = CONTROLS["w_std"].default
    tokens: int = CONTROLS["tokens"].default
    input: str = CONTROLS["input"].default
    correlation: float = CONTROLS["correlation"].default
    positions: str = CONTROLS["positions"].default
    of: str = CONTROLS["of"].default
    width: str = CONTROLS["width"].default

    @property
    def infinite(self) -> bool:
        return self.heads == INFINITE

    @property
    def random(self) -> bool:
        """Whether scores are random, so that heads matter."""
        return self.scale == "sqrt"

    @property
    def query(self) -> str:
        """The query string of this point: what differs from the defaults."""
        given = dataclasses.asdict(self)
        other = {k: v for k, v in given.items() if v != CONTROLS[k].default}
        return urlencode({k: f"{v:g}" if isinstance(v, float) else v for k, v in other.items()})


def read(query: str, others: frozenset[str] = frozenset()) -> Settings:
    """Settings of a query string; what it does not name is at its default.

    Args:
        query: without the question mark.
        others: names that may stand in it and are not settings.

    Raises:
        BadSettings: an unknown name, one that comes twice, or a value out of range.
    """
    given: dict[str, Any] = {}
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, max_num_fields=64, errors="strict", encoding="utf-8"
        )
    except ValueError:
        raise BadSettings("the query string cannot be read; expected name=value&...") from None
    for name, text in pairs:
        if name in others:
            continue
        if name not in CONTROLS:
            raise BadSettings(f"{_short(name)} is no setting; expected {', '.join(CONTROLS)}")
        if name in given:
            raise BadSettings(f"{name} is given twice; expected it once")
        kind = CONTROLS[name].kind
        try:
            given[name] = kind.read(text)
        except (ValueError, OverflowError):
            raise BadSettings(f"{name}={_short(text)}: expected {kind}") from None
    return Settings(**given)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
