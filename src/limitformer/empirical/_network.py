"""What the other files ask of a network: its trained leaves, shapes, blocks and precision."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

Network = Callable[[Any, Any], Any]


class _Complex(eqx.Module):
    """A complex parameter as the two real ones that are trained."""

    re: Any
    im: Any


def _is_complex(leaf: Any) -> bool:
    return isinstance(leaf, _Complex)


def split(params: PyTree) -> tuple[PyTree, PyTree]:
    """The floating leaves (a complex one as its two real parts), and everything else."""
    trained, fixed = eqx.partition(params, eqx.is_inexact_array)

    def real(leaf):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            return _Complex(jnp.real(leaf), jnp.imag(leaf))
        return leaf

    return jax.tree.map(real, trained), fixed


def join(trained: PyTree, fixed: PyTree) -> PyTree:
    """The inverse of `split`."""

    def whole(leaf):
        return jax.lax.complex(leaf.re, leaf.im) if _is_complex(leaf) else leaf

    return eqx.combine(jax.tree.map(whole, trained, is_leaf=_is_complex), fixed)


def check_params(params: PyTree) -> None:
    """Raise unless there is something to train."""
    if not any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(params)):
        kinds = sorted({type(leaf).__name__ for leaf in jax.tree.leaves(params)}) or ["nothing"]
        raise ValueError(
            "params has no floating-point array to differentiate by "
            f"(it holds {', '.join(kinds)}). "
            "Pass the weights as arrays, e.g. jnp.asarray(w, dtype=float)."
        )


def count_inputs(x: PyTree, name: str) -> int:
    """The common leading axis of the inputs."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(x)]
    if not shapes or any(len(shape) == 0 for shape in shapes):
        raise ValueError(
            f"{name} needs a leading axis of inputs, got shapes {shapes}. "
            f"A single input is {name}[None]."
        )
    counts = {shape[0] for shape in shapes}
    if len(counts) > 1:
        raise ValueError(
            f"all arrays of {name} need the same leading axis of inputs, got shapes {shapes}."
        )
    n = counts.pop()
    if n == 0:
        raise ValueError(f"{name} holds no inputs (shapes {shapes}): give at least one.")
    return n


class Output(NamedTuple):
    """Shape of f on a batch: `tokens` is None for (n, outputs)."""

    n: int
    tokens: int | None
    outputs: int
    dtype: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, *(() if self.tokens is None else (self.tokens,)), self.outputs)

    @property
    def rows(self) -> int:
        """Numbers per input."""
        return (self.tokens or 1) * self.outputs


def describe(f: Network, params: PyTree, x: PyTree, name: str) -> Output:
    """The shape of f(params, x), without computing it; raises if it is not a batch of outputs."""
    n = count_inputs(x, name)
    out = eqx.filter_eval_shape(f, params, x)
    shape = getattr(out, "shape", None)
    if shape is None or len(shape) not in (2, 3):
        raise ValueError(
            "f(params, x) must be (n, outputs) or (n, tokens, outputs), got "
            f"{type(out).__name__ if shape is None else shape}. "
            "For one number per input return f(params, x)[:, None]."
        )
    if shape[0] != n:
        raise ValueError(
            f"f(params, {name}) must keep the leading axis of inputs: "
            f"{n} inputs gave shape {shape}."
        )
    if math.prod(shape) == 0:
        raise ValueError(f"f(params, {name}) is empty: shape {shape}.")
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise TypeError(
            f"f(params, {name}) must be real floating-point, got {out.dtype}. "
            "Return real and imaginary parts as separate outputs."
        )
    return Output(n, shape[1] if len(shape) == 3 else None, shape[-1], out.dtype)


def describe_pair(f: Network, params: PyTree, x: PyTree, y: PyTree | None) -> tuple[Output, Output]:
    """`describe` for both sides, which must be two batches of one network."""
    left = describe(f, params, x, "x")
    right = left if y is None else describe(f, params, y, "y")
    if (left.outputs, left.tokens is None) != (right.outputs, right.tokens is None):
        raise ValueError(
            "f must give the same outputs for x and y (only inputs and tokens may differ), "
            f"got {left.shape} and {right.shape}."
        )
    return left, right


class Cost(NamedTuple):
    """Of one input through the network, as XLA counts before optimising (a loop counts once)."""

    flops: float
    bytes: float


def cost_of_one(f: Network, params: PyTree, x: PyTree) -> Cost | None:
    """What evaluating f on one input costs; None where XLA does not say."""

    def abstract(leaf, shape):
        weak = getattr(leaf, "weak_type", False)
        return jax.ShapeDtypeStruct(shape, jnp.result_type(leaf), weak_type=weak)

    arrays, static = eqx.partition((f, params), eqx.is_array)

    def run(arrays, x):
        f, params = eqx.combine(arrays, static)
        return f(params, x)

    arrays = jax.tree.map(lambda leaf: abstract(leaf, leaf.shape), arrays)
    one = jax.tree.map(lambda leaf: abstract(leaf, (1, *jnp.shape(leaf)[1:])), x)
    count = jax.jit(run).lower(arrays, one).cost_analysis()
    if not count or "flops" not in count or "bytes accessed" not in count:
        return None
    return Cost(count["flops"], count["bytes accessed"])


def result_dtype(params: PyTree, *outs: Output):
    """Promotion of outputs and trained leaves, float32 at least."""
    leaves = jax.tree.leaves(eqx.filter_eval_shape(split, params)[0])
    return promote(*(leaf.dtype for leaf in leaves), *(out.dtype for out in outs))


def promote(*dtypes):
    """The promotion of all dtypes and float32, also where JAX is told never to promote."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(jnp.float32, *dtypes)


def check_batch(batch: int | None) -> None:
    """Raise unless batch is None or a positive integer."""
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ValueError(f"batch must be a positive number of inputs or None, got {batch!r}.")


class Block(NamedTuple):
    """Inputs [start, start + size), of which the last `keep` are new."""

    start: int
    size: int
    keep: int

    def take(self, x: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[self.start : self.start + self.size], x)


def blocks(n: int, batch: int) -> list[Block]:
    """Blocks of one size that cover n inputs.

    The last one steps back over inputs that were already done instead of being smaller, so one
    compiled tile serves any n.
    """
    size = min(n, batch)
    found = [Block(start, size, size) for start in range(0, n - size + 1, size)]
    rest = n - len(found) * size
    return [*found, Block(n - size, size, rest)] if rest else found


def _is_tracer(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array):
        return False
    try:
        leaf.devices()
    except jax.errors.ConcretizationTypeError:
        return True
    return False


@contextlib.contextmanager
def precision_of(params: PyTree, *inputs: PyTree) -> Iterator[Callable[[Any], Any]]:
    """Compute in the precision of the parameters, whatever JAX's global switch says.

    Gives the function to pass results through: with 64-bit parameters and the switch off they
    come back as NumPy arrays (a JAX array would turn float32 in the next operation). Under a
    transformation the dtypes are those of the tracers and no scope is entered.
    """
    leaves = jax.tree.leaves((params, inputs))
    wide = any(
        eqx.is_inexact_array(leaf) and leaf.dtype in (np.float64, np.complex128)
        for leaf in jax.tree.leaves(params)
    )
    if wide and not jax.config.jax_enable_x64 and not any(_is_tracer(leaf) for leaf in leaves):  # pyright: ignore[reportAttributeAccessIssue]
        with jax.enable_x64(True):
            yield lambda result: jax.tree.map(np.asarray, result)
    else:
        yield lambda result: result
