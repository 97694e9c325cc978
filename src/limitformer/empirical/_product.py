"""Products of a finite network's NTK with vectors, without the NTK."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree
from numpy import ndarray

from limitformer.empirical._network import (
    Network,
    blocks,
    check_batch,
    check_params,
    describe_pair,
    join,
    precision_of,
    split,
)


class NTKProduct(eqx.Module):
    """The linear map v -> T(x, y) v of a network; made by `ntk_vp`."""

    f: Network
    params: PyTree
    x: Any
    y: Any
    batch: int | None = eqx.field(static=True)

    def __call__(self, v: Any) -> Float[Array | ndarray, "n *tokens outputs"]:
        """T(x, y) v, in the shape of f(params, x)."""
        with precision_of(self.params, self.x, self.y, v) as finish:
            left, right = describe_pair(self.f, self.params, self.x, self.y)
            if jnp.shape(v) != right.shape:
                raise ValueError(
                    f"v must have the shape of f(params, {'x' if self.y is None else 'y'}), "
                    f"{right.shape}, got {jnp.shape(v)}."
                )
            v = jnp.asarray(v).astype(right.dtype)
            y = self.x if self.y is None else self.y
            tangent = None
            for block in blocks(right.n, self.batch or right.n):
                # Inputs a block sees again must not count again.
                old = jnp.arange(block.size) < block.size - block.keep
                part = jnp.where(
                    old.reshape(-1, *(1,) * (v.ndim - 1)), jnp.zeros((), v.dtype), block.take(v)
                )
                pulled = _pull(self.f, self.params, block.take(y), part)
                tangent = pulled if tangent is None else jax.tree.map(jnp.add, tangent, pulled)
            parts = [
                _push(self.f, self.params, block.take(self.x), tangent)[block.size - block.keep :]
                for block in blocks(left.n, self.batch or left.n)
            ]
            return finish(jnp.concatenate(parts))


def ntk_vp(
    f: Network, params: PyTree, x: PyTree, y: PyTree | None = None, *, batch: int | None = None
) -> NTKProduct:
    """Products with the NTK of a network, each at the cost of a gradient and a derivative.

        (T v)_ao(x_i) = sum_jbq T_ab,oq(x_i, y_j) v_jbq
                      = df_ao(x_i)/dw . [ sum_jbq v_jbq df_bq(y_j)/dw ]

    the derivative at x (jvp) along the gradient at y (vjp): all outputs and tokens, no average,
    so it is `ntk(..., outputs="full")` as a matrix. Ready for conjugate gradients or Lanczos.

    Args:
        f: `f(params, x)` of shape (n, outputs) or (n, tokens, outputs).
        params: any pytree with floating-point arrays.
        x: inputs on the leading axis, an array or a pytree of arrays.
        y: the other inputs; None means x.
        batch: inputs per pass; None: all at once.

    Returns:
        A callable that takes v in the shape of f(params, y) and returns T v in the shape of
        f(params, x). It may be called under `jax.jit` and `jax.vmap`.

    Raises:
        ValueError: no inputs, nothing to differentiate by, outputs that are not (n, outputs) or
            (n, tokens, outputs); when called, v of another shape than f(params, y).
        TypeError: outputs that are not real floating-point numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> from limitformer import empirical
        >>> linear = lambda w, x: x @ w
        >>> x = jnp.array([[1.0, 2.0], [0.0, 4.0]])
        >>> product = empirical.ntk_vp(linear, jnp.ones((2, 1)), x)
        >>> product(jnp.array([[1.0], [1.0]])).tolist()  # x x^T 1
        [[13.0], [24.0]]
    """
    check_batch(batch)
    check_params(params)
    with precision_of(params, x, y):
        describe_pair(f, params, x, y)
    return NTKProduct(f, params, x, y, batch)


@eqx.filter_jit
def _pull(f, params, y, v):
    trained, fixed = split(params)
    return jax.vjp(lambda trained: f(join(trained, fixed), y), trained)[1](v)[0]


@eqx.filter_jit
def _push(f, params, x, tangent):
    trained, fixed = split(params)
    return jax.jvp(lambda trained: f(join(trained, fixed), x), (trained,), (tangent,))[1]
