"""Predictions for any number of new inputs, from alpha and blocks of kernels that are not kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernel.gram import DRAWS, KINDS
from ..kernel.memory import memory_budget
from ..kernel.progress import Progress
from ..layers.base import Layer, choice
from .compute import Tiles
from .gram import gram, layout_of
from .inputs import inputs_of
from .product import product
from .schedule import runner


def predict(
    net: Layer,
    x,
    alpha,
    x_new,
    *,
    kind: str = "nngp",
    x_mask=None,
    x_new_mask=None,
    dtype: Any = np.float64,
    memory=None,
    tile: int | None = None,
    store=None,
    scheduler: Any = None,
    progress: bool | Callable = False,
) -> np.ndarray:
    """The posterior mean K(x_new, x) alpha, tile by tile; without `store` no kernel is kept.

    Args:
        net: the network; without `store` no scores may be drawn (their kernels are estimates).
        x, x_mask: training inputs, as for `lf.gram`.
        alpha: `(n,)` or `(n, outputs)`, from `solve`.
        x_new, x_new_mask: any number of new inputs, arrays or memory maps.
        kind: "nngp" or "ntk".
        dtype, memory, tile, progress: as for `lf.gram`.
        store: where K(x_new, x) goes, resumable as any Gram matrix.
        scheduler: workers that compute and multiply its tiles; needs `store`.

    Returns:
        float64, `(m,)` or `(m, outputs)`.
    """
    choice("kind", kind, KINDS)
    train, new = inputs_of(x, x_mask, "x"), inputs_of(x_new, x_new_mask, "x_new")
    weights = np.asarray(alpha, np.float64)
    if weights.shape[:1] != (train.n,) or weights.ndim > 2:
        raise ValueError(
            f"alpha has shape {weights.shape}; expected ({train.n},) or ({train.n}, outputs)"
        )
    if store is not None or scheduler is not None:
        K = gram(
            net,
            x_new,
            x,
            x_mask=x_new_mask,
            y_mask=x_mask,
            kinds=kind,
            store=store,
            scheduler=scheduler,
            progress=progress,
            memory=memory,
            dtype=dtype,
            tile=tile,
        )
        with runner(scheduler) as run:
            return product(getattr(K, kind), weights, None if scheduler is None else run)
    flat = weights.reshape(train.n, -1)
    flat = flat if train.order is None else flat[train.order]
    layout = layout_of(net, new, train, np.dtype(dtype), tile)
    if layout.tokens:
        raise ValueError("predictions need a network with a readout such as lf.MeanPool()")
    run = Tiles(net, layout, new, train, (kind,), dtype, None, DRAWS, memory_budget(memory))
    if run.random:
        raise ValueError(
            "the network draws scores, and its kernel is an estimate; keep it: "
            'predict(..., store="K_new.zarr")'
        )
    out = np.zeros((new.n, flat.shape[1]))
    report, todo = Progress.of(progress), layout.tiles()
    for done, (i, j) in enumerate(todo, 1):
        out[layout.row(i)] += run(i, j)[kind].astype(np.float64, copy=False) @ flat[layout.col(j)]
        if report is not None:
            report(done, len(todo))
    if new.order is not None:
        back = np.empty_like(out)
        back[new.order] = out
        out = back
    return out.reshape(new.n, *weights.shape[1:])
