"""Collapse metrics of a real model, layer by layer, in the form that theory has (`Curves`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..depth.curves import METRICS, Curves
from ..depth.metrics import attention_entropy, dobrushin
from .forward import steps
from .inputs import stream
from .spec import Mlp, Model


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionProfile:
    """How differently queries attend, for every head; made by `attention_profile`.

    Attributes:
        dobrushin: per attention layer (H,), tau(A_h): 0 where all queries attend alike.
        entropy: per attention layer (H,), mean entropy of a row in nats.
    """

    dobrushin: tuple[np.ndarray, ...]
    entropy: tuple[np.ndarray, ...]


def stream_profile(model: Model, x: Any) -> Curves:
    """Collapse metrics of the residual stream at the input and after every layer.

    Args:
        model: a `Model`.
        x: one input, or a list of inputs (of any lengths), as for `stream`.

    Returns:
        `Curves` with one sample, as `lf.depth_profile(net, x).kernel`: both fit into one plot.
    """
    inputs = x if isinstance(x, list) and not all(np.isscalar(i) for i in x) else [x]
    inputs = [x] if isinstance(x, str) else inputs
    return _curves([_followed(model, one)[0] for one in inputs], _names(model), model.name)


def profiles(model: Model, x: Any) -> tuple[Curves, AttentionProfile]:
    """`stream_profile` and `attention_profile` of one input, from one run of the model."""
    streams, maps = _followed(model, x, attention=True)
    return _curves([streams], _names(model), model.name), maps


def profile_arrays(layers: Sequence[Any], label: str = "given activations") -> Curves:
    """Collapse metrics of activations from anywhere.

    Args:
        layers: for every layer an array (batch, token, channel), or (token, channel).

    Example:
        >>> layers = [np.random.default_rng(0).normal(size=(2, 5, 8)), np.ones((2, 5, 8))]
        >>> profile_arrays(layers).mean("residual")[1]
        np.float64(0.0)
    """
    arrays = [np.asarray(a) for a in layers]
    arrays = [a[None] if a.ndim == 2 else a for a in arrays]
    shapes = {a.shape[:2] for a in arrays}
    if len(shapes) != 1 or any(a.ndim != 3 for a in arrays):
        raise ValueError(
            "activations must be (batch, token, channel) with one batch and length for all layers, "
            f"got {[a.shape for a in arrays][:4]}"
        )
    every = [[a[i] for a in arrays] for i in range(len(arrays[0]))]
    return _curves(every, [f"layer {i}" for i in range(len(arrays))], label)


def attention_profile(model: Model, x: Any) -> AttentionProfile:
    """Dobrushin coefficients and entropies of all attention maps on one input."""
    return _followed(model, x, attention=True)[1]


def _followed(model: Model, x: Any, attention: bool = False):
    """The stream at the ends of layers, and what is asked of maps while they exist."""
    streams, tau, entropy = [stream(model, x)], [], []
    for step in steps(model, x):
        if attention and step.A is not None:
            tau.append(np.asarray(dobrushin(step.A)))
            entropy.append(np.asarray(attention_entropy(step.A)))
        if _ends_layer(model, step.index):
            streams.append(step.after)
    return streams, AttentionProfile(tuple(tau), tuple(entropy))


def _names(model: Model) -> list[str]:
    return ["embedding"] + [
        s.name.rsplit(" ", 1)[0] if isinstance(s.branch, Mlp) else s.name
        for i, s in enumerate(model.sublayers)
        if _ends_layer(model, i)
    ]


def _ends_layer(model: Model, index: int) -> bool:
    """The next sublayer is not the MLP of the same layer."""
    after = model.sublayers[index + 1 : index + 2]
    return not any(isinstance(s.branch, Mlp) for s in after)


def _curves(every: list[list[np.ndarray]], names: list[str], label: str) -> Curves:
    values = {
        name: np.array([[[float(metric(h)) for h in streams] for streams in every]])
        for name, metric in METRICS.items()
    }
    return Curves("model", label, tuple(names), values, False)
