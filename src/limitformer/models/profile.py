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
    ends = [_ends_layer(model, i) for i in range(len(model.sublayers))]
    names = ["embedding"] + [
        s.name.rsplit(" ", 1)[0] if isinstance(s.branch, Mlp) else s.name
        for s, end in zip(model.sublayers, ends, strict=True)
        if end
    ]
    every = []
    for one in inputs:
        streams = [stream(model, one)]
        streams += [step.after for step in steps(model, one) if ends[step.index]]
        every.append(streams)
    return _curves(every, names, model.name)


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
    maps = [step.A for step in steps(model, x) if step.A is not None]
    return AttentionProfile(
        tuple(np.asarray(dobrushin(A)) for A in maps),
        tuple(np.asarray(attention_entropy(A)) for A in maps),
    )


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
