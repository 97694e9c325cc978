"""The other reading of a path: a network of its own, whose attention sees only that path."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from ..models.forward import run_sublayer
from ..models.inputs import stream
from ..models.spec import Attention, Model, Sublayer
from .paths_single import SKIP, sample_paths


def recompute_paths(model: Model, x: Any, paths: Any) -> np.ndarray:
    """(m, n, d): the output of the network that consists of one path, for each path.

    Dong 2021's way to judge paths ("recompute"): in every attention layer only the skip or only the
    one head is there, and attention maps, norms and MLPs are computed anew from what arrives. These
    outputs do not add up to the model's; `run_paths` freezes instead, and its parts do.

    Args:
        model, x: as for `path_decomposition`.
        paths: (m, L) integers; the head taken in each attention layer, or -1 for the skip.
    """
    paths = np.asarray(paths)
    if paths.ndim != 2 or paths.shape[1] != model.depth:
        raise ValueError(f"paths have shape (m, {model.depth}), got {paths.shape}")
    start = stream(model, x)
    outputs = []
    for path in paths:
        h, layer = start, -1
        for sublayer in model.sublayers:
            if isinstance(sublayer.branch, Attention):
                layer += 1
                sublayer = _only(sublayer, int(path[layer]))
            h = run_sublayer(sublayer, h).after
        outputs.append(h)
    return np.stack(outputs)


def recomputed_mean(model: Model, x: Any, length: int, *, key, draws: int = 16) -> np.ndarray:
    """(n, d): mean output of `recompute_paths` over uniformly drawn paths of one length."""
    if not 0 <= length <= model.depth:
        raise ValueError(f"length must be from 0 to {model.depth}, got {length}")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    paths, _ = sample_paths([np.ones(H) for H in model.heads], length, draws, rng)
    return recompute_paths(model, x, paths).mean(axis=0)


def _only(sublayer: Sublayer, head: int) -> Sublayer:
    """An attention sublayer with nothing but its skip, or nothing but one head."""
    if head == SKIP:
        return dataclasses.replace(sublayer, branch=None, skip=sublayer.skip)
    a = sublayer.branch
    if not isinstance(a, Attention):
        raise TypeError(f"{sublayer.name} has no attention")
    g, at = int(a.group[head]), slice(head, head + 1)
    group = slice(g, g + 1)
    relative = a.relative
    if relative is not None:
        relative = dataclasses.replace(
            relative, W_R=relative.W_R[at], b_W=relative.b_W[at], b_R=relative.b_R[at]
        )
    one = dataclasses.replace(
        a,
        W_Q=a.W_Q[at],
        W_K=a.W_K[group],
        W_V=a.W_V[group],
        W_O=a.W_O[at],
        b_Q=None if a.b_Q is None else a.b_Q[at],
        b_K=None if a.b_K is None else a.b_K[group],
        b_V=None if a.b_V is None else a.b_V[group],
        relative=relative,
    )
    return dataclasses.replace(sublayer, branch=one, skip=0.0)
