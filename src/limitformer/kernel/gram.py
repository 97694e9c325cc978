"""Kernels of many inputs: plan the blocks, run the passes, assemble the matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..layers.base import Layer, choice, leaves
from ..scores.replicates import REPLICATES, draws_each, mean_and_error, replicate_keys
from .blocks import Blocks, blocks_of, own_pairs
from .inputs import as_arrays, float_type, is_traced, padded, streams_of
from .memory import memory_budget
from .network import Look, Network, cast, needs_of
from .products import preset
from .progress import Progress

KINDS = ("nngp", "ntk")
DRAWS = 1024


class Kernel(eqx.Module):
    """The kernels of a block of inputs.

    Attributes:
        nngp, ntk: `(n, m)` after a readout, `(n, m, tokens, tokens)` without one; None if not
            asked for.
        nngp_sem, ntk_sem: standard errors of the entries, None where the value is exact.
        draws: score draws behind an estimate, 0 for an exact kernel.
        replicates: independent replicates behind a standard error (one more than its degrees of
            freedom), 0 for an exact kernel.
    """

    nngp: jax.Array | np.ndarray | None
    ntk: jax.Array | np.ndarray | None
    nngp_sem: jax.Array | np.ndarray | None = None
    ntk_sem: jax.Array | np.ndarray | None = None
    draws: int = eqx.field(static=True, default=0)
    replicates: int = eqx.field(static=True, default=0)


def kernel(
    net: Layer,
    x,
    y=None,
    x_mask=None,
    y_mask=None,
    *,
    kinds=KINDS,
    dtype=None,
    key=None,
    draws: int = DRAWS,
    precision: float | None = None,
    replicates: str = "mean",
    products: str = "float32",
    memory=None,
    progress: bool | Callable = False,
) -> Kernel:
    """NNGP and NTK of the infinite network between two sets of inputs.

    K(x, y) = E[f(x) f(y)] over the prior of the weights, T(x, y) = <df(x)/dw, df(y)/dw>.

    Args:
        x, y: `(n, tokens, features)`, `(n, height, width, channels)`, `(n, features)`, or token ids
            `(n, tokens)` for a network that starts with `Embed`; a tuple for several inputs. y=None
            means y is x, at half the work.
        x_mask, y_mask: bool, True = valid, `(n, tokens)` or `(n, height, width)`.
        kinds: "nngp", "ntk" or both; the NNGP alone does not pay for the NTK.
        dtype: float32 or float64; by default NumPy's promotion of the inputs.
        key, draws: randomness of softmax at scale "sqrt"; a fixed key by default, so that a kernel
            is a deterministic function.
        precision: largest acceptable standard error relative to the root mean square entry; if the
            draws do not reach it, an error says how many would.
        replicates: "mean" with its standard error, or "each": where scores are drawn, the kernels
            of every independent replicate, with one more axis in front.
        products: matrix products of float32 kernels on a GPU: in "float32", or faster and less
            precise: "bf16x6", "tf32x3", "bf16x3", "tf32".
        memory: budget in bytes, or a string such as "2GiB".
        progress: True for a line on standard error, or a function `(done, total, seconds_left)`.

    Returns:
        A `Kernel` with fields nngp, ntk, nngp_sem, ntk_sem.
    """
    kinds = check_kinds(kinds)
    each = choice("replicates", replicates, ("mean", "each")) == "each"
    traced = is_traced((net, x, y, x_mask, y_mask, key))
    arrays = as_arrays(x, "x") + (() if y is None else as_arrays(y, "y"))
    dtype = float_type(arrays, dtype)
    if y is None and y_mask is not None:
        raise ValueError("y_mask was given without y; pass y, or mask x with x_mask")
    inputs = (net, x, y, x_mask, y_mask)
    how = {"kinds": kinds, "key": key, "draws": draws, "each": each}
    multiplied = preset(products, dtype, jax.default_backend())
    if traced:
        with jax.default_matmul_precision(multiplied):
            return _kernel(*inputs, dtype=jax.dtypes.canonicalize_dtype(dtype), traced=True, **how)
    how |= {"precision": precision, "products": multiplied, "memory": memory}
    with jax.enable_x64(True):
        result = _kernel(*inputs, dtype=dtype, progress=Progress.of(progress), **how)
    return returned(result, dtype)


def _kernel(
    net,
    x,
    y,
    x_mask,
    y_mask,
    *,
    kinds,
    dtype,
    key,
    draws: int,
    each: bool,
    precision=None,
    products: str = "highest",
    memory=None,
    progress=None,
    traced: bool = False,
):
    net = cast(net, dtype)
    sx = streams_of(net, x, x_mask, "x", dtype=dtype, checked=not traced)
    sy = None if y is None else streams_of(net, y, y_mask, "y", dtype=dtype, checked=not traced)
    sx, sy = same_lengths(net, sx, sy)
    ntk = "ntk" in kinds
    need, table = needs_of(net)
    network = Network(net, need, table, ntk)
    random = any(leaf.random_scores for _, leaf in leaves(net))
    if not random:
        values = _once(network, sx, sy, products, None, 0, memory, progress, traced, dtype)
        return result_of(kinds, values)
    run = functools.partial(_once, network, sx, sy, products)
    stacked = _replicated(run, key, draws_each(draws), memory, progress, traced, dtype)
    if each:
        return result_of(kinds, stacked, draws=draws, replicates=REPLICATES)
    means, errors = [], []
    for values in stacked:
        mean, error = (None, None) if values is None else mean_and_error(jnp.asarray(values))
        means.append(mean if mean is None or traced else np.asarray(mean))
        errors.append(error if error is None or traced else np.asarray(error))
    if precision is not None and not traced:
        _check_precision(means, errors, precision, draws)
    return result_of(kinds, means, errors, draws, REPLICATES)


def _replicated(run, key, draws: int, memory, progress, traced: bool, dtype) -> Any:
    """The kernels of every replicate, stacked."""
    keys = replicate_keys(key=jax.random.key(0) if key is None else key)
    if traced:  # one compilation serves all replicates
        return jax.lax.map(lambda k: run(k, draws, memory, None, True, dtype), keys)
    results = []
    for r, k in enumerate(keys):
        part = None if progress is None else progress.part(r, REPLICATES)
        results.append(run(k, draws, memory, part, False, dtype))
    return [None if v[0] is None else np.stack(v) for v in zip(*results, strict=True)]


def diagonal(
    net: Any,
    x,
    x_mask=None,
    *,
    kinds=KINDS,
    dtype=None,
    key=None,
    draws: int = DRAWS,
    replicates: str = "mean",
    memory=None,
) -> Kernel:
    """K(x_i, x_i) and T(x_i, x_i): the diagonal of `kernel(net, x)` without the rest.

    Returns:
        A `Kernel` of `(n,)` arrays after a readout, `(n, tokens, tokens)` without one.
    """
    kinds = check_kinds(kinds)
    each = choice("replicates", replicates, ("mean", "each")) == "each"
    dtype = float_type(as_arrays(x, "x"), dtype)
    with jax.enable_x64(True):
        net = cast(net, dtype)
        sx = streams_of(net, x, x_mask, "x", dtype=dtype)
        network = Network(net, *needs_of(net), "ntk" in kinds)
        random = any(leaf.random_scores for _, leaf in leaves(net))
        run = functools.partial(_own, network, sx)
        if not random:
            result = result_of(kinds, run(None, 0, memory, None, False, dtype))
        else:
            stacked = _replicated(run, key, draws_each(draws), memory, None, False, dtype)
            result = result_of(kinds, stacked, draws=draws, replicates=REPLICATES)
            if not each:
                values = [None if v is None else mean_and_error(jnp.asarray(v)) for v in stacked]
                means, errors = zip(
                    *((None, None) if v is None else v for v in values), strict=True
                )
                result = result_of(kinds, means, errors, draws, REPLICATES)
                result = jax.tree.map(np.asarray, result)
    return returned(result, dtype)


def _own(network: Network, sx, key, draws, memory, progress, traced, dtype):
    """K and T of every input with itself."""
    look = network.look(sx, max(draws, 1))
    plan = blocks_of(network, sx, sx, True, draws, memory_budget(memory), dtype, look, look)
    values = own_pairs(network, sx, plan, key, draws)
    order = sx[0].order
    if look.facts.readout or order is None:
        return values
    swapped = tuple(None if v is None else restored(v[:, None], order, None)[:, 0] for v in values)
    return tuple(
        None
        if v is None
        else np.swapaxes(restored(np.swapaxes(v, 1, 2)[:, None], order, None)[:, 0], 1, 2)
        for v in swapped
    )


def _once(network: Network, sx, sy, products, key, draws, memory, progress, traced, dtype):
    """One evaluation of the kernel (one replicate if scores are drawn)."""
    other = sx if sy is None else sy
    look_x = network.look(sx, max(draws, 1))
    look_y = look_x if sy is None else network.look(sy, max(draws, 1))
    if traced:
        values = _traced(network, sx, sy, key, draws, look_x, look_y)
    else:
        plan = blocks_of(
            network, sx, other, sy is None, draws, memory_budget(memory), dtype, look_x, look_y
        )
        values = Blocks(plan, network, sx, other, key, draws, progress, products).run()
    order = sx[0].order, other[0].order
    return tuple(None if v is None else restored(v, *order) for v in values)


def _traced(network: Network, sx, sy, key, draws, look: Look, look_y: Look):
    n = sx[0].n
    other = sx if sy is None else sy
    m = other[0].n
    ix = jnp.arange(n)
    iy = ix if sy is None else jnp.arange(n, n + m)
    if look.pairs:
        grid_x, grid_y = (g.reshape(-1) for g in jnp.meshgrid(ix, jnp.arange(m), indexing="ij"))
        left = tuple(s.take(grid_x) for s in sx)
        right = tuple(s.take(grid_y) for s in other)
        values = network.pairs(left, right, grid_x, iy[grid_y], key, draws)
        cut = slice(None), slice(look.facts.tokens), slice(look_y.facts.tokens)
        values = tuple(None if v is None else v[cut] for v in values)
        values = tuple(None if v is None else v.reshape(n, m, *v.shape[1:]) for v in values)
    else:
        rx, _ = network.marginal(sx, ix, key, draws)
        ry = rx if sy is None else network.marginal(sy, iy, key, draws)[0]
        values = network.cross(sx, other, rx, ry)
    if look.facts.readout:
        values = tuple(None if v is None else v[..., 0, 0] for v in values)
    return values


def same_lengths(net: Layer, sx, sy) -> tuple[Any, Any]:
    """Pad the shorter side where a layer matches tokens by position (Flatten)."""
    if sy is not None and len(sx) != len(sy):
        raise ValueError(
            f"x has {len(sx)} inputs and y has {len(sy)}; give both sides the same inputs, "
            "x=(x1, x2), y=(y1, y2)"
        )
    if sy is None or all(a.grid == b.grid for a, b in zip(sx, sy, strict=True)):
        return sx, sy
    for a, b in zip(sx, sy, strict=True):
        if len(a.grid) != len(b.grid) or (len(a.grid) > 1 and a.grid != b.grid):
            raise ValueError(
                f"x has tokens on a grid {a.grid} and y on {b.grid}; images must have the same size"
            )
        if a.ids != b.ids or (not a.ids and a.x.shape[-1] != b.x.shape[-1]):
            raise ValueError(
                f"x has inputs of shape {a.x.shape[1:]} and y of {b.x.shape[1:]}; both must have "
                "the same features"
            )
    if not any(type(leaf).__name__ == "Flatten" for _, leaf in leaves(net)):
        return sx, sy
    return (
        tuple(padded(a, max(a.tokens, b.tokens)) for a, b in zip(sx, sy, strict=True)),
        tuple(padded(b, max(a.tokens, b.tokens)) for a, b in zip(sx, sy, strict=True)),
    )


def restored(value, order_x, order_y):
    """Token kernels with tokens back where the caller's mask has them.

    Where a layer has changed the number of tokens there is no such place, and valid ones are first.
    """
    if value.ndim < 4:
        return value
    take: Any = np.take_along_axis if isinstance(value, np.ndarray) else jnp.take_along_axis
    if order_x is not None and order_x.shape[1] == value.shape[2]:
        value = take(value, jnp.argsort(order_x, axis=1)[:, None, :, None], axis=2)
    if order_y is not None and order_y.shape[1] == value.shape[3]:
        value = take(value, jnp.argsort(order_y, axis=1)[None, :, None, :], axis=3)
    return value


def check_kinds(kinds) -> tuple[str, ...]:
    """The kernels asked for, as a tuple of names."""
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    unknown = [k for k in kinds if k not in KINDS]
    if unknown or not kinds:
        raise ValueError(f'kinds={kinds!r}; choose "nngp", "ntk" or both')
    return kinds


def result_of(kinds, values, errors=(None, None), draws: int = 0, replicates: int = 0) -> Kernel:
    """A `Kernel` of those of the values (K, T) that were asked for."""
    nngp, ntk = (v if kind in kinds else None for kind, v in zip(KINDS, values, strict=True))
    nngp_sem, ntk_sem = (
        e if kind in kinds else None for kind, e in zip(KINDS, errors, strict=True)
    )
    return Kernel(nngp, ntk, nngp_sem, ntk_sem, draws, replicates)


def returned(result: Kernel, dtype) -> Kernel:
    """JAX arrays, except float64 while JAX's 64-bit switch is off.

    A JAX array would turn into float32 in the next operation.
    """
    if dtype == np.float64 and jnp.result_type(float) != np.float64:
        return result
    return jax.tree.map(jnp.asarray, result)


def _check_precision(means, errors, precision: float, draws: int) -> None:
    worst = max(
        float(np.max(e)) / max(float(np.sqrt(np.mean(np.square(m)))), 1e-300)
        for m, e in zip(means, errors, strict=True)
        if m is not None
    )
    if worst > precision:
        needed = int(2 ** np.ceil(np.log2(draws * (worst / precision) ** 2)))
        raise ValueError(
            f"{draws} score draws give a relative standard error of {worst:.2g}, more than the "
            f"precision {precision:g} that was asked for; try draws={needed}"
        )
