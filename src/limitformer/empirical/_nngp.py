"""The sample NNGP of a finite network."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree
from numpy import ndarray

from limitformer.empirical._network import (
    Network,
    blocks,
    check_batch,
    describe_pair,
    precision_of,
    promote,
)


def nngp(
    f: Network, params: PyTree, x: PyTree, y: PyTree | None = None, *, batch: int | None = None
) -> Float[Array | ndarray, "n m *tokens"]:
    """Sample second moment of a network's outputs over its output channels.

        K_ab(x, y) = 1/O sum_c f_ac(x) f_bc(y)

    For a network whose O output channels are exchangeable this is an unbiased estimate of
    E[f_a(x) f_b(y)] at that width, with a relative error of about sqrt(2 / O).

    Args:
        f: `f(params, x)` of shape (n, outputs) or (n, tokens, outputs).
        params: any pytree.
        x: inputs on the leading axis, an array or a pytree of arrays (tokens and their mask, say).
        y: the other inputs; None means x. Its number of tokens may differ.
        batch: evaluate f on so many inputs at a time; None: all at once.

    Returns:
        (n, m), or (n, m, tokens of x, tokens of y) for token outputs.

    Raises:
        ValueError: no inputs, or outputs that are not (n, outputs) or (n, tokens, outputs).
        TypeError: outputs that are not real floating-point numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> from limitformer import empirical
        >>> linear = lambda w, x: x @ w
        >>> empirical.nngp(linear, jnp.eye(2), jnp.array([[1.0, 2.0], [0.0, 4.0]])).tolist()
        [[2.5, 4.0], [4.0, 8.0]]
    """
    check_batch(batch)
    with precision_of(params, x, y) as finish:
        left, right = describe_pair(f, params, x, y)
        fx = _outputs(f, params, x, batch or left.n, left.n)
        fy = fx if y is None else _outputs(f, params, y, batch or right.n, right.n)
        equation = "ic,jc->ij" if left.tokens is None else "iac,jbc->ijab"
        dtype = promote(fx.dtype, fy.dtype)
        K = jnp.einsum(
            equation, fx.astype(dtype), fy.astype(dtype), precision=lax.Precision.HIGHEST
        )
        return finish(K / left.outputs)


@eqx.filter_jit
def _evaluate(f, params, x):
    return f(params, x)


def _outputs(f, params, x, batch, n):
    parts = [
        _evaluate(f, params, block.take(x))[block.size - block.keep :] for block in blocks(n, batch)
    ]
    return jnp.concatenate(parts)
