"""What the adapters share: a network's kernel as a matrix, a diagonal, or a number."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..kernel.gram import KINDS
from ..kernel.inputs import as_arrays, float_type
from ..kernel.network import cast
from ..layers.base import Layer, leaves
from ..layers.dropout import Dropout


def prepared(net: Layer, kind: str, dtype) -> tuple[Any, Any]:
    """The network with hyper-parameters as arrays, and the type that kernels are computed in.

    Raises:
        ValueError: an unknown kind, or float64 while JAX's 64-bit switch is off.
    """
    if kind not in KINDS:
        raise ValueError(f'kind={kind!r}; choose "nngp" or "ntk"')
    if dtype is not None:
        dtype = np.dtype(dtype)
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise ValueError(
                f"dtype={dtype.name} while JAX's 64-bit switch is off; first run "
                'jax.config.update("jax_enable_x64", True)'
            )
    return cast(net, jnp.result_type(float) if dtype is None else dtype), dtype


def matrix(net, x, y, kind: str, dtype, x_mask=None, y_mask=None) -> jax.Array:
    """The kernel of all pairs, (n, m); y=None means y is x."""
    arrays = as_arrays(x, "x") + (() if y is None else as_arrays(y, "y"))
    if dtype is None:
        dtype = jax.dtypes.canonicalize_dtype(float_type(arrays, None))
    K = jnp.asarray(getattr(net.kernel(x, y, x_mask, y_mask, kinds=(kind,), dtype=dtype), kind))
    if K.ndim != 2:
        raise ValueError(
            f"the network has no readout, its kernel has shape {K.shape}; add lf.MeanPool() or "
            "another pool, so that one input has one value"
        )
    return K


def pair(net, x, y, kind: str, dtype, x_mask=None, y_mask=None) -> jax.Array:
    """The kernel of one pair of inputs.

    Raises:
        NotImplementedError: the network has `Dropout`, whose K(x, x) is not the limit of K(x, y).
    """
    if any(isinstance(leaf, Dropout) for _, leaf in leaves(net)):
        raise NotImplementedError(
            "a network with Dropout cannot be evaluated pair by pair: two equal inputs are not one "
            "input. Use its kernel alone (no sums or products with others), or leave Dropout out"
        )
    x, y, x_mask, y_mask = jax.tree.map(lambda a: jnp.asarray(a)[None], (x, y, x_mask, y_mask))
    return matrix(net, x, y, kind, dtype, x_mask, y_mask)[0, 0]


def diagonal(net, x, kind: str, dtype, x_mask=None) -> jax.Array:
    """The kernel of every input with itself, (n,)."""

    def own(one):
        x, x_mask = jax.tree.map(lambda a: a[None], one)
        return matrix(net, x, None, kind, dtype, x_mask)[0, 0]

    return jax.vmap(own)(jax.tree.map(jnp.asarray, (x, x_mask)))
