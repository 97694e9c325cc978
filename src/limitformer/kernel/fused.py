"""Two layers at once on GPUs: a convolution and its activation, in one pass over memory.

The programs are in `programs`. Measured on an H200, 32 x 32 images, float32, a layer by itself: 3.5
microseconds a pair where XLA takes 8.7, and with the tangent kernel 6.9 where it takes 12.4; in a
network of eight layers 2.3 a layer where XLA takes 4.9.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..duals.base import Roots
from ..duals.rectifiers import Abs, Relu
from ..layers.activation import Activation
from ..layers.conv import Conv
from ..layers.kronecker import Kronecker, along_last
from ..layers.pool import Pulled, Readout
from ..layers.residual_attention import ResidualAttention, diagonal_through
from . import programs
from .functional import Functional, bilinear, constants, contract, gathered
from .state import Cross, Form, between, diagonal

TYPES = (jnp.float32,)  # what was measured
_SIDES = range(24, 65)  # image sides for which it is faster than XLA and fits into registers

_MOST_TERMS = 2  # sums that a program keeps beside its rows
AXES = True  # whether it reads the diagonal after attention to positions


def available() -> bool:
    """Whether JAX computes on a GPU, and has the compiler for such programs (JAX 0.12 says that it
    will go)."""
    if jax.default_backend() != "gpu":
        return False
    try:
        from jax.experimental.pallas import triton  # noqa: F401
    except ImportError:
        return False
    return True


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
    conv: Conv, activation: Activation, k: Cross, rx, ry, ntk: bool, reader=None
) -> Cross:
    """K' and T' after both layers; the arguments are those of `applies`.

    With a reader, a third layer, what it reads of them without their being written to memory.
    """
    (wx, (px, _)), (wy, (py, _)) = rx, ry
    w2 = conv.w_std**2 / conv.spec.count * jnp.ones((), k.K.dtype)
    b2 = conv.b_std**2 * jnp.ones((), k.K.dtype)
    if _known(wx, wy):
        how = (activation.dual, ntk, k.K.shape[:-2])
        after = Cross(*_featured(how, wx.patches, wy.patches, px, py, b2))
        return after if reader is None else reader.read(after, ntk)
    how = (activation.dual, conv.spec, wx.grid, wy.grid)
    weights = ((), ()) if reader is None else reader.weights
    K, T = _convolved(how, k.K, k.T if ntk else None, px, py, w2, b2, *weights)
    return Cross(K, T) if reader is None else reader.gathered(K, T, ntk)


class Pool(NamedTuple):
    """A readout by the functionals of both sides."""

    x: Functional
    y: Functional

    @property
    def weights(self) -> tuple:
        return (self.x.u, self.y.u), ()

    def read(self, k: Cross, ntk: bool) -> Cross:
        return contract(self.x, self.y, k, ntk)

    def gathered(self, K, T, ntk: bool) -> Cross:
        return gathered(self.x, constants(self.x, self.y), K, T, ntk)


class Diagonal(NamedTuple):
    """The token diagonal after attention to positions, whose weights go axis by axis."""

    layer: ResidualAttention
    x: Kronecker
    y: Kronecker

    @property
    def weights(self) -> tuple:
        return (), (self.x.factors[1], self.y.factors[1])

    def read(self, k: Cross, ntk: bool) -> Cross:
        K, T = (diagonal_through(self.x, m, self.y) for m in (k.K, k.T))
        return self.layer.joined(k.reduced(Form.DIAG), K, T, ntk)

    def gathered(self, K, T, ntk: bool) -> Cross:
        (own, K), (own_T, T) = K, (None, None) if T is None else T
        kept = Cross(own, own_T, diag=True)
        K = self.x.diagonal_of_rest(K, self.y)
        T = None if T is None else self.x.diagonal_of_rest(T, self.y)
        return self.layer.joined(kept, K, T, ntk)


def reader_of(layer, rx, ry, form: Form) -> Pool | Diagonal | None:
    """How a layer reads a token kernel that is not written to memory; None: it does not.

    Args:
        layer: the layer after a convolution and its activation.
        rx, ry: its records of both sides.
        form: what is needed of its result.

    Returns:
        A reader: `weights` are what the program takes, `gathered` makes the layer's result of what
        the program read, `read` that of a kernel that is in memory after all.
    """
    if isinstance(layer, ResidualAttention):
        grids = [[A.shape[-1] for A in side.factors] for side in (rx, ry)]
        axes = AXES and form == Form.DIAG and len(grids[0]) == 2 and grids[0] == grids[1]
        return Diagonal(layer, rx, ry) if axes else None
    if isinstance(layer, Pulled):
        rx, ry = rx["functional"], ry["functional"]
    elif not isinstance(layer, Readout):
        return None
    return Pool(rx, ry) if len(rx.kappa) <= _MOST_TERMS else None


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
    def plain(K, T, px, py, w2, b2, u, axis):
        dual, spec, *grids = how
        linear = w2 * spec.kernel_total(K, *grids) + b2
        through = None if T is None else w2 * spec.kernel_total(T, *grids)
        found = _activated(dual, linear, None if T is None else linear + through, px, py)
        if axis:
            A, B = axis
            return tuple(None if m is None else (diagonal(m), along_last(A, m, B)) for m in found)
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
