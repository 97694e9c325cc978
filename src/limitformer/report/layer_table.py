"""A network as a table: its layers, what they do, and what that does to the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from limitformer.layers.base import Layer
from limitformer.layers.combine import Repeat, Residual, Serial

_EFFECTS = {
    "Conv": ("one linear map of every patch", "*K*′_{ab} = *w*² mean_{f} *K*_{a+f, b+f} + *b*²"),
    "Position": ("adds a trained code to every position", "*K*′_{ab} = *K*_{ab} + [a = b]"),
    "LayerNorm": (
        "every token to mean 0 and variance 1",
        "*K*′_{ab} = *K*_{ab} / √(*K*_{aa} *K*_{bb})",
    ),
    "Attention": (
        "each token reads all others: weights = scores / tokens, scores = *q*·*k* / √*d*",
        "*K*′_{ab} = *s*² *K*_{ab} mean_{cd} *K*_{cd}²",
    ),
    "Dense": ("one linear map of every token", "*K*′_{ab} = *w*² *K*_{ab} + *b*²"),
    "Relu": (
        "max(0, ·) of every channel",
        "*K*′_{ab} = √(*K*_{aa} *K*_{bb}) (sin *θ* + (π − *θ*) cos *θ*) / 2π",
    ),
    "MeanPool": ("mean over the tokens", "*K*′ = mean_{ab} *K*_{ab}"),
}


def layer_rows(layer: Layer, indent: str = "") -> Iterator[tuple[str, str, str]]:
    """A network as rows (layer, what it does, what that does to the kernel)."""
    deeper = indent + "\u00a0\u00a0\u00a0"
    if isinstance(layer, Serial):
        for child in layer.layers:
            yield from layer_rows(child, indent)
    elif isinstance(layer, Repeat):
        yield f"{indent}{layer.n} × block", "each with its own weights", ""
        yield from layer_rows(layer.layer, deeper)
    elif isinstance(layer, Residual):
        yield f"{indent}Residual", "adds what follows to its own input", "*K*′ = *K* + *K*_{branch}"
        yield from layer_rows(layer.body, deeper)
    else:
        dual = getattr(layer, "dual", None)
        name = type(layer).__name__ if dual is None else type(dual).__name__
        summary = (layer.__doc__ or "").split("\n")[0]
        what, effect = _EFFECTS.get(name, (summary, ""))
        yield f"{indent}{name}", what, effect
