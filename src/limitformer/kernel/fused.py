"""Two layers at once on GPUs: a convolution and its activation, in one pass over memory.

The programs are in `programs`. Measured on an H200, 32 x 32 images, float32, a layer by itself: 3.5
microseconds a pair where XLA takes 8.7, and with the tangent kernel 6.9 where it takes 12.4; in a
network of eight layers 2.7 a layer where XLA takes 4.9.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from ..duals.base import Roots
from ..duals.rectifiers import Abs, Relu
from ..layers.activation import Activation
from ..layers.conv import Conv
from ..layers.pool import Pulled, Readout
from . import programs
from .functional import bilinear, constants, contract, gathered
from .state import Cross, between

TYPES = (jnp.float32,)  # what was measured
_SIDES = range(24, 65)  # image sides for which it is faster than XLA and fits into registers

_MOST_TERMS = 2  # sums that a program keeps beside its rows


def available() -> bool:
    """Whether JAX computes on a GPU."""
    return jax.default_backend() == "gpu"


def applies(conv, activation, k: Cross, rx, ry, ntk: bool) -> bool:
    """Whether two layers in sequence are of the kind that is computed here.

    Args:
        conv, activation: the layers.
        k: the block of pairs before them.
        rx, ry: the records of both layers, of both sides.
        ntk: whether T is asked for.
    """
    if not (isinstance(conv, Conv) and isinstance(activation, Activation)):
        return False
    spec = conv.spec
    (wx, (px, mask_x)), (wy, (py, mask_y)) = rx, ry
    return (
        type(activation.dual) in (Relu, Abs)
        and conv.parametrisation == "ntk"
        and (spec.padding, set(spec.stride), len(spec.size)) == ("same", {1}, 2)
        and not k.diag
        and k.K.dtype in TYPES
        and (not ntk or (k.T is None) == _known(wx, wy))
        and all(mask is None for mask in (wx.mask, wy.mask, mask_x, mask_y))
        and all(side in _SIDES for side in (*wx.grid, *wy.grid))
        and (px.q.shape[:-1], py.q.shape[:-1]) == _lead_of_records(k.K.shape[:-2])
    )


def conv_activation(
    conv: Conv, activation: Activation, k: Cross, rx, ry, ntk: bool, readout=None
) -> Cross:
    """K' and T' after both layers; the arguments are those of `applies`.

    With `readout`, the functionals of both sides, they are read without being written to memory.
    """
    (wx, (px, _)), (wy, (py, _)) = rx, ry
    w2 = conv.w_std**2 / conv.spec.count * jnp.ones((), k.K.dtype)
    b2 = conv.b_std**2 * jnp.ones((), k.K.dtype)
    if _known(wx, wy):
        how = (activation.dual, ntk, k.K.shape[:-2])
        after = Cross(*_featured(how, wx.patches, wy.patches, px, py, b2))
        return after if readout is None else contract(readout[0], readout[1], after, ntk)
    how = (activation.dual, conv.spec, wx.grid, wy.grid)
    u = () if readout is None else tuple(f.u for f in readout)
    K, T = _convolved(how, k.K, k.T if ntk else None, px, py, w2, b2, u)
    if readout is None:
        return Cross(K, T)
    return gathered(readout[0], constants(*readout), K, T, ntk)


def readout_of(layer, rx, ry):
    """The functionals of both sides, if a layer reads the token kernel by one; else None."""
    if isinstance(layer, Pulled):
        rx, ry = rx["functional"], ry["functional"]
    elif not isinstance(layer, Readout):
        return None
    return (rx, ry) if len(rx.kappa) <= _MOST_TERMS else None


def _known(wx, wy) -> bool:
    """Whether the convolution's output has features on both sides."""
    return wx.patches is not None and wy.patches is not None


def _lead_of_records(lead) -> tuple:
    """Leading axes of both sides' records: of all pairs of two sets, or of a list of pairs."""
    return ((lead[0], 1), (1, lead[1])) if len(lead) == 2 else (lead, lead)


# A program has no derivative of its own: derivatives are those of plain operations.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _convolved(how, *arguments):
    return programs.convolved(how, *arguments)


@_convolved.defjvp
def _(how, primals, tangents):
    def plain(K, T, px, py, w2, b2, u):
        dual, spec, *grids = how
        linear = w2 * spec.kernel_total(K, *grids) + b2
        through = None if T is None else w2 * spec.kernel_total(T, *grids)
        found = _activated(dual, linear, None if T is None else linear + through, px, py)
        return tuple(bilinear(u[0], m, u[1]) if u and m is not None else m for m in found)

    return jax.jvp(plain, primals, tangents)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _featured(how, *arguments):
    return programs.from_features(how, *arguments)


@_featured.defjvp
def _(how, primals, tangents):
    def plain(Fx, Fy, px, py, b2):
        dual, ntk, _ = how
        linear = between(Fx, Fy, False) + b2
        return _activated(dual, linear, linear if ntk else None, px, py)

    return jax.jvp(plain, primals, tangents)


def _activated(dual, K, T, px: Roots, py: Roots):
    rows = Roots(px.q[..., :, None], px.r[..., :, None])
    cols = Roots(py.q[..., None, :], py.r[..., None, :])
    value, slope = dual.mix(K, rows, cols, T is not None)
    return value, None if T is None else T * slope
