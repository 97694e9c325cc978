"""The network that an estimator takes when none is given, by the kind of input."""

from __future__ import annotations

from ..layers.base import Layer
from ..layers.combine import Serial
from ..layers.conv import Conv
from ..layers.dense import Dense
from ..layers.embed import Embed
from ..layers.named import Relu
from ..layers.pool import Flatten, MeanPool

W, B = 2**0.5, 0.3  # ReLU keeps the variance at w_std = sqrt 2


def default_network(kind: str) -> Layer:
    """The default network of a kind of input."""
    hidden = (Dense(W, B), Relu())
    networks = {
        "table": Serial(*hidden, *hidden, Dense()),
        "columns": Serial(*hidden, Flatten(), *hidden, Dense()),
        "sequence": Serial(*hidden, MeanPool(), *hidden, Dense()),
        "ids": Serial(Embed(), *hidden, MeanPool(), *hidden, Dense()),
        "image": Serial(Conv((3, 3), W, B), Relu(), Conv((3, 3), W, B), Relu(), Flatten(), Dense()),
    }
    return networks[kind]
