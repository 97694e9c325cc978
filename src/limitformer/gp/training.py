"""The training side of a posterior: checked targets, and kernels as matrices."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..kernel.gram import DRAWS, Kernel, diagonal
from ..layers.base import Layer
from .replicates import centred

KINDS = {"nngp": ("nngp",), "ntk": ("nngp", "ntk"), "ntkgp": ("ntk",)}
"""Kernels that each kind of posterior reads."""


@dataclasses.dataclass(frozen=True)
class KernelOptions:
    """How kernels are computed, the same for training and new inputs."""

    dtype: Any = None
    key: Any = None
    draws: int = DRAWS
    memory: Any = None

    def as_dict(self) -> dict:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


@dataclasses.dataclass(frozen=True)
class Replicated:
    """A kernel matrix, with its deviations `(R, ...)` over replicates if it is an estimate."""

    value: np.ndarray
    deviations: np.ndarray | None = None

    @classmethod
    def of(cls, array: np.ndarray, replicated: bool) -> Replicated:
        return cls(*centred(array)) if replicated else cls(array)

    def take(self, *index) -> Replicated:
        """The same rows or columns of the value and of every deviation."""
        moved = None if self.deviations is None else self.deviations[(slice(None), *index)]
        return Replicated(self.value[index], moved)


def kernels(net: Layer, x, x_mask, y, y_mask, kinds, options: KernelOptions, progress=False):
    """The kernels between two sets of inputs as matrices (tokens become rows), by kind."""
    k = net.kernel(
        x, y, x_mask, y_mask, kinds=kinds, replicates="each", progress=progress, **options.as_dict()
    )
    return {kind: Replicated.of(_matrix(getattr(k, kind), k), bool(k.replicates)) for kind in kinds}


def own_kernels(net: Layer, x, x_mask, kinds, options: KernelOptions) -> dict[str, np.ndarray]:
    """K(x_i, x_i) of every row of the matrix above, by kind."""
    k = diagonal(net, x, x_mask, kinds=kinds, **options.as_dict())
    result = {}
    for kind in kinds:
        own = np.asarray(getattr(k, kind))
        result[kind] = own if own.ndim == 1 else np.diagonal(own, axis1=1, axis2=2).reshape(-1)
    return result


def _matrix(kernel, k: Kernel) -> np.ndarray:
    array = np.asarray(kernel)
    lead = 1 if k.replicates else 0
    if array.ndim == lead + 2:
        return array
    n, m, S1, S2 = array.shape[lead:]
    return np.swapaxes(array, lead + 1, lead + 2).reshape(*array.shape[:lead], n * S1, m * S2)


def count(x) -> int:
    """Number of inputs."""
    return len(x[0] if isinstance(x, tuple) else x)


def rows(x, mask, index) -> tuple[Any, Any]:
    """Some of the inputs with their masks."""

    def take(a):
        return a[index] if a is not None else None

    x = tuple(take(a) for a in x) if isinstance(x, tuple) else take(x)
    mask = tuple(take(a) for a in mask) if isinstance(mask, tuple) else take(mask)
    return x, mask


def check_targets(targets, n: int) -> np.ndarray:
    """Targets in float64, `(n,)`, `(n, outputs)` or `(n, tokens, outputs)`."""
    y = np.asarray(targets)
    if not (np.issubdtype(y.dtype, np.number) or y.dtype == bool) or np.iscomplexobj(y):
        raise TypeError(
            f"targets have dtype {y.dtype}; conditioning takes real numbers (for classes use "
            "lf.classify)"
        )
    if y.ndim not in (1, 2, 3) or len(y) != n:
        raise ValueError(
            f"targets have shape {y.shape}; expected ({n},), ({n}, outputs) or "
            f"({n}, tokens, outputs) for {n} inputs"
        )
    if y.size == 0:
        raise ValueError(f"targets have shape {y.shape}: they are empty")
    y = y.astype(np.float64)
    if y.ndim < 3 and not np.isfinite(y).all():
        bad = np.flatnonzero(~np.isfinite(y.reshape(n, -1)).all(axis=1))
        raise ValueError(
            f"targets have NaN or infinite values in rows {bad[:8].tolist()}; drop these rows"
        )
    return y


def token_rows(targets: np.ndarray, size: int, x_mask) -> np.ndarray | None:
    """Rows of the kernel matrix that have a target, or None if all have."""
    n = len(targets)
    if targets.ndim == 3:
        if size != n * targets.shape[1]:
            raise ValueError(
                f"targets of shape {targets.shape} are token by token, but the network's output "
                f"has {size // n} token(s) an input; "
                + (
                    "take its readout (MeanPool, Flatten, ...) away, or give targets (n, outputs)"
                    if size == n
                    else "give as many tokens"
                )
            )
        if x_mask is None:
            valid = np.ones(targets.shape[:2], bool)
        else:
            mask = x_mask[0] if isinstance(x_mask, tuple) else x_mask
            valid = np.asarray(mask).reshape(n, -1)
        if not np.isfinite(targets[valid]).all():
            bad = np.argwhere(valid & ~np.isfinite(targets).all(axis=2))
            raise ValueError(
                f"targets have NaN or infinite values at (input, token) {bad[:4].tolist()}; mask "
                "these tokens with x_mask"
            )
        return None if valid.all() else np.flatnonzero(valid)
    if size != n:
        raise ValueError(
            f"targets of shape {targets.shape} are one per input, but the network's output has "
            f"{size // n} tokens an input; end it with a readout such as lf.MeanPool(), or give "
            "targets (n, tokens, outputs)"
        )
    return None
