"""Two sets of inputs as one, for passes over all inputs together."""

from __future__ import annotations

import numpy as np


def joined(old, new):
    """Training inputs with new ones after them, padded to the training inputs' tokens."""
    (x, x_mask), (y, y_mask) = old, new
    if isinstance(x, tuple):
        if not isinstance(y, tuple) or len(y) != len(x):
            raise ValueError(f"the network was conditioned on {len(x)} inputs; give as many")
        masks = [m if m is not None else (None,) * len(x) for m in (x_mask, y_mask)]
        parts = [joined((x[i], masks[0][i]), (y[i], masks[1][i])) for i in range(len(x))]
        return tuple(p[0] for p in parts), tuple(p[1] for p in parts)
    x, y = np.asarray(x), np.asarray(y)
    if y.ndim != x.ndim or (x.ndim != 3 and y.shape[1:] != x.shape[1:]):
        raise ValueError(f"new inputs have shape {y.shape}, the training inputs {x.shape}")
    if x.ndim == 3 and y.shape[1] > x.shape[1]:
        raise ValueError(
            f"new inputs have {y.shape[1]} tokens and the training inputs {x.shape[1]}; condition "
            "on training inputs padded to the longest length, with x_mask"
        )
    if x.ndim == 3 and y.shape[1] < x.shape[1]:
        mask = np.ones(y.shape[:2], bool) if y_mask is None else np.asarray(y_mask)
        short = x.shape[1] - y.shape[1]
        y, y_mask = np.pad(y, ((0, 0), (0, short), (0, 0))), np.pad(mask, ((0, 0), (0, short)))
    mask = None
    if x_mask is not None or y_mask is not None:
        lead = [a.shape[:-1] for a in (x, y)]
        masks = [
            np.ones(shape, bool) if m is None else np.asarray(m)
            for m, shape in zip((x_mask, y_mask), lead, strict=True)
        ]
        mask = np.concatenate(masks)
    return np.concatenate([x, y]), mask
