"""Windows on a token grid, shared by convolutions and average pooling."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp

from .base import choice


@dataclasses.dataclass(frozen=True)
class Window:
    """A window that slides over a grid.

    Output position a reads input positions a * stride + f - low, f = 0 .. size - 1, with
    low = (size - 1) // 2 for "same" and "circular" padding (aligned at index 0, whatever the
    length, so that padding equals truncation) and low = 0 for "valid".
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str

    @classmethod
    def of(cls, size, stride, padding: str) -> Window:
        size = _sizes("window", size)
        stride = _sizes("stride", stride)
        if len(stride) == 1:
            stride = stride * len(size)
        if len(stride) != len(size):
            raise ValueError(f"stride {stride} and window {size} must have the same length")
        return cls(size, stride, choice("padding", padding, ("same", "valid", "circular")))

    @property
    def count(self) -> int:
        return math.prod(self.size)

    def check(self, grid: tuple[int, ...], masked: bool, readout: bool, path: str) -> None:
        if readout or len(grid) != len(self.size):
            raise ValueError(
                f"{path.lstrip('/')} has a window of {len(self.size)} dimension(s), "
                + (
                    "but its input has no tokens left (after a pool or flatten)"
                    if readout
                    else f"but its tokens lie on a grid of {len(grid)}, {grid}; use a window such "
                    f"as {(3,) * len(grid)}"
                )
            )
        if self.padding == "circular" and masked:
            raise ValueError(
                f"{path.lstrip('/')}: circular padding with a mask is not defined; use "
                'padding="same" or inputs of full length'
            )
        if self.padding == "valid" and any(n < k for n, k in zip(grid, self.size, strict=True)):
            raise ValueError(
                f"{path.lstrip('/')}: the grid {grid} is smaller than the window {self.size}"
            )

    def out_grid(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        if self.padding == "valid":
            spans = zip(grid, self.size, self.stride, strict=True)
            return tuple((n - k) // s + 1 for n, k, s in spans)
        return tuple(-(-n // s) for n, s in zip(grid, self.stride, strict=True))

    def _padded(self, values, dim: int, axes: tuple[int, ...]):
        k, s = self.size[dim], self.stride[dim]
        if self.padding == "valid":
            return values
        low = (k - 1) // 2
        widths = [(0, 0)] * values.ndim
        for axis in axes:
            n = values.shape[axis]
            out = -(-n // s)
            widths[axis] = (low, max(0, (out - 1) * s + k - low - n))
        return jnp.pad(values, widths, mode="wrap" if self.padding == "circular" else "constant")

    def shifts(self, values, dim: int, axes: tuple[int, ...], sizes: tuple[int, ...]):
        """The input seen through window position f of one dimension, for every f."""
        values = self._padded(values, dim, axes)
        s = self.stride[dim]
        for f in range(self.size[dim]):
            index = [slice(None)] * values.ndim
            for axis, out in zip(axes, sizes, strict=True):
                index[axis] = slice(f, f + (out - 1) * s + 1, s)
            yield values[tuple(index)]

    def total(self, values, groups: tuple[tuple[int, tuple[int, ...]], ...]):
        """Sum over the window, moving all token groups together (convolution).

        `groups` holds, per group of grid axes, its first axis and its grid: one group for values
        per token, two for a kernel, which is summed along K_{a+f, b+f}.
        """
        for dim in range(len(self.size)):
            axes = tuple(start + dim for start, _ in groups)
            sizes = tuple(self.out_grid(grid)[dim] for _, grid in groups)
            values = sum_of(self.shifts(values, dim, axes, sizes))
        return values

    def kernel_total(self, K, grid_x, grid_y=None):
        """Sum_f K_{a+f, b+f} of `(*lead, S1, S2)`, or sum_f K_{a+f} of `(*lead, S)`."""
        lead = K.shape[: K.ndim - (1 if grid_y is None else 2)]
        grids = (grid_x,) if grid_y is None else (grid_x, grid_y)
        starts = tuple(len(lead) + i * len(grid_x) for i in range(len(grids)))
        K = K.reshape(*lead, *itertools.chain(*grids))
        groups = tuple(zip(starts, grids, strict=True))
        if lead and jax.default_backend() == "cpu":
            # One input after the other: a loop is the only thing XLA on CPU does not merge across,
            # and merged it computes the layer before once per shift, without vector instructions.
            inner = tuple((start - 1, grid) for start, grid in groups)
            K = jax.lax.map(lambda part: self.total(part, inner), K)
        else:
            K = self.total(K, groups)
        return K.reshape(*lead, *(math.prod(self.out_grid(grid)) for grid in grids))

    def mask(self, mask, grid):
        """Valid output tokens: "same" needs the centre valid, "valid" the whole window."""
        if mask is None:
            return None
        if self.padding == "valid":
            whole = self.kernel_total(mask.astype(jnp.int32), grid)
            return whole == self.count
        lead = mask.shape[:-1]
        index = tuple(slice(None, None, s) for s in self.stride)
        return mask.reshape(*lead, *grid)[(..., *index)].reshape(*lead, -1)


def sum_of(terms) -> Any:
    """Sum without a starting zero."""
    total = None
    for term in terms:
        total = term if total is None else total + term
    return total


def _sizes(name: str, given) -> tuple[int, ...]:
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if len(sizes) not in (1, 2) or any(
        isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes
    ):
        raise ValueError(f"{name} must be one or two whole numbers of at least 1, got {given!r}")
    return sizes
