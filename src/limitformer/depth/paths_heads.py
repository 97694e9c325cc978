"""What each layer and each head contributes to the output."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..layers.base import choice
from ..models.forward import Step, steps
from ..models.inputs import stream
from ..models.spec import Attention, Model
from .paths import MLPS, check_sum, residual_norm
from .paths_frozen import advance, frozen_norm, skip_over


@dataclasses.dataclass(frozen=True, eq=False)
class Contributions:
    """The output by the last head passed; made by `head_contributions`.

    Attributes:
        labels: (layer, head) of every part, (-1, -1) for what passed no head; head is -1 where
            the parts are whole layers.
        norm: ||part||_F.
        residual: ||res part||_F / ||part||_F.
        share: <part, output> / ||output||^2; they add up to 1.
        residual_share: the same of residuals.
        gap, tolerance: of the check that the parts are the output.
    """

    labels: tuple[tuple[int, int], ...]
    norm: np.ndarray
    residual: np.ndarray
    share: np.ndarray
    residual_share: np.ndarray
    gap: float
    tolerance: float

    def top(self, count: int = 10) -> str:
        """A table of the parts with the largest shares, and the check."""
        order = np.argsort(-np.abs(self.share))[:count]
        lines = [f"{'part':>16} {'norm':>10} {'residual':>9} {'share':>8}"]
        for i in order:
            layer, head = self.labels[i]
            name = "no head" if layer < 0 else f"layer {layer}"
            name += f" head {head}" if head >= 0 else ""
            numbers = f"{self.norm[i]:10.4g} {self.residual[i]:9.4f} {self.share[i]:8.4f}"
            lines.append(f"{name:>16} {numbers}")
        check = f"sum of parts - model: {self.gap:.1e} relative (tolerance {self.tolerance:.0e})"
        return "\n".join([*lines, check])


def head_contributions(
    model: Model, x: Any, *, mlp: str = "source", by: str = "head", memory: float = 4e9
) -> Contributions:
    """Split the output by the last head that a signal passed.

        Y = S^(0) + sum_lh D_lh,    D_lh = (what head h of layer l wrote) carried on by skips

    D_lh is the sum of all paths whose last head is (l, h): exact, with everything frozen.

    Args:
        model, x, mlp: as for `path_decomposition`.
        by: "head" or "layer".
        memory: bytes that the parts may take.

    Raises:
        MemoryError: the parts need more; by="layer" needs 1/H of it.
        ArithmeticError: the parts do not add up to the output.
    """
    choice("by", by, ("head", "layer"))
    choice("mlp", mlp, MLPS)
    zero = stream(model, x)
    each = model.heads if by == "head" else (1,) * model.depth
    needed = 2 * zero.nbytes * sum(each)
    if needed > memory:
        raise MemoryError(
            f"{sum(each)} parts of {zero.shape} need {needed:.2g} bytes, memory is {memory:.2g}: "
            'pass by="layer", fewer tokens, or a larger memory='
        )
    inside, layer = mlp == "inside", -1
    parts = np.zeros((0, *zero.shape), zero.dtype)
    labels, output = [(-1, -1)], zero
    for step in steps(model, x):
        parts = skip_over(step, parts, inside)
        if isinstance(step.sublayer.branch, Attention):
            layer += 1
            written = _written(step, by)
            parts = np.concatenate([parts, written])
            labels += [(layer, h if by == "head" else -1) for h in range(len(written))]
        zero = advance(step, zero[None], inside)[0]
        output = step.after
    parts = np.concatenate([zero[None], parts])
    gap, tolerance = check_sum(parts, output)
    norm = np.linalg.norm(parts, axis=(1, 2))
    res = output - output.mean(axis=0)
    return Contributions(
        tuple(labels),
        norm,
        residual_norm(parts) / np.where(norm > 0, norm, 1),
        np.einsum("knd,nd->k", parts, output) / np.sum(output**2),
        np.einsum("knd,nd->k", parts, res) / np.sum(res**2),
        gap,
        tolerance,
    )


def _written(step: Step, by: str) -> np.ndarray:
    """What heads, or all heads together, wrote, past the norm after them."""
    written = step.heads()
    written = written if by == "head" else written.sum(axis=0, keepdims=True)
    return frozen_norm(step.sublayer.after, step.scale_after, written)
