"""A whole network of few tokens in one GPU program: a pair's kernels never leave the chip.

XLA writes the token kernels of all pairs to memory wherever a layer sums over them. A pair of 64
tokens has 16 kB of K and as much of T, which fit into the registers of one program; so a program
takes one pair, its two inputs and their records, and runs the cross pass on them, the same code as
everywhere. Only the readout's number comes out.

A network qualifies if its cross pass consists of what such a program can do: entrywise operations,
sums, and products of matrices. That is read off its trace, not declared by layers.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..layers.base import AnyLayer
from ..layers.pool import Readout
from . import fused, programs
from .functional import gathered
from .inputs import Stream
from .own_mask import filled
from .passes import CrossRun, Run
from .state import Cross, Form
from .work import work_of

TOKENS: tuple[int, ...] = (16, 32, 64, 128)  # for which this was measured to be faster than XLA
_PRODUCTS = range(16, 33)  # numbers that an entry of a product adds up; fewer do not compile
_ENTRIES = (256, 512, 1024)  # of K for each warp: with products, few tokens, from 64 x 64 on
_MOST = 1000  # operations: more compile for minutes
_OPERATIONS = """
    abs acos add and asin atan atan2 bitcast_convert_type broadcast_in_dim clamp
    convert_element_type copy cos div elementwise_inline_asm eq erf exp exp2 expm1 ge get gt
    integer_pow is_finite le log log1p logistic lt max min mul ne neg not or pow program_id
    reduce_and reduce_max reduce_min reduce_or reduce_sum rem reshape rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sqrt square squeeze stop_gradient sub swap
    tan tanh transpose xor
"""  # what a program can do on registers, beside products
_NESTED = ("closed_call", "custom_jvp_call", "jit", "pjit", "scan", "while")
_WORKS: dict = {}  # by the structure of a network that had a program: False if that failed


class NoReadout(Exception):
    """The network ends in token kernels, which are more than one number."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stored:
    """A record of one input in memory, which a program loads where a layer asks for it."""

    ref: Any
    place: tuple
    dtype: np.dtype

    def part(self, index) -> Stored:
        """One turn of a repeat, or one row."""
        return Stored(self.ref, (*self.place, index), self.dtype)

    def load(self):
        found = self.ref[self.place]
        return found != 0 if self.dtype == bool else found


class ProgramRun(CrossRun):
    """The cross pass of one pair inside a program: K `(S1, S2)` and records without leading axes.

    A readout is a sum there, because a program has no product of a vector and a matrix.
    """

    def both(self, name: str) -> tuple[Any, Any]:
        load = lambda a: a.load() if isinstance(a, Stored) else a  # noqa: E731
        return jax.tree.map(load, (self.rx[name], self.ry[name]))

    def __call__(self, layer: AnyLayer, k, name: str):
        if isinstance(layer, Readout):
            return self._read(self.rx[name], self.ry[name], k)
        return super().__call__(layer, k, name)

    def sequence(self, steps, state):
        """One after the other: they are in one program already."""
        return Run.sequence(self, steps, state)

    def pooled(self, step, k: Cross):
        return self._read(self.rx["functional"], self.ry["functional"], k)

    def repeat(self, layer: AnyLayer, n: int, k, name: str):
        sides = self.rx[name], self.ry[name]
        done = len(sides[0]["first"])

        def once(k, records, index):
            rx, ry = records
            inner = self.inner(name, rx, ry, self.path, (*(self.depth or ()), index))
            return inner(layer, k, name)

        def later(turn, k):
            part = lambda a: a.part(turn) if isinstance(a, Stored) else a  # noqa: E731
            return once(k, [jax.tree.map(part, side["rest"]) for side in sides], turn + done)

        for index in range(done):
            k = once(k, [side["first"][index] for side in sides], index)
        if done == n:
            return k
        k = k.with_zero_T() if self.options.ntk else k
        return jax.lax.fori_loop(jnp.int32(0), jnp.int32(n - done), later, k)

    def _read(self, fx, fy, k: Cross) -> Cross:
        """`functional.contract` with the rows of u and the constants loaded one by one."""
        rows = [
            (fx.u.part(r).load()[:, None], fy.u.part(r).load()[None, :])
            for r in range(len(fx.kappa))
        ]
        K, T = (None if m is None else [jnp.sum(a * m * b) for a, b in rows] for m in (k.K, k.T))
        products = [fx.c.part(q).load() * fy.c.part(q).load() for q in range(len(fx.cK))]
        return gathered(fx, products, K, T, self.options.ntk)


def takes(*streams: Stream) -> bool:
    """Whether inputs are of a kind that programs take."""
    return fused.available() and all(s.dtype in fused.TYPES and s.tokens in TOKENS for s in streams)


def applies(network, sx: tuple[Stream, ...], sy: tuple[Stream, ...], rx, ry) -> bool:
    """Whether a program can and should compute all pairs of two sets of inputs.

    Args:
        network: a `kernel.network.Network`.
        sx, sy: the inputs.
        rx, ry: their records, with one leading axis each.
    """
    found = (
        takes(*sx, *sy)
        and math.prod(s.n * s.tokens for s in (*sx, *sy)) < 2**31  # places have 32 bits
        and possible(network, sx, sy, rx, ry)
    )
    return found and _WORKS.setdefault(jax.tree.structure(network), True)


def refused(network, problem: Exception) -> bool:
    """Leave a network to XLA after its program failed; False if it had none.

    What a program can do is read off its trace, and a compiler may still run out of registers.
    """
    structure = jax.tree.structure(network)
    if not _WORKS.get(structure, False):
        return False
    _WORKS[structure] = False
    jax.clear_caches()
    warnings.warn(
        f"the GPU program of this network ({type(network.net).__name__}) failed: "
        f"{str(problem).splitlines()[0]!r}. XLA computes it instead, which takes longer; please "
        "report the network (limitformer.kernel.whole)",
        stacklevel=2,
    )
    return True


def possible(network, sx, sy, rx, ry) -> bool:
    """Whether a program can compute these pairs; the arguments are those of `applies`."""
    if len(sx) != 1 or network.need.cross != Form.FULL:
        return False
    if any(a.ndim for a in jax.tree.leaves(network) if eqx.is_array(a)):
        return False
    arrays, static, *given = _arguments(network, sx, sy, rx, ry)
    try:
        trace = jax.make_jaxpr(functools.partial(_called, static, interpret=False))(arrays, *given)
    except (NoReadout, IndexError, TypeError, ValueError):  # or a layer that counts leading axes
        return False
    (program,) = (e for e in trace.jaxpr.eqns if e.primitive.name == "pallas_call")
    program = program.params["jaxpr"]
    return _count(program) <= _MOST and _fits(program)


def cross(network, sx, sy, rx, ry, interpret: bool = False):
    """K and T of all pairs, `(n1, n2, 1, 1)`.

    Args:
        network, sx, sy, rx, ry: as for `applies`.
        interpret: on a CPU, for tests.
    """
    arrays, static, *given = _arguments(network, sx, sy, rx, ry)
    found = _computed((static, interpret), arrays, *given)
    return found[0], found[1] if network.ntk else None


def _arguments(network, sx, sy, rx, ry) -> tuple:
    """Arrays and the rest of the network and of both sides' records and masks, and the features.

    Features are `(n, S, features)`: none of them where the first kernel is zero.
    """
    sides = [(records, s.mask) for (s,), records in ((sx, rx), (sy, ry))]
    features = [jnp.zeros((s.n, s.tokens, 0), s.dtype) if s.ids else s.x for s in (*sx, *sy)]
    return *eqx.partition((network, *sides), eqx.is_array), *features


# A program has no derivative of its own: derivatives are those of plain operations.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _computed(how, arrays, x, y):
    static, interpret = how
    return _called(static, arrays, x, y, interpret)


@_computed.defjvp
def _(how, primals, tangents):
    def plain(arrays, x, y):
        network, *sides = eqx.combine(arrays, how[0])
        rx, ry = (filled(records, lambda own, m=mask: own.of(m)) for records, mask in sides)
        K = jnp.einsum("iaf,jbf->ijab", x, y) / max(x.shape[-1], 1)
        rx = jax.tree.map(lambda a: a[:, None], rx)
        ry = jax.tree.map(lambda a: a[None, :], ry)
        run = CrossRun(network.options(None, 0), rx, ry)
        return _values(network, run(network.net, Cross(K), "net"))

    return jax.jvp(plain, primals, tangents)


def _values(network, k: Cross) -> tuple:
    return (k.K, k.with_zero_T().T) if network.ntk else (k.K,)


def _called(static, arrays, x, y, interpret: bool) -> tuple:
    from jax.experimental import pallas

    (n1, S1, features), (n2, S2, _) = x.shape, y.shape
    first = _first(x, y)
    numbers, *sides = arrays
    given = [a.reshape(1) for a in jax.tree.leaves(numbers)]
    for side in sides:
        kept = (a for a in jax.tree.leaves(side) if a.size)
        given += [a.astype(jnp.int32) if a.dtype == bool else a for a in kept]
    like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arrays)
    simple = programs.arithmetic(interpret)
    program = functools.partial(
        _program,
        static=static,
        like=like,
        n2=n2,
        features=features,
        begin=len(first),
        simple=simple,
    )
    shape = jax.ShapeDtypeStruct((n1 * n2,), x.dtype)
    found = pallas.pallas_call(
        program,
        grid=(n1 * n2,),
        out_shape=[shape] * (1 + static[0].ntk),
        **programs.options(_warps(static[0], S1, S2), interpret, most=16),
    )(*first, *given)
    return tuple(m.reshape(n1, n2, 1, 1) for m in found)


def _warps(network, S1: int, S2: int) -> int:
    """Of a program. Products of matrices hold more numbers: with few warps they would spill."""
    if any(work.flops for work in work_of(network, S1, S2, 0).values()):
        return S1 * S2 // _ENTRIES[0]
    return S1 * S2 // _ENTRIES[1 + (S1 * S2 >= 64 * 64)]


def _first(x, y) -> list:
    """What a program makes the first kernel of: a few features, or itself if there are many."""
    features = x.shape[-1]
    width = max(_PRODUCTS[0], 1 << (features - 1).bit_length())
    if width not in _PRODUCTS:
        return [jnp.einsum("iaf,jbf->iajb", x, y)]  # as it is multiplied: not pair by pair
    x, y = (jnp.pad(a, ((0, 0), (0, 0), (0, width - features))) for a in (x, y))
    return [x, jnp.swapaxes(y, 1, 2)]


def _first_kernel(first, i, j):
    """Of two inputs, times the number of features."""
    if len(first) == 1:
        return first[0][i, :, j]
    return jnp.dot(first[0][i], first[1][j], precision="highest")


def _program(*refs, static, like, n2: int, features: int, begin: int, simple):
    """One pair of inputs, from its first kernel to its readout."""
    from jax.experimental import pallas

    outputs = refs[-1 - static[0].ntk :]
    first, given = refs[:begin], iter(refs[begin : -len(outputs)])
    pair = pallas.program_id(0)
    places = (i, j) = (pair // n2, pair % n2)

    def stored(place, a) -> Any:
        empty = not math.prod(a.shape)
        return np.zeros(a.shape[1:], a.dtype) if empty else Stored(next(given), (place,), a.dtype)

    numbers, *sides = like
    numbers = jax.tree.map(lambda _: next(given)[0], numbers)
    sides = [
        jax.tree.map(functools.partial(stored, place), side)
        for place, side in zip(places, sides, strict=True)
    ]
    network, *sides = eqx.combine((numbers, *sides), static)
    rx, ry = (_with_mask(*side) for side in sides)
    run = ProgramRun(network.options(None, 0), rx, ry, lead=0)

    def read(K):
        values = _values(network, run(network.net, Cross(K / max(features, 1)), "net"))
        if any(m.shape != (1, 1) for m in values):
            raise NoReadout
        return [jnp.sum(m) for m in values]

    for ref, value in zip(outputs, simple(read)(_first_kernel(first, i, j)), strict=True):
        ref[pair] = value


def _with_mask(records, mask: Stored | None):
    """Records with the mask where it belongs, loaded once."""
    loaded = None if mask is None else mask.load()
    return filled(records, lambda _: loaded)


def _count(program) -> int:
    inner = (v.jaxpr for e in program.eqns for v in e.params.values() if hasattr(v, "jaxpr"))
    return len(program.eqns) + sum(map(_count, inner))


def _fits(program) -> bool:
    """Whether every operation of a traced program is one that a GPU program can do."""
    return all(map(_possible, program.eqns))


def _possible(equation) -> bool:
    name = equation.primitive.name.removesuffix("_p")
    inner = [v for v in equation.params.values() if hasattr(v, "jaxpr")]
    if inner:
        return name in _NESTED and all(_fits(v.jaxpr) for v in inner)
    # what is read from memory, or written to it, is not an array on registers
    arrays = (*(() if name in ("get", "swap") else equation.invars), *equation.outvars)
    shapes = [v.aval.shape for v in arrays]
    if any(sum(n > 1 for n in s) > 2 or any(n & (n - 1) or not n for n in s) for s in shapes):
        return False
    if name == "dot_general":
        (_, added), *_ = equation.params["dimension_numbers"]
        summed = [shapes[1][axis] for axis in added]
        return len(summed) == 1 and summed[0] in _PRODUCTS and all(len(s) == 2 for s in shapes)
    return name in _OPERATIONS.split()
