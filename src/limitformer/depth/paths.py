"""A transformer as a sum over paths, by length: exact, and never enumerated (theory 4).

With attention maps, norms and MLPs frozen at their values on one input, the output is a sum over
paths: in every attention layer a path takes the skip or one of the H heads. Its length is the
number of heads. Biases and MLPs are sources: they join the part of length 0 where they enter, so
that a path P stands for everything that went through exactly its heads, and all paths together
are the output. Value biases go through the head that adds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..layers.base import choice
from ..models.forward import steps
from ..models.inputs import stream
from ..models.spec import Model
from .paths_frozen import advance

MLPS = ("source", "inside")


@dataclasses.dataclass(frozen=True, eq=False)
class Paths:
    """All paths of a model on one input, added up by length; made by `path_decomposition`.

    Attributes:
        S: (L + 1, n, d), the sum of all paths of each length.
        output: (n, d), of the model.
        counts: number of paths of each length, C(L, k) H^k.
        gap: ||sum_k S^(k) - output||_F / ||output||_F: the check that the parts are the model.
        tolerance: what the gap had to stay below.
        mlp: "source" or "inside".
    """

    S: np.ndarray
    output: np.ndarray
    counts: tuple[int, ...]
    gap: float
    tolerance: float
    mlp: str

    @property
    def norm(self) -> np.ndarray:
        """(L + 1,): ||S^(k)||_F."""
        return np.linalg.norm(self.S, axis=(1, 2))

    @property
    def residual(self) -> np.ndarray:
        """(L + 1,): ||res S^(k)||_F / ||S^(k)||_F, 0 where all tokens are the same."""
        return residual_norm(self.S) / np.where(self.norm > 0, self.norm, 1)

    @property
    def share(self) -> np.ndarray:
        """(L + 1,): signed shares <S^(k), output> / ||output||^2, which add up to 1."""
        return np.einsum("knd,nd->k", self.S, self.output) / np.sum(self.output**2)

    @property
    def residual_share(self) -> np.ndarray:
        """(L + 1,): the same of res S^(k) in res output: who tells tokens apart."""
        res = self.output - self.output.mean(axis=0)
        return np.einsum("knd,nd->k", self.S, res) / np.sum(res**2)

    def restricted(self, length: int) -> np.ndarray:
        """(n, d): the frozen model with paths of at most this length."""
        if not 0 <= length < len(self.S):
            raise ValueError(f"length must be from 0 to {len(self.S) - 1}, got {length}")
        return self.S[: length + 1].sum(axis=0)

    def effectiveness(self, metric: Callable[[np.ndarray], Any]) -> list[Any]:
        """A metric of the output (n, d) for the model with paths of length <= 0, 1, ..., L."""
        return [metric(self.restricted(k)) for k in range(len(self.S))]

    def __str__(self) -> str:
        head = f"{'length':>6} {'paths':>10} {'norm':>10} {'residual':>9} {'share':>8}"
        rows = zip(self.counts, self.norm, self.residual, self.share, strict=True)
        lines = [
            f"{k:6d} {count:10.4g} {norm:10.4g} {residual:9.4f} {share:8.4f}"
            for k, (count, norm, residual, share) in enumerate(rows)
        ]
        check = f"sum of parts - model: {self.gap:.1e} relative (tolerance {self.tolerance:.0e})"
        return "\n".join([head, *lines, check])


def path_decomposition(model: Model, x: Any, *, mlp: str = "source") -> Paths:
    """Add up all paths of each length, exactly.

        S_0^(0) = X,   S_l^(k) = S_{l-1}^(k) + sum_h A_lh S_{l-1}^(k-1) W_lh,   sum_k S_L^(k) = Y

    with frozen norms around it (before in pre-norm models; in post-norm models the frozen norm
    acts on skip and heads together). The work is that of L (L + 1) / 2 attention layers; the maps
    of one layer exist at a time.

    Args:
        model: of `limitformer.models`.
        x: one input: text, token ids, an image, or the stream (n, d).
        mlp: "source": what an MLP writes is a source of length 0. "inside": paths go through
            MLPs, whose gates act(z) / z are frozen.

    Raises:
        ArithmeticError: the parts do not add up to the model's output.

    Example:
        >>> from limitformer.models import from_spec
        >>> rng = np.random.default_rng(0)
        >>> heads = {"W_Q": (2, 4, 2), "W_K": (2, 4, 2), "W_V": (2, 4, 2), "W_O": (2, 2, 4)}
        >>> layer = {"attention": {name: rng.normal(size=shape) for name, shape in heads.items()}}
        >>> found = path_decomposition(from_spec({"layers": [layer] * 3}), rng.normal(size=(5, 4)))
        >>> found.counts
        (1, 6, 12, 8)
        >>> found.gap < 1e-12
        True

    Reference:
        Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, section 2.
    """
    choice("mlp", mlp, MLPS)
    S = stream(model, x)[None]
    output = S[0]
    for step in steps(model, x):
        S = advance(step, S, mlp == "inside")
        output = step.after
    gap, tolerance = check_sum(S, output)
    return Paths(S, output, path_counts(model.heads), gap, tolerance, mlp)


def path_counts(heads: Sequence[int]) -> tuple[int, ...]:
    """Number of paths of length 0, ..., L: C(L, k) H^k, or its kin where layers differ in H.

    Example:
        >>> path_counts((12,) * 3)
        (1, 36, 432, 1728)
    """
    counts = [1]
    for H in heads:
        counts = [a + H * b for a, b in zip([*counts, 0], [0, *counts], strict=True)]
    return tuple(counts)


def residual_norm(S: np.ndarray) -> np.ndarray:
    """||res S||_F of every (n, d) in a stack."""
    return np.asarray(np.linalg.norm(S - S.mean(axis=-2, keepdims=True), axis=(-2, -1)))


def check_sum(parts: np.ndarray, output: np.ndarray) -> tuple[float, float]:
    """The relative gap between the sum of parts and the output, and its tolerance.

    The tolerance is 1e-12 in float64 and 1e-5 in float32; it grows with parts that are larger than
    the output and cancel.

    Raises:
        ArithmeticError: the gap is larger.
    """
    size = float(np.linalg.norm(output))
    gap = float(np.linalg.norm(parts.sum(axis=0) - output)) / size
    larger = float(np.linalg.norm(parts, axis=(1, 2)).sum()) / size
    tolerance = (1e-12 if output.dtype == np.float64 else 1e-5) * max(1.0, larger)
    if not gap <= tolerance:
        raise ArithmeticError(
            f"the parts miss the model's output by {gap:.1e} relative, tolerance {tolerance:.0e}: "
            "the input or the weights reach the end of the floating-point range; use float64"
        )
    return gap, tolerance
