"""The contract of a layer, and what every network can be asked for.

A layer is a map on the token kernel. A `Leaf` says how (its kernel map and its finite twin); a
`Composite` only says in which order its children run, and the same `flow` then serves every pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np

from ..kernel.functional import Functional
from ..kernel.state import Cross, Form, Marginal, Need

ALL_OF_IT = Need(Form.FULL, Form.FULL)
State = Any  # Marginal, Cross or Activations, or a tuple of them for several streams


@dataclasses.dataclass(frozen=True)
class Context:
    """What a pass tells a layer: where it is, what is needed of it, and its randomness.

    Attributes:
        path: the layer's name in the network, unique.
        need: what later layers need of this layer's output.
        ntk: whether T is asked for.
        key: the layer's own key for score draws.
        draws: number of score draws.
        features: score features of this side, where the pass has factored a pair's joint kernel.
        notes: in a pass without numbers, what the layer tells the engine.
        joint: the pass draws the scores of all inputs together, so finitely many heads are allowed.
        normals: where such a pass takes the normals of a shape and type from; None: from the key.
        first: as many inputs decide which features such a pass draws scores from; None: all.
    """

    path: str
    need: Need = ALL_OF_IT
    ntk: bool = True
    key: jax.Array | None = None
    draws: int = 0
    features: Any = None
    notes: set[str] | None = None
    joint: bool = False
    normals: Callable[[tuple[int, ...], Any], jax.Array] | None = None
    first: int | None = None


class Layer(eqx.Module):
    """A network, or a part of one."""

    def kernel(self, x, y=None, x_mask=None, y_mask=None, **options):
        """NNGP and NTK of the infinite network; see `limitformer.kernel.gram.kernel`."""
        from ..kernel.gram import kernel

        return kernel(self, x, y, x_mask, y_mask, **options)

    def trace(self, x, y=None, x_mask=None, y_mask=None, **options):
        """Token kernels after every layer; see `limitformer.kernel.trace.trace`."""
        from ..kernel.trace import trace

        return trace(self, x, y, x_mask, y_mask, **options)

    def law(self, x, *, key, **options):
        """The law of finitely many heads; see `limitformer.heads.law.law`."""
        from ..heads.law import law

        return law(self, x, key=key, **options)

    def plan(self, x, y=None, x_mask=None, y_mask=None, **options):
        """Work, memory and draws before the work; see `limitformer.kernel.plan.plan`."""
        from ..kernel.plan import plan

        return plan(self, x, y, x_mask, y_mask, **options)

    def to_toml(self, **options) -> str:
        """The network as TOML; see `limitformer.files.to_toml`."""
        from ..files import to_toml

        return to_toml(self, **options)

    def __repr__(self) -> str:
        from ..files import one_line

        return one_line(self)

    def twin(self, *, key, **options):
        """The finite network; see `limitformer.twin.network.twin`."""
        from ..twin.network import twin

        return twin(self, key=key, **options)

    @property
    def pull_rank(self) -> int:
        """By how much a functional's rank grows when pulled back through; 0: it cannot be."""
        return 0

    def pull(self, functional: Functional, record) -> Functional:
        """A functional of this layer's output as a functional of its input (theory 2.4)."""
        raise NotImplementedError

    def with_heads(self, heads):
        """The same network with every attention layer's number of heads replaced."""
        from .attention import check_heads

        return replace_fields(self, "heads", check_heads(heads))


class Leaf(Layer):
    """A layer with a kernel map and a finite twin.

    `random_scores` says that the kernel map averages over draws of attention scores. In the finite
    twin, `makes_channels` says that the layer chooses its number of output channels,
    `keeps_channels` that it has as many as its input.
    """

    makes_channels: ClassVar[bool] = False
    keeps_channels: ClassVar[bool] = True

    def needs(self, out: Need) -> Need:
        """What must be known of the input so that `out` is known of the output."""
        raise NotImplementedError

    def marginal(self, state: Any, ctx: Context) -> tuple[Marginal, Any]:
        """Map one input's own state; also return what `cross` needs of this input.

        Every array of the record has the inputs as its leading axis.
        """
        raise NotImplementedError

    def cross(self, k: Any, rx: Any, ry: Any, ctx: Context) -> Cross:
        """Map the kernels of a block of pairs, from the records of its two sides.

        Leading axes are those of all pairs of two sets (records `(n1, 1, ...)` and `(1, n2, ...)`),
        of a list of pairs, or none: one pair inside a GPU program. Count axes from the end.
        """
        raise NotImplementedError

    def init(self, key: jax.Array, acts, ctx) -> Any:
        """Parameters of the finite twin for input activations of this shape."""
        return {}

    def apply(self, params: Any, acts, ctx):
        """The finite twin."""
        raise NotImplementedError

    @property
    def random_scores(self) -> bool:
        return False

    def pair_features(self, x, y, k) -> tuple[Any, Any]:
        """Score features of a list of pairs, for layers with random scores."""
        raise NotImplementedError

    def joint_features(self, x, k, ctx: Context) -> Any:
        """Score features of all inputs together, for layers with random scores."""
        raise NotImplementedError

    def work(self, S1: int, S2: int, out: Need, draws: int) -> Work:
        """Cost for one pair of inputs with S1 and S2 tokens, T included."""
        entries = kernel_entries(S1, S2, out)
        return Work(elements=2 * entries, moved=4 * entries)


@dataclasses.dataclass(frozen=True)
class Work:
    """Cost of a layer for one pair of inputs.

    Attributes:
        flops: floating-point operations in matrix products.
        elements: elementwise evaluations, each worth about one exponential.
        moved: numbers read or written.
        peak: numbers alive at once beside the kernel blocks themselves.
    """

    flops: float = 0.0
    elements: float = 0.0
    moved: float = 0.0
    peak: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.elements + other.elements,
            self.moved + other.moved,
            max(self.peak, other.peak),
        )


def kernel_entries(S1: int, S2: int, out: Need) -> int:
    """Entries of a pair's token kernel in the form that is needed."""
    return S1 * S2 if out.cross == Form.FULL else max(S1, S2)


class Composite(Layer):
    """A layer made of others. `flow` orders them; the same order serves every pass."""

    def flow(self, state: State, run: Callable) -> State:
        """Run the children on `state`: `run(child, state, name)`."""
        raise NotImplementedError

    def needs(self, out: Need, ask: Callable) -> Need:
        """The need pass: `ask(child, out, name)` gives what the child needs of its input."""
        raise NotImplementedError

    def children(self) -> Mapping[str, Layer]:
        """Children by name, in order."""
        raise NotImplementedError


AnyLayer = Composite | Leaf


def leaves(layer: Layer, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every leaf layer with its path, in order."""
    if isinstance(layer, Composite):
        for name, child in layer.children().items():
            yield from leaves(child, f"{path}/{name}" if path else name)
    elif isinstance(layer, Leaf):
        yield path, layer


def replace_fields(layer: Layer, field: str, value) -> Layer:
    """A copy of the network with `field` replaced in every layer that has it."""

    def visit(node) -> Any:
        if isinstance(node, Layer):
            new = object.__new__(type(node))  # constructors take other arguments than fields
            for f in dataclasses.fields(node):
                old = getattr(node, f.name)
                object.__setattr__(new, f.name, value if f.name == field else visit(old))
            return new
        if isinstance(node, tuple):
            return tuple(visit(item) for item in node)
        return node

    return visit(layer)


def hyper(value) -> Any:
    """Field converter for a hyper-parameter: numbers become floats, arrays stay as they are."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float, np.number)):
        if not np.isfinite(value):
            raise ValueError(f"a hyper-parameter must be finite, got {value}")
        return float(value)
    return value


def choice(name: str, value: str, options: tuple[str, ...]) -> str:
    """Check an option given by name."""
    if value not in options:
        raise ValueError(f"{name}={value!r} is not known; choose one of {', '.join(options)}")
    return value
