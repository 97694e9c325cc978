"""Activations of real transformers, as gates: act(z) = gate(z) z.

With its gate frozen an activation is linear, which is how an MLP stands inside a path (theory 4).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtr


def _tanh_gate(z: np.ndarray) -> np.ndarray:
    small = np.abs(z) < 1e-4
    safe = np.where(small, np.ones_like(z), z)
    return np.where(small, 1 - z * z / 3, np.tanh(safe) / safe)


def _gelu_tanh(z: np.ndarray) -> np.ndarray:
    return (1 + np.tanh(np.sqrt(2 / np.pi).astype(z.dtype) * (z + 0.044715 * z * z * z))) / 2


GATES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": ndtr,
    "gelu_tanh": _gelu_tanh,
    "quick_gelu": lambda z: expit(1.702 * z),
    "silu": expit,
    "relu": lambda z: (z > 0).astype(z.dtype),
    "relu2": lambda z: np.maximum(z, 0),
    "tanh": _tanh_gate,
    "identity": np.ones_like,
}
_SYNONYMS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
    "swish": "silu",
    "linear": "identity",
}


def activation_name(name: str) -> str:
    """The name in `GATES` of an activation as configurations call it.

    Raises:
        ValueError: none of these.

    Example:
        >>> activation_name("gelu_new")
        'gelu_tanh'
    """
    found = _SYNONYMS.get(name, name)
    if found not in GATES:
        known = ", ".join(sorted({*GATES, *_SYNONYMS}))
        raise ValueError(f"unknown activation {name!r}; known are {known}")
    return found


def gate(name: str, z: np.ndarray) -> np.ndarray:
    """gate(z) with act(z) = gate(z) z, for a name in `GATES`.

    Example:
        >>> z = np.array([-1.0, 0.0, 2.0])
        >>> gate("relu", z) * z
        array([-0.,  0.,  2.])
    """
    return GATES[name](z)
