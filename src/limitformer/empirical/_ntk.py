"""The NTK of a finite network, tile by tile."""

from typing import Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree
from numpy import ndarray

from limitformer.empirical._network import (
    Network,
    Output,
    blocks,
    check_batch,
    check_params,
    cost_of_one,
    describe_pair,
    join,
    precision_of,
    result_dtype,
    split,
)

Outputs = Literal["trace", "diagonal", "full"]
Method = Literal["jacobian", "vp", "auto"]

# Jacobians of one block of inputs, and tangents of one group of columns, stay below this.
_BLOCK_BYTES = 2**28


def ntk(
    f: Network,
    params: PyTree,
    x: PyTree,
    y: PyTree | None = None,
    *,
    outputs: str = "trace",
    method: str = "auto",
    batch: int | None = None,
) -> Float[Array | ndarray, "n m *rest"]:
    """Neural tangent kernel of a network at its parameters.

        T_ab,oq(x, y) = sum_w  df_ao(x)/dw  df_bq(y)/dw

    over all floating-point numbers w in `params` (integers and other leaves are held fixed, the
    two parts of a complex number are two parameters). Each output must depend on its own input
    only, as in every network without batch statistics.

    Args:
        f: `f(params, x)` of shape (n, outputs) or (n, tokens, outputs).
        params: any pytree with floating-point arrays. Results have its precision.
        x: inputs on the leading axis, an array or a pytree of arrays (tokens and their mask, say).
        y: the other inputs; None means x, at half the work and exactly symmetric. Its number of
            tokens may differ.
        outputs: `"trace"` averages over outputs, 1/O sum_o T_oo, which is what the limit is
            compared with; `"diagonal"` keeps each T_oo; `"full"` keeps all T_oq.
        method: `"jacobian"` contracts the two Jacobians of a tile parameter by parameter; `"vp"`
            makes each column as a derivative of a gradient (jvp of vjp) and holds no Jacobian;
            `"auto"` takes vp where it costs less by XLA's count of f, or where one input's
            Jacobian would exceed 256 MiB. Fully connected networks favour vp; pooled convolutions
            (few outputs, weights used at many places) favour Jacobians.
        batch: inputs per side of a tile; None: as many as fit about 256 MiB. The result does
            not depend on it. Under `jax.jit` tiles are unrolled into the program.

    Returns:
        (n, m), or (n, m, tokens of x, tokens of y) for token outputs; then `(outputs,)` for
        `"diagonal"`, `(outputs, outputs)` for `"full"`.

    Raises:
        ValueError: no inputs, nothing to differentiate by, outputs that are not (n, outputs) or
            (n, tokens, outputs), or an unknown option.
        TypeError: outputs that are not real floating-point numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> from limitformer import empirical
        >>> def two_layers(params, x):
        ...     return jnp.tanh(x @ params["w"]) @ params["v"]
        >>> params = {"w": jnp.zeros((2, 3)), "v": jnp.ones((3, 1))}
        >>> empirical.ntk(two_layers, params, jnp.array([[1.0, 2.0], [0.0, 4.0]])).tolist()
        [[15.0, 24.0], [24.0, 48.0]]

    Reference:
        Novak, Sohl-Dickstein, Schoenholz, *Fast finite width neural tangent kernel*,
        arXiv 2206.08720, compares the two methods.
    """
    if outputs not in get_args(Outputs):
        raise ValueError(f"outputs must be one of {get_args(Outputs)}, got {outputs!r}.")
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {get_args(Method)}, got {method!r}.")
    check_batch(batch)
    check_params(params)
    with precision_of(params, x, y) as finish:
        left, right = describe_pair(f, params, x, y)
        dtype = result_dtype(params, left, right)
        plan = _plan(f, params, x, left, right, outputs, method, batch, dtype)
        T = _tiles(f, params, x, y, left, right, outputs, plan, dtype)
        if left.tokens is None:
            T = T[:, :, 0, 0]
        return finish(T)


class _Plan(NamedTuple):
    method: str
    batch: int
    group: int  # columns made at a time by vp


def _plan(f, params, x, left: Output, right: Output, outputs, method, batch, dtype) -> _Plan:
    trained = jax.tree.leaves(eqx.filter_eval_shape(split, params)[0])
    weights = sum(leaf.size for leaf in trained)
    rows = max(left.rows, right.rows)
    gradient = weights * dtype.itemsize
    cost = None
    if method != "jacobian" or batch is None:
        cost = cost_of_one(f, params, x)
    # What one more tangent of one input's activations takes, beside the gradient itself.
    activations = max(cost.bytes - gradient, 0) if cost else 64 * left.rows * dtype.itemsize
    if method == "auto":
        # Per input of x and column of T: a product with s (or s O) rows of the Jacobian, bound by
        # memory rather than flops, hence the 2; or a linearised evaluation of f.
        contract = 2 * 2 * weights * (left.rows if outputs == "full" else left.rows / left.outputs)
        cheaper = cost is not None and 2 * cost.flops <= 1.1 * contract
        method = "vp" if cheaper or rows * gradient > _BLOCK_BYTES else "jacobian"
    if batch is None:
        per_input = rows * (gradient + activations) if method == "jacobian" else activations
        batch = max(1, int(_BLOCK_BYTES // max(per_input, 1)))
    group = int(_BLOCK_BYTES // max(gradient + min(batch, left.n) * activations, 1))
    return _Plan(method, batch, max(1, min(right.rows, group)))


def _tiles(f, params, x, y, left: Output, right: Output, outputs, plan: _Plan, dtype):
    method, batch, group = plan
    grid: list[list] = []
    columns = blocks(right.n, batch)
    for i, row in enumerate(blocks(left.n, batch)):
        xi = row.take(x)
        # One row block's Jacobian is kept while the column blocks pass by.
        Jx = _jacobian(f, params, xi) if method == "jacobian" else None
        grid.append([])
        for j, column in enumerate(columns):
            if y is None and j < i:
                grid[i].append(_swap(grid[j][i]))
                continue
            same = y is None and j == i
            yj = column.take(x if y is None else y)
            if Jx is not None:
                Jy = Jx if same else _jacobian(f, params, yj)
                tile = _contract(Jx, Jy, outputs, dtype)
            else:
                tile = _columns(f, params, xi, yj, outputs, group, dtype)
            if same:
                tile = (tile + _swap(tile)) / 2
            grid[i].append(tile[row.size - row.keep :, column.size - column.keep :])
    return jnp.concatenate([jnp.concatenate(line, axis=1) for line in grid])


def _swap(tile):
    """T(x, y) -> T(y, x)."""
    tile = jnp.swapaxes(jnp.swapaxes(tile, 0, 1), 2, 3)
    return jnp.swapaxes(tile, 4, 5) if tile.ndim == 6 else tile


def _one(f, fixed, x):
    """One input's outputs (tokens, outputs) as a function of the trained leaves."""

    def outputs(trained):
        out = f(join(trained, fixed), jax.tree.map(lambda leaf: leaf[None], x))[0]
        return out.reshape(-1, out.shape[-1])

    return outputs


@eqx.filter_jit
def _jacobian(f, params, x) -> list:
    """Per trained leaf: (inputs, tokens, outputs, size of the leaf)."""
    trained, fixed = split(params)
    J = jax.vmap(lambda one: jax.jacrev(_one(f, fixed, one))(trained))(x)
    return [leaf.reshape(*leaf.shape[:3], -1) for leaf in jax.tree.leaves(J)]


_EQUATIONS = {
    "trace": "iaw,jbw->ijab",  # outputs and weights are one axis
    "diagonal": "iaow,jbow->ijabo",
    "full": "iaow,jbqw->ijaboq",
}


@eqx.filter_jit
def _contract(Jx: list, Jy: list, outputs: str, dtype):
    count = Jx[0].shape[2]
    if outputs == "trace":
        Jx, Jy = ([leaf.reshape(*leaf.shape[:2], -1) for leaf in J] for J in (Jx, Jy))
    tiles = [
        jnp.einsum(
            _EQUATIONS[outputs],
            left,
            right,
            precision=lax.Precision.HIGHEST,
            preferred_element_type=dtype,
        )
        for left, right in zip(Jx, Jy, strict=True)
    ]
    total = sum(tiles[1:], start=tiles[0])
    return total / count if outputs == "trace" else total


@eqx.filter_jit
def _columns(f, params, x, y, outputs: str, group: int, dtype):
    """The same tile column by column: T(x, y) e = jvp at x of (vjp at y of e)."""
    trained, fixed = split(params)

    def on_x(trained):
        return jax.vmap(lambda one: _one(f, fixed, one)(trained))(x)

    _, push = jax.linearize(on_x, trained)

    def of_input(one):
        out, pull = jax.vjp(_one(f, fixed, one), trained)
        basis = jnp.eye(out.size, dtype=out.dtype).reshape(-1, *out.shape)
        output = jnp.tile(jnp.arange(out.shape[1]), out.shape[0])

        def column(args):
            cotangent, q = args
            T = push(*pull(cotangent)).astype(dtype)  # (inputs, tokens, outputs)
            return T if outputs == "full" else T[..., q]

        T = lax.map(column, (basis, output), batch_size=group)
        return T.reshape(*out.shape, *T.shape[1:])  # (b, q, i, a) and o if full

    T = lax.map(of_input, y)  # (j, b, q, i, a[, o])
    if outputs == "full":
        return jnp.transpose(T, (3, 0, 4, 1, 5, 2))
    T = jnp.transpose(T, (3, 0, 4, 1, 2))
    return T.mean(axis=-1) if outputs == "trace" else T
