"""Norms over channels, and biases that may be absent."""

from __future__ import annotations

import numpy as np

from .spec import Norm


def normalise(norm: Norm, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The normalised stream, and 1 / sigma of every token."""
    centred = h - h.mean(axis=-1, keepdims=True) if norm.centred else h
    scale = 1 / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + h.dtype.type(norm.eps))
    return plus(centred * scale * norm.gain, norm.bias), scale


def plus(x: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """x + b, where b may be None."""
    return x if b is None else x + b
