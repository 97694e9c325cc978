"""Programs for GPUs, in Pallas: a layer and its activation in one pass over memory.

A convolution moves both tokens together, K'_ab = w^2 / |F| sum_f K_{a+f, b+f} + b^2, so entries of
different displacement b - a never mix. A program therefore takes one pair of images and one
vertical displacement, and walks down the image rows with the sums along the last rows in
registers: every entry of K is read once from memory (three times from the cache, for its horizontal
neighbours) and every entry of Phi(K') is written once. XLA reads and writes K twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..duals.base import Roots
from ..layers.window import Window
from .algebra import multiply_add, simplified

_TILE = (32, 64)  # tokens of both sides that a program of features takes


def convolved(
    how, K, T, px: Roots, py: Roots, w2, b2, u=(), axis=(), interpret: bool = False
) -> tuple:
    """A convolution and its activation.

    Args:
        how: the dual, the window, and the grids of both sides.
        K, T: `(*pairs, S1, S2)` before the convolution; T=None: without the tangent kernel.
        px, py: roots of the variances after the convolution, in the layout of records.
        w2, b2: weight variance over |F|, and bias variance.
        u: weights `(*n, r, S)` of both sides, if only u_r(x)^T K u_r(y) is wanted.
        axis: weights A, B `(*n, o, W)` along the last axis of both sides' grids, if only the
            diagonal of K and that of A K B^T along this axis are wanted; the grids are the same.
        interpret: on a CPU, for tests.

    Returns:
        K and T (or None) after the activation; with u, lists of what each u reads; with axis,
        pairs of `(*pairs, S)` and `(*pairs, H, H, o)`.
    """
    from jax.experimental import pallas

    dual, spec, (H1, W1), (H2, W2) = how
    *lead, S1, S2 = K.shape
    given = [m.reshape(-1, S1, S2) for m in (K, T) if m is not None]
    pairs, displacements = given[0].shape[0], H1 + H2 - 1
    weights = [a.reshape(-1, *a.shape[-2:]) for a in (*u, *axis)]
    terms = weights[0].shape[1] if u else 0
    shapes: list[tuple[int, ...]] = [given[0].shape]
    if u:
        shapes = [(terms, pairs, displacements)]
    if axis:
        shapes = [(pairs, S1), (pairs, H1, H2, weights[0].shape[1])]
    program = functools.partial(
        _conv_program,
        dual=dual,
        spec=spec,
        grids=((H1, W1), (H2, W2)),
        n2=_columns(lead),
        terms=terms,
        axis=bool(axis),
        simple=arithmetic(interpret),
    )
    found = pallas.pallas_call(
        program,
        grid=(pairs, displacements),
        out_shape=[jax.ShapeDtypeStruct(shape, m.dtype) for m in given for shape in shapes],
        **options(_power(W1) * _power(W2) // 256, interpret),
    )(*given, *weights, *_flat(px), *_flat(py), jnp.stack([w2, b2]))
    if u:
        found = [list(jnp.sum(m, axis=-1).reshape(terms, *lead)) for m in found]
    else:
        found = [m.reshape(*lead, *m.shape[1:]) for m in found]
    if axis:
        found = [tuple(found[at : at + 2]) for at in range(0, len(found), 2)]
    return found[0], found[1] if len(found) == 2 else None


def from_features(how, Fx, Fy, px: Roots, py: Roots, b2, interpret: bool = False) -> tuple:
    """The activation of K = F(x) F(y)^T + b^2, whose tangent kernel is T = K.

    Args:
        how: the dual, whether T is asked for, and the leading axes of the block of pairs.
        Fx, Fy: features `(*n, S, f)` in the layout of records.
        px, py, b2, interpret: as for `convolved`.
    """
    from jax.experimental import pallas

    dual, ntk, lead = how
    S1, S2 = Fx.shape[-2], Fy.shape[-2]
    # one feature after the other, each along the tokens
    sides = [jnp.swapaxes(F.reshape(-1, *F.shape[-2:]), 1, 2) for F in (Fx, Fy)]
    pairs = functools.reduce(lambda a, b: a * b, lead, 1)
    shape = jax.ShapeDtypeStruct((pairs, S1, S2), Fx.dtype)
    program = functools.partial(
        _feature_program,
        dual=dual,
        sizes=(S1, S2),
        n2=_columns(lead),
        simple=arithmetic(interpret),
    )
    found = pallas.pallas_call(
        program,
        grid=(pairs, pallas.cdiv(S1, _TILE[0]), pallas.cdiv(S2, _TILE[1])),
        out_shape=[shape] * (1 + ntk),
        **options(4, interpret),
    )(*sides, *_flat(px), *_flat(py), b2.reshape(1))
    K, *T = (m.reshape(*lead, S1, S2) for m in found)
    return K, T[0] if T else None


def _columns(lead) -> int | None:
    """Number of second inputs of a block of all pairs; None for a list of pairs."""
    return lead[1] if len(lead) == 2 else None


def _inputs(pair, n2: int | None):
    """The two inputs of a pair."""
    return (pair, pair) if n2 is None else (pair // n2, pair % n2)


def _flat(p: Roots) -> tuple:
    return tuple(a.reshape(-1, a.shape[-1]) for a in (p.q, p.r))


def options(warps: int, interpret: bool, most: int = 8) -> dict[str, Any]:
    """How a program is compiled: with so many warps (one to `most`), or interpreted."""
    from jax.experimental.pallas import triton

    if interpret:
        return {"interpret": True}
    warps = max(1, min(most, warps))
    return {"compiler_params": triton.CompilerParams(num_warps=warps, num_stages=2)}


def arithmetic(interpret: bool) -> Callable:
    """How a program adds and multiplies: `algebra.simplified` with a GPU's instruction."""
    return simplified if interpret else functools.partial(simplified, multiply_add=_multiply_add)


def _multiply_add(a, b, c, sign: int):
    """c + a b or c - a b in one instruction; a program that says `a * b + c` takes two."""
    from jax.experimental.pallas.triton import elementwise_inline_asm

    shape = jnp.broadcast_shapes(*map(jnp.shape, (a, b, c)))
    if not shape or c.dtype != jnp.float32:
        return multiply_add(a, b, c, sign)
    negated = "{.reg .f32 n; neg.f32 n, $1; fma.rn.f32 $0, n, $2, $3;}"
    (found,) = elementwise_inline_asm(
        "fma.rn.f32 $0, $1, $2, $3;" if sign == 1 else negated,
        args=[jnp.broadcast_to(jnp.asarray(m, jnp.float32), shape) for m in (a, b, c)],
        constraints="=f,f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(shape, jnp.float32)],
    )
    return found


def _feature_program(*refs, dual, sizes, n2: int | None, simple):
    """One pair of inputs, a tile of its token pairs."""
    from jax.experimental import pallas
    from jax.experimental.pallas.triton import load, store

    (Fx, Fy, qx, rx, qy, ry, bias), out = refs[:7], refs[7:]
    pair = pallas.program_id(0)
    i, j = _inputs(pair, n2)
    a, b = (
        pallas.program_id(1 + k) * _TILE[k] + jnp.arange(_TILE[k], dtype=jnp.int32) for k in (0, 1)
    )
    in_x, in_y = a < sizes[0], b < sizes[1]
    f = jnp.arange(max(16, _power(Fx.shape[1])), dtype=jnp.int32)
    in_f = f < Fx.shape[1]
    rows = load(Fx.at[i, f[None, :], a[:, None]], mask=in_x[:, None] & in_f[None, :], other=0.0)
    cols = load(Fy.at[j, f[:, None], b[None, :]], mask=in_f[:, None] & in_y[None, :], other=0.0)
    product = jnp.dot(rows, cols, precision="highest")
    left = Roots(*(load(r.at[i, a], mask=in_x, other=0.0)[:, None] for r in (qx, rx)))
    right = Roots(*(load(r.at[j, b], mask=in_y, other=0.0)[None, :] for r in (qy, ry)))

    def values(product, left, right):
        K = product + bias[0]
        value, slope = dual.mix(K, left, right, len(out) == 2)
        return [value] if slope is None else [value, K * slope]

    at, inside = (pair, a[:, None], b[None, :]), in_x[:, None] & in_y[None, :]
    for ref, v in zip(out, simple(values)(product, left, right), strict=True):
        store(ref.at[at], v, mask=inside)


def _conv_program(*refs, dual, spec: Window, grids, n2: int | None, terms: int, axis: bool, simple):
    """One pair of images, one vertical displacement: all its rows from the top down."""
    from jax.experimental import pallas
    from jax.experimental.pallas.triton import load, store

    count = (len(refs) - 5 - 2 * (terms > 0 or axis)) // (3 if axis else 2)
    given, out = refs[:count], refs[-(2 if axis else 1) * count :]
    *weights, qx, rx, qy, ry, constants = refs[count : -len(out)]
    (H1, W1), (H2, W2) = grids
    (tall, wide), low = spec.size, [(k - 1) // 2 for k in spec.size]
    ahead = tall - 1 - low[0]
    pair, displacement = pallas.program_id(0), pallas.program_id(1) - (H1 - 1)
    i, j = _inputs(pair, n2)
    top_x = jnp.maximum(0, -displacement)
    top_y = top_x + displacement
    rows = jnp.minimum(H1 - top_x, H2 - top_y)
    a, b = (jnp.arange(_power(W), dtype=jnp.int32) for W in (W1, W2))
    w2, b2 = constants[0], constants[1]

    def along(ref, row):
        """Sum over the window's horizontal positions, at a row of this displacement."""
        total: Any = None
        for f in range(-low[1], wide - low[1]):
            inside_x = (a < W1) & (a + f >= 0) & (a + f < W1) & (row < rows)
            inside_y = (b < W2) & (b + f >= 0) & (b + f < W2)
            at_x, at_y = (top_x + row) * W1 + a + f, (top_y + row) * W2 + b + f
            at, inside = (pair, at_x[:, None], at_y[None, :]), inside_x[:, None] & inside_y[None, :]
            part = load(ref.at[at], mask=inside, other=0.0)
            total = part if total is None else total + part
        return total

    def read(values, at_x, at_y, totals):
        """What every u reads of a row, added up entry by entry."""
        for r in range(terms):
            ux = load(weights[0].at[i, r, at_x], mask=a < W1, other=0.0)
            uy = load(weights[1].at[j, r, at_y], mask=b < W2, other=0.0)
            product = ux[:, None] * uy[None, :]
            for total, value in zip(totals, values, strict=True):
                total[r] = total[r] + product * value
        return totals

    if axis:
        o = jnp.arange(_power(weights[0].shape[1]), dtype=jnp.int32)
        in_o = o < weights[0].shape[1]
        A, B = (
            load(ref.at[at, o[:, None], c[None, :]], mask=in_o[:, None] & (c < W), other=0.0)
            for ref, at, c, W in zip(weights, (i, j), (a, b), (W1, W2), strict=True)
        )

    def along_axis(values, row, at_x):
        """The diagonal of a row's entries, and that of A K B^T."""
        for k, value in enumerate(values):
            own = jnp.sum(jnp.where(a[:, None] == b[None, :], value, 0.0), axis=1)
            store(out[2 * k].at[pair, at_x], own, mask=(a < W1) & (displacement == 0))
            read = jnp.sum(jnp.dot(A, value, precision="highest") * B, axis=1)
            store(out[2 * k + 1].at[pair, top_x + row, top_y + row, o], read, mask=in_o)

    def activated(sums, left, right):
        linear = w2 * sums[0] + b2
        value, slope = dual.mix(linear, left, right, count == 2)
        return [value] if slope is None else [value, (linear + w2 * sums[1]) * slope]

    def step(row, carry):
        before, totals = carry
        new = [along(ref, row + ahead) for ref in given]
        sums = [sum(b, n) for b, n in zip(before, new, strict=True)]
        at_x, at_y = (top_x + row) * W1 + a, (top_y + row) * W2 + b
        left = Roots(*(load(r.at[i, at_x], mask=a < W1, other=0.0)[:, None] for r in (qx, rx)))
        right = Roots(*(load(r.at[j, at_y], mask=b < W2, other=0.0)[None, :] for r in (qy, ry)))
        values = simple(activated)(sums, left, right)
        if terms:
            totals = read(values, at_x, at_y, totals)
        elif axis:
            along_axis(values, row, at_x)
        else:
            at = (pair, at_x[:, None], at_y[None, :])
            inside = (a < W1)[:, None] & (b < W2)[None, :]
            for ref, v in zip(out, values, strict=True):
                store(ref.at[at], v, mask=inside)
        return tuple((*b[1:], n) for b, n in zip(before, new, strict=True)), totals

    zeros = jnp.zeros((len(a), len(b)), given[0].dtype)
    first = tuple((zeros,) * low[0] + tuple(along(r, e) for e in range(ahead)) for r in given)
    totals = [[zeros] * terms for _ in range(count)]
    _, totals = jax.lax.fori_loop(jnp.int32(0), rows, step, (first, totals))
    for ref, values in zip(out[: len(totals)], totals, strict=True):
        for r, total in enumerate(values):
            ref[r, pair, pallas.program_id(1)] = jnp.sum(total)


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
