"""Elementwise maps of Gaussian scores at scale "sqrt": closed forms with the dual activation.

E[A_ac A~_bd] = Zeta(v1, v2, c) and S_ab(B) = sum_cd Kv_cd B_cd Zeta'(v1, v2, c) at
(v1, v2, c) = s_QK^2 (Kq_aa Kk_cc, Kq_bb Kk_dd, Kq_ab Kk_cd) (theory 2.2): tokens^4 work a pair.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..duals import Dual, Identity
from .law import Averages, Kernels


class Elementwise(eqx.Module):
    """One input's side of the law.

    Attributes:
        prepared: per head bias, the dual's own preparation on `(*n, Sq, Sk)` score variances.
        weight: `(*n, Sq, Sk)` one over the number of keys, or 1; 0 where a query sees no key.
            None if every valid query sees every valid key with weight 1.
    """

    prepared: tuple
    weight: jax.Array | None


def prepare(zeta: Dual, v, biases, seen, scale) -> Elementwise:
    """The side of one input with score variances `v`, head biases and visible keys."""
    if isinstance(zeta, Identity) and biases is None:
        prepared = ()
    elif biases is None:
        prepared = (zeta.prepare(v),)
    else:
        prepared = tuple(
            zeta.prepare(v, jnp.broadcast_to(jnp.asarray(bias, v.dtype), v.shape))
            for bias in biases
        )
    weight = None
    if seen is not None:
        weight = jnp.where(seen, jnp.ones((), v.dtype), jnp.zeros((), v.dtype))
    if scale is not None:
        weight = jnp.broadcast_to(scale, v.shape) if weight is None else weight * scale
    return Elementwise(prepared, weight)


def average_identity(
    x: Elementwise, y: Elementwise, k: Kernels, qk_std, phases_x, phases_y, ntk: bool
) -> Averages:
    """zeta(g) = g: E[A_ac A~_bd] = s_QK^2 Kq_ab Kk_cd, so the sums are matrix products.

    Args:
        phases_x, phases_y: `(terms, Sq, Sk)` rotary phases, whose products sum to rho; or None.
    """

    def seen(values):
        """sum_cd values_cd over what queries a and b see, with the rotary factor."""
        total: Any = None
        for px, py in [(None, None)] if phases_x is None else zip(phases_x, phases_y, strict=True):
            left, right = _product(x.weight, px), _product(y.weight, py)
            # without weights every valid key counts once, and padding is zero already
            axes = tuple(axis for axis, w in ((-2, left), (-1, right)) if w is None)
            term = values.sum(axes, keepdims=True) if axes else values
            term = term if left is None else jnp.matmul(left, term)
            term = term if right is None else jnp.matmul(term, jnp.swapaxes(right, -1, -2))
            total = term if total is None else total + term
        return total

    q2 = qk_std**2
    KK = seen(k.Kk * k.Kv)
    if not ntk:
        return Averages(q2 * k.Kq * KK)
    T = None if k.Tv is None else q2 * k.Kq * seen(k.Kk * k.Tv)
    S_T = None if k.Tk is None else seen(k.Kv * k.Tk)
    return Averages(q2 * k.Kq * KK, T, KK, S_T)


def average(
    zeta: Dual,
    x: Elementwise,
    y: Elementwise,
    k: Kernels,
    qk_std,
    phases_x,
    phases_y,
    ntk: bool,
) -> Averages:
    """Any elementwise map, one query of x at a time."""
    if isinstance(zeta, Identity) and not x.prepared:
        return average_identity(x, y, k, qk_std, phases_x, phases_y, ntk)
    lead = jnp.broadcast_shapes(k.Kq.shape[:-2], k.Kk.shape[:-2])
    Kq = jnp.broadcast_to(k.Kq, (*lead, *k.Kq.shape[-2:]))
    # c of query a against (b, c, d); without biases one preparation serves all heads
    ndim = len(lead)
    values = (k.Kv, k.Tv if ntk else None)
    slopes = (k.Kv * k.Kk, None if k.Tk is None else k.Kv * k.Tk) if ntk else (None, None)

    def row(step):
        Kq_a, wx, phase, px = step  # (*lead, Sq2), (*n, Sk1), (terms, Sk1), prepared (*n, Sk1, ..)
        c = qk_std**2 * Kq_a[..., :, None, None] * k.Kk[..., None, :, :]
        if phase is not None:
            c = c * jnp.einsum("tc,tbd->bcd", phase, phases_y)
        Z: Any = None
        slope: Any = None
        for prepared_x, prepared_y in zip(px, y.prepared, strict=True):
            rows = jax.tree.map(lambda u: _lay(u, ndim, "x"), prepared_x)
            cols = jax.tree.map(lambda u: _lay(u, ndim, "y"), prepared_y)
            z, dz = zeta.mix(c, rows, cols, derivative=ntk)
            Z = z if Z is None else Z + z
            if ntk:
                slope = dz if slope is None else slope + dz
        count = 1.0 / len(y.prepared)
        both = _product(
            None if wx is None else wx[..., None, :, None],
            None if y.weight is None else y.weight[..., :, None, :],
        )

        def total(kernel, expectation) -> Any:
            if kernel is None:
                return None
            expectation = expectation if both is None else expectation * both
            # a product, not a sum: see kernel.functional
            return count * jnp.einsum("...cd,...bcd->...b", kernel, expectation)

        if phase is not None and ntk:
            slope = slope * jnp.einsum("tc,tbd->bcd", phase, phases_y)
        return Averages(
            total(values[0], Z),
            total(values[1], Z),
            total(slopes[0], slope),
            total(slopes[1], slope),
        )

    moved = lambda u, axis: jnp.moveaxis(u, axis, 0)  # noqa: E731
    steps = (
        moved(Kq, -2),
        None if x.weight is None else moved(x.weight, -2),
        None if phases_x is None else moved(phases_x, -2),
        jax.tree.map(lambda u: jnp.moveaxis(u, ndim, 0), x.prepared),
    )
    result = jax.lax.map(row, steps)
    return jax.tree.map(lambda u: jnp.moveaxis(u, 0, -2), result)


def _product(u, v) -> Any:
    """u * v in which None stands for one."""
    return v if u is None else u if v is None else u * v


def _lay(u, ndim: int, side: str):
    """Prepared arrays against axes (b, c, d): x brings (c,), y brings (b, d); extra axes last."""
    if side == "x":
        return jnp.expand_dims(u, (ndim, ndim + 2))
    return jnp.expand_dims(u, ndim + 1)
