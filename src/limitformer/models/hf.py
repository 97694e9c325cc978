"""Hugging Face transformers models (extra `hf`): their weights become a `Model`, which is verified.

The forward pass is ours, from the weights; the original model is run only to compare with it,
sublayer by sublayer. So it does not matter which attention implementation the original uses, or
whether its last hidden state is taken before or after the final norm.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

import numpy as np

from ..extras import optional
from .architectures import from_config
from .forward import steps
from .inputs import stream
from .spec import Model, Patches

_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 3e-2, "bfloat16": 1e-1}


@dataclasses.dataclass(frozen=True)
class Verification:
    """How far a `Model` is from the original, sublayer by sublayer; made by `verify`.

    Attributes:
        names: "embedding", then the sublayers.
        gaps: relative Frobenius distance of ours from the original's value, for each.
        tolerance: what they have to stay below.
    """

    names: tuple[str, ...]
    gaps: tuple[float, ...]
    tolerance: float

    def __str__(self) -> str:
        worst = int(np.argmax(self.gaps))
        return (
            f"{len(self.gaps)} captures agree with the original model; largest relative distance "
            f"{self.gaps[worst]:.1e} in {self.names[worst]} (tolerance {self.tolerance:.0e})"
        )


def from_hf(original: Any, dtype=np.float64, name: str | None = None) -> Model:
    """A `Model` with the weights of a transformers model object.

    Args:
        original: such as `AutoModel.from_pretrained(...)`, also with a task head, which is left
            out.
        dtype: in which ours will be computed.
        name: for reports.

    Raises:
        TypeError: not a transformers model.
        ValueError: as `from_config`.
    """
    torch = optional("torch", "hf")
    if not hasattr(original, "config") or not hasattr(original, "base_model"):
        raise TypeError(f"expected a transformers model, got {type(original).__name__}")
    weights = {}
    for key, value in original.base_model.state_dict().items():
        half = value.dtype in (torch.float16, torch.bfloat16)
        weights[key] = (value.float() if half else value).detach().cpu().numpy().copy()
    return from_config(original.config.to_dict(), weights, dtype=dtype, name=name)


def verify(model: Model, original: Any, x: Any, tolerance: float | None = None) -> Verification:
    """Run the original model and compare every sublayer with ours.

    Args:
        model: of `from_hf(original)`.
        original: the transformers model.
        x: text, token ids (n,), or an image (height, width, channels).
        tolerance: largest relative distance; None takes one that the original's precision allows
            (LLaMA computes its norms in float32 whatever its weights are).

    Raises:
        ValueError: a sublayer deviates; the message names the first one.
    """
    base = original.base_model
    precision = str(next(base.parameters()).dtype).removeprefix("torch.")
    tolerance = _TOLERANCE[precision] if tolerance is None else tolerance
    if isinstance(x, str):
        x = model.tokenize(x) if model.tokenize is not None else x
    seen, first = _run(base, [s.module for s in model.sublayers], x, model)
    names, gaps = ["embedding"], [_gap(stream(model, x), first)]
    for step in steps(model, x):
        theirs = seen[step.sublayer.module].pop(0)
        ours = step.branch if step.sublayer.after is None else step.after
        names.append(step.name)
        gaps.append(_gap(ours, theirs))
    for i, (at, gap) in enumerate(zip(names, gaps, strict=True)):
        if not gap <= tolerance:
            before = f"; the {i} before it agree to {max(gaps[:i]):.1e}" if i else ""
            raise ValueError(
                f"{model.name}: {at} deviates from the original model by {gap:.1e} relative, "
                f"more than {tolerance:.0e}{before}. This variant of the architecture is not the "
                "one that limitformer knows"
            )
    return Verification(tuple(names), tuple(gaps), tolerance)


def _run(
    base: Any, modules: list[str], x: Any, model: Model
) -> tuple[dict[str, list[np.ndarray]], np.ndarray]:
    """Outputs of modules in the order of their calls, and the stream at the first layer."""
    torch = optional("torch", "hf")
    seen: dict[str, list[np.ndarray]] = defaultdict(list)

    def watch(name: str):
        def hook(module, given, output):
            value = output[0] if isinstance(output, tuple) else output
            seen[name].append(_numpy(value))

        return base.get_submodule(name).register_forward_hook(hook)

    hooks = [watch(name) for name in dict.fromkeys(modules)]
    training = base.training
    base.eval()
    try:
        with torch.no_grad():
            if isinstance(model.embedding, Patches):
                pixels = np.ascontiguousarray(np.asarray(x).transpose(2, 0, 1)[None])
                given = torch.as_tensor(pixels, dtype=next(base.parameters()).dtype)
                output = base(pixel_values=given, output_hidden_states=True, return_dict=True)
            else:
                given = torch.as_tensor(np.asarray(x)[None])
                output = base(input_ids=given, output_hidden_states=True, return_dict=True)
    finally:
        base.train(training)
        for hook in hooks:
            hook.remove()
    return seen, _numpy(output.hidden_states[0])


def _numpy(value: Any) -> np.ndarray:
    """(n, d) in float64; the batch of one, wherever its axis is, goes away."""
    return value.detach().double().cpu().numpy().reshape(-1, value.shape[-1])


def _gap(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Relative Frobenius distance."""
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
