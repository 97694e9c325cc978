"""The network that an estimator takes when none is given, by the kind of input."""

from __future__ import annotations

from ..layers.base import Layer, choice
from ..layers.combine import Serial
from ..layers.conv import AvgPool, Conv
from ..layers.dense import Dense
from ..layers.embed import Embed
from ..layers.named import Relu
from ..layers.pool import Flatten, MeanPool

KINDS = ("table", "columns", "sequence", "ids", "image")
SIDE = 8  # patches on the longer side of an image; the work grows with its fourth power
W, B = 2**0.5, 0.3  # with w_std = sqrt 2 a ReLU layer keeps the variance


def default_network(kind: str, shape: tuple[int, ...] | None = None) -> Layer:
    """The default network of a kind of input, chosen by cross-validation (docs/estimators.md).

    - table: two hidden layers on the rows.
    - columns: each column a token, its value embedded with weights and a bias of its own column
      (`Flatten` gives every token its own), then a hidden layer across columns.
    - sequence: a convolution over three tokens, the mean over tokens, a hidden layer.
    - ids: `Embed`, then as for sequences.
    - image: convolutions, an average pool in their middle, the mean over positions. Images of more
      than 8 x 8 pixels start with patches, at most 8 a side.

    All have ReLU. Attention at scale "linear" was level or behind on the small sets measured.

    Args:
        kind: "table", "columns", "sequence", "ids" or "image".
        shape: height, width and channels of an image.

    Example:
        >>> default_network("table")
        Serial(Dense(1.4142135623730951, 0.3), Relu(), Dense(1.4142135623730951, 0.3), Relu(),
        Dense())
    """
    choice("kind", kind, KINDS)
    hidden = (Dense(W, B), Relu())
    if kind == "table":
        return Serial(*hidden, *hidden, Dense())
    if kind == "columns":
        return Serial(Dense(W, 1.0), Relu(), Flatten(), *hidden, Dense())
    if kind == "image":
        return _image(shape)
    embed = (Embed(),) if kind == "ids" else ()
    return Serial(*embed, Conv((3,), W, B), Relu(), MeanPool(), *hidden, Dense())


def _image(shape: tuple[int, ...] | None) -> Layer:
    if shape is None or len(shape) != 3:
        raise ValueError(f"shape={shape!r}; images need shape=(height, width, channels)")
    height, width = shape[:2]
    step = -(-max(height, width) // SIDE)
    near = (Conv((3, 3), W, B), Relu())
    if step == 1:
        first = near
    else:
        whole = height % step == 0 and width % step == 0
        patches = Conv(
            (step, step), W, B, stride=(step, step), padding="valid" if whole else "same"
        )
        first = (patches, Relu())
    pool = (AvgPool((2, 2)),) if -(-min(height, width) // step) > 1 else ()
    return Serial(*first, *near, *pool, *near, *near, MeanPool(), Dense())
