"""Posterior variances of any number of new inputs under a stored kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..kernel.gram import DRAWS, KINDS, diagonal
from ..kernel.memory import memory_budget
from ..kernel.progress import Progress
from ..layers.base import Layer, choice
from .compute import Tiles
from .gram import gram, layout_of
from .inputs import Inputs, inputs_of
from .solver import solver

BATCH = 256
"""New inputs that are solved for together."""


@dataclasses.dataclass(frozen=True, eq=False)
class Variances:
    """Posterior variances, the same for every output.

    Attributes:
        value: `(m,)`, without the noise of a new observation.
        residual: largest relative residual of the solves behind them.
        method: "cholesky", "disk" or "cg".
    """

    value: np.ndarray
    residual: float
    method: str


def variance(
    net: Layer,
    x,
    K: Any,
    x_new,
    *,
    kind: str = "nngp",
    noise: Any = 1e-2,
    x_mask=None,
    x_new_mask=None,
    dtype: Any = np.float64,
    batch: int = BATCH,
    memory=None,
    store=None,
    scheduler: Any = None,
    progress: bool | Callable = False,
    **options,
) -> Variances:
    """k(x*, x*) - k(x*, x) (K + D)^{-1} k(x, x*) of new inputs, in batches of right-hand sides.

    A solve to a relative residual r is wrong by at most r |k(x, x*)|^2 / min(D).

    Args:
        net: the network; without `store` no scores may be drawn (their kernels are estimates).
        x, x_mask: training inputs, those of K.
        K: the finished Gram matrix of x, such as `gram.nngp`.
        x_new, x_new_mask: any number of new inputs, arrays or memory maps.
        kind: of the kernel, "nngp" or "ntk" (the Gaussian process whose kernel is the NTK).
        noise: D, as for `solve`.
        dtype, memory: as for `lf.gram`.
        batch: new inputs at a time; memory holds `batch` rows of K(x_new, x), and "cg" reads K
            once an iteration for each batch.
        store: where K(x_new, x) goes, resumable as any Gram matrix; without it no kernel is kept.
        scheduler: workers that compute K(x_new, x), which needs `store`, and multiply with K.
        progress: True, or a function `(done, total, seconds left)` of batches.
        options: others of `solve`: method, tolerance, limit, rank, seed, scratch.

    Example:
        >>> import numpy as np, limitformer as lf
        >>> net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
        >>> x = np.array([[0.0, 1.0], [1.0, 0.0]])
        >>> found = lf.tiles.variance(net, x, net.kernel(x).nngp, x, noise=1e-9)
        >>> bool(np.all(np.abs(found.value) < 1e-8)), found.method
        (True, 'cholesky')
    """
    choice("kind", kind, KINDS)
    if batch < 1:
        raise ValueError(f"batch={batch}: solve for at least one new input at a time")
    train, new = inputs_of(x, x_mask, "x"), inputs_of(x_new, x_new_mask, "x_new")
    if np.shape(K)[:1] != (train.n,):
        raise ValueError(f"K has shape {np.shape(K)}, but x has {train.n} inputs")
    if store is None and scheduler is None:
        rows = _computed(net, train, new, kind, dtype, batch, memory)
    else:
        masks = {"x_mask": x_new_mask, "y_mask": x_mask}
        about = {"kinds": kind, "dtype": dtype, "memory": memory, "store": store, **masks}
        rows = _stored(getattr(gram(net, x_new, x, scheduler=scheduler, **about), kind), batch)
    report, total = Progress.of(progress), -(-new.n // batch)
    value, worst = np.empty(new.n), 0.0
    with solver(K, noise, memory=memory, scheduler=scheduler, **options) as inverse:
        for done, (index, k) in enumerate(rows, 1):
            found = inverse.apply(k.T)
            value[index] = -np.sum(k.T * found.X, axis=0)
            worst = max(worst, found.residual)
            if report is not None:
                report(done, total)
    for start in range(0, new.n, batch):
        part = slice(start, min(start + batch, new.n))
        index = part if new.order is None else new.order[part]
        own = diagonal(net, *new.rows(part), kinds=kind, dtype=dtype, memory=memory)
        value[index] += np.asarray(getattr(own, kind), np.float64)
    return Variances(value, worst, inverse.method)


def _stored(K, batch: int) -> Iterator[tuple[Any, np.ndarray]]:
    for start in range(0, K.shape[0], batch):
        part = slice(start, min(start + batch, K.shape[0]))
        yield part, K.rows(part.start, part.stop).astype(np.float64, copy=False)


def _computed(
    net: Layer, train: Inputs, new: Inputs, kind: str, dtype, batch: int, memory
) -> Iterator[tuple[Any, np.ndarray]]:
    """Rows of K(x_new, x), those of the caller's order that `index` says."""
    layout = layout_of(net, new, train, np.dtype(dtype), batch)
    tiles = Tiles(net, layout, new, train, (kind,), dtype, None, DRAWS, memory_budget(memory))
    if tiles.random:
        raise ValueError(
            "the network draws scores, and its kernel is an estimate; keep it: "
            'variance(..., store="K_new.zarr")'
        )
    back = slice(None) if train.order is None else np.argsort(train.order)
    for i in range(layout.grid[0]):
        parts = [tiles(i, j)[kind] for j in range(layout.grid[1])]
        index = layout.row(i) if new.order is None else new.order[layout.row(i)]
        yield index, np.concatenate(parts, axis=1).astype(np.float64, copy=False)[:, back]
