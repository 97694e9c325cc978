"""Tokens as the collapse metrics read them: activations or a token kernel, checked, in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Tokens:
    """Valid tokens of one or more inputs; padded ones are zero.

    Attributes:
        X: `(*batch, S, channels)` activations, or None.
        K: `(*batch, S, S)` token kernel, or None.
        mask: `(*batch, S)`, True where a token is valid.
        n: `(*batch,)` numbers of valid tokens, at least 2.
        eps: relative rounding of the type that was given.
    """

    X: Any
    K: Any
    mask: np.ndarray
    n: np.ndarray
    eps: float

    @property
    def squares(self) -> Any:
        """`(*batch, S)` squared token norms, up to one factor for all tokens."""
        if self.X is not None:
            return np.sum(self.X**2, axis=-1)
        return np.maximum(np.diagonal(self.K, axis1=-2, axis2=-1), 0.0)


def tokens(x=None, kernel=None, mask=None) -> Tokens:
    """Activations `(*batch, S, channels)` or a token kernel `(*batch, S, S)`, checked.

    Raises:
        ValueError: neither or both are given, a shape is wrong, a value is not finite, or an input
            has fewer than two valid tokens.
    """
    if (x is None) == (kernel is None):
        raise ValueError(
            "give activations (tokens, channels), or kernel= a token kernel (tokens, tokens), "
            "and not both"
        )
    given = np.asarray(kernel if x is None else x)
    eps = rounding(given)
    values = given.astype(float)
    what = "kernel" if x is None else "activations"
    if values.ndim < 2 or (x is None and values.shape[-1] != values.shape[-2]):
        shape = "(..., tokens, tokens)" if x is None else "(..., tokens, channels)"
        raise ValueError(f"{what} must have shape {shape}, got {given.shape}")
    batch, S = values.shape[:-2], values.shape[-2]
    valid = valid_tokens(mask, batch, S)
    values = np.where(valid[..., :, None], values, 0.0)
    if x is None:
        values = np.where(valid[..., None, :], values, 0.0)
    bad = ~np.isfinite(values).all(axis=(-2, -1))
    if bad.any():
        raise ValueError(f"{what} of {rows(bad)} hold values that are not finite")
    n = np.asarray(valid.sum(axis=-1))
    if (n < 2).any():
        raise ValueError(
            f"{rows(n < 2)} have fewer than two valid tokens; collapse compares tokens, so leave "
            "these inputs out"
        )
    if x is None:
        _check_kernel(values, eps)
        return Tokens(None, values, valid, n, eps)
    return Tokens(values, None, valid, n, eps)


def scaled(values: np.ndarray) -> np.ndarray:
    """Each matrix of a batch times a power of two, with entries of at most 1, safe to square."""
    size = np.abs(values).max(axis=(-2, -1), keepdims=True)
    return np.ldexp(values, -np.frexp(np.where(size > 0, size, 1.0))[1])


def _check_kernel(K: np.ndarray, eps: float) -> None:
    slack = np.sqrt(eps) * np.abs(K).max(axis=(-2, -1), keepdims=True)
    skew = (np.abs(K - np.swapaxes(K, -2, -1)) > slack).any(axis=(-2, -1))
    if skew.any():
        raise ValueError(
            f"kernel of {rows(skew)} is not symmetric; give K(x, x) of single inputs, for example "
            "net.kernel(x[:1]).nngp[0, 0]"
        )
    negative = (np.diagonal(K, axis1=-2, axis2=-1) < -slack[..., 0]).any(axis=-1)
    if negative.any():
        raise ValueError(f"kernel of {rows(negative)} has a negative variance on its diagonal")


def valid_tokens(mask, batch: tuple[int, ...], S: int) -> np.ndarray:
    """`(*batch, S)` bool from a mask or None, checked."""
    if mask is None:
        return np.ones((*batch, S), bool)
    valid = np.asarray(mask)
    if valid.dtype != bool:
        raise ValueError(f"mask must be bool, True where a token is valid, got {valid.dtype}")
    try:
        return np.broadcast_to(valid, (*batch, S))
    except ValueError:
        raise ValueError(f"mask must have shape {(*batch, S)}, got {valid.shape}") from None


def rounding(given: np.ndarray) -> float:
    """Relative rounding of the type of an array, at least that of float64."""
    if jnp.issubdtype(given.dtype, jnp.floating):
        return float(max(jnp.finfo(given.dtype).eps, np.finfo(float).eps))
    if np.issubdtype(given.dtype, np.integer):
        return float(np.finfo(float).eps)
    raise TypeError(f"tokens must be real numbers, got dtype {given.dtype}")


def rows(bad: Any) -> str:
    """Which inputs: 'the input', or 'inputs 0, 3, ...'."""
    if not np.ndim(bad):
        return "the input"
    index = [i[0] if len(i) == 1 else tuple(i) for i in np.argwhere(bad).tolist()]
    shown = ", ".join(str(i) for i in index[:5]) + (", ..." if len(index) > 5 else "")
    return f"inputs {shown}"
