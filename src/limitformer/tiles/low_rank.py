"""Kernels of low rank for millions of inputs: inducing inputs, and features of finite twins.

Both are feature maps phi with K(x, y) close to phi(x) . phi(y); ridge regression on r features
costs n r^2 work and r^2 memory, whatever n is. How close is measured on exact entries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.linalg

from ..kernel.gram import KINDS
from ..layers.base import Layer, choice
from .inputs import Inputs, inputs_of
from .matrix import Tiled

_ROWS = 1024  # inputs whose features are in memory at once


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """A feature map of a kernel; made by `inducing` or `twin_features`.

    Attributes:
        net: the network.
        kind: "nngp" or "ntk".
        rank: features of an input.
        of: `of(x, mask)`, features `(n, rank)` of some inputs in float64.
        half: of inducing inputs z, the matrix that makes features of rows of K(x, z); else None.
    """

    net: Layer
    kind: str
    rank: int
    of: Callable[[Any, Any], np.ndarray]
    half: np.ndarray | None = None

    def __call__(self, x, x_mask=None) -> np.ndarray:
        """Features of inputs, `(n, rank)`."""
        given = inputs_of(x, x_mask, "x")
        return np.concatenate([phi for _, phi in self.blocks(given)])

    def blocks(self, inputs: Inputs | Tiled):
        """Blocks of rows with their features."""
        if isinstance(inputs, Tiled):
            yield from self._stored(inputs)
            return
        if inputs.lengths is not None:
            raise ValueError("pad sequences of different lengths and pass x_mask")
        for start in range(0, inputs.n, _ROWS):
            part = slice(start, min(start + _ROWS, inputs.n))
            yield part, self.of(*inputs.rows(part))

    def _stored(self, K: Tiled):
        """Blocks of features from stored rows of K(x, z)."""
        if self.half is None or K.shape[1:] != self.half.shape[:1]:
            raise ValueError(
                f"a stored kernel of shape {K.shape} is not K(x, z) of these features; give the "
                "lf.gram(net, x, z, store=) of the inducing inputs z"
            )
        for start in range(0, K.shape[0], _ROWS):
            part = slice(start, min(start + _ROWS, K.shape[0]))
            yield part, K.rows(part.start, part.stop).astype(np.float64, copy=False) @ self.half


@dataclasses.dataclass(frozen=True)
class KernelError:
    """How far a feature map is from the kernel, on pairs that were left out.

    Attributes:
        value: root mean square of phi(x) . phi(y) - K(x, y), relative to that of K.
        sem: its standard error over the pairs.
        pairs: exact entries that were compared.
    """

    value: float
    sem: float
    pairs: int


@dataclasses.dataclass(frozen=True, eq=False)
class Ridge:
    """Regression on features: mean(x) = phi(x) w.

    Attributes:
        features: the feature map.
        w: `(rank, outputs)` or `(rank,)`.
    """

    features: Features
    w: np.ndarray

    def predict(self, x, x_mask=None) -> np.ndarray:
        """Means of any number of inputs (or of a stored K(x, z)), a block of rows at a time."""
        given = _given(x, x_mask)
        return np.concatenate([phi @ self.w for _, phi in self.features.blocks(given)])


def inducing(
    net: Layer, z, *, kind: str = "nngp", z_mask=None, dtype: Any = np.float64
) -> Features:
    """Features of inducing inputs: phi(x) = L^{-1} K(z, x) with L L^T = K(z, z).

    phi(x) . phi(y) = K(x, z) K(z, z)^{-1} K(z, y) is exact at z and never above K.

    Args:
        net: the network, whose kernel must be exact (no drawn scores).
        z, z_mask: inducing inputs, for example some rows of x.
        kind: "nngp" or "ntk".
        dtype: of the kernel.

    Example:
        >>> import numpy as np, limitformer as lf
        >>> net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
        >>> z = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> phi = lf.tiles.inducing(net, z)(z)
        >>> np.allclose(phi @ phi.T, net.kernel(z).nngp)
        True

    Reference:
        Quinonero-Candela, Rasmussen 2005 (subset of regressors).
    """
    choice("kind", kind, KINDS)
    K = np.asarray(getattr(net.kernel(z, x_mask=z_mask, kinds=kind, dtype=dtype), kind), float)
    if K.ndim != 2:
        raise ValueError("inducing inputs need a network with a readout such as lf.MeanPool()")
    w, Q = scipy.linalg.eigh(K)
    keep = w > 1e-12 * w[-1]
    half = Q[:, keep] / np.sqrt(w[keep])

    def of(x, mask) -> np.ndarray:
        k = net.kernel(x, z, mask, z_mask, kinds=kind, dtype=dtype)
        return np.asarray(getattr(k, kind), float) @ half

    return Features(net, kind, int(keep.sum()), of, half)


def twin_features(
    net: Layer, x, *, key, width: int, rank: int, heads: int = 1, **sizes
) -> Features:
    """Random features: the outputs of a finite twin, phi(x) = f(x) / sqrt(rank).

    E[phi(x) . phi(y)] goes to the NNGP as the width grows; the outputs share the layers below, so
    the error falls with the width as well as with the rank.

    Args:
        net: the network, ending in a layer with weights of its own (`lf.Dense`).
        x: some inputs, for their number of features.
        key: of the weights.
        width, heads: of the twin.
        rank: outputs, the number of features.
        sizes: others of `net.twin`, such as vocabulary.
    """
    if "vocabulary" not in sizes:
        sizes["features"] = int(np.shape(x)[-1])
    twin = net.twin(key=key, width=width, heads=heads, outputs=rank, **sizes)

    def of(inputs, mask) -> np.ndarray:
        values = np.asarray(twin(inputs) if mask is None else twin(inputs, mask), np.float64)
        if values.ndim != 2:
            raise ValueError("features need a network with a readout such as lf.MeanPool()")
        return values / np.sqrt(rank)

    return Features(net, "nngp", rank, of)


def kernel_error(
    features: Features, x, x_mask=None, *, side: int = 64, seed: int = 0
) -> KernelError:
    """Compare a feature map with exact entries between two random disjoint sets of inputs.

    Args:
        features: the map.
        x, x_mask: inputs that played no part in making it.
        side: inputs on each side, `side^2` entries.
        seed: which.
    """
    given = inputs_of(x, x_mask, "x")
    side = min(side, given.n // 2)
    if side < 2:
        raise ValueError(f"x has {given.n} inputs; the comparison needs at least 4")
    picks = np.random.default_rng(seed).permutation(given.n)
    a, b = (np.sort(picks[start : start + side]) for start in (0, side))
    rows = [_rows(given, index) for index in (a, b)]
    (xa, ma), (xb, mb) = rows
    exact = getattr(features.net.kernel(xa, xb, ma, mb, kinds=features.kind), features.kind)
    exact = np.asarray(exact, float)
    near = features.of(xa, ma) @ features.of(xb, mb).T
    square = np.square(near - exact).mean(axis=1)  # rows of the block as independent samples
    size = float(np.square(exact).mean())
    value = float(np.sqrt(square.mean() / size))
    sem = float(square.std(ddof=1) / np.sqrt(side) / size / (2 * value)) if value else 0.0
    return KernelError(value, sem, side * side)


def ridge(features: Features, x, y, *, noise: float, x_mask=None) -> Ridge:
    """Regression on features: w = (sum phi phi^T + noise I)^{-1} sum phi y.

    One pass over the inputs, in memory of the features of 1024 of them.

    Args:
        features: the map.
        x, x_mask: training inputs, arrays, memory maps or Zarr arrays; or, with inducing inputs z,
            a finished K(x, z) such as `lf.gram(net, x, z, store=, scheduler=).nngp`, which workers
            compute and a killed run resumes.
        y: `(n,)` or `(n, outputs)`.
        noise: variance of the targets' noise, above 0.
    """
    given = _given(x, x_mask)
    n = given.shape[0] if isinstance(given, Tiled) else given.n
    targets = np.asarray(y, np.float64)
    if targets.shape[:1] != (n,) or targets.ndim > 2:
        raise ValueError(f"y has shape {targets.shape}; expected ({n},) or ({n}, k)")
    if not noise > 0:
        raise ValueError(f"noise={noise!r} must be above 0")
    A = noise * np.eye(features.rank)
    b = np.zeros((features.rank, *targets.shape[1:]))
    for part, phi in features.blocks(given):
        A += phi.T @ phi
        b += phi.T @ targets[part]
    return Ridge(features, scipy.linalg.solve(A, b, assume_a="pos", check_finite=False))


def _given(x, mask) -> Inputs | Tiled:
    if not isinstance(x, Tiled):
        return inputs_of(x, mask, "x")
    x.check_complete()
    return x


def _rows(inputs: Inputs, index: np.ndarray) -> tuple[Any, Any]:
    pick = lambda a: None if a is None else np.asarray(a)[index]  # noqa: E731
    arrays, masks = tuple(map(pick, inputs.arrays)), tuple(map(pick, inputs.masks))
    if len(arrays) == 1:
        return arrays[0], masks[0]
    return jax.tree.map(np.asarray, arrays), None if all(m is None for m in masks) else masks
