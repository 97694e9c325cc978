"""The language: vectors, matrices, products, coordinatewise functions, scores and moments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..duals import Dual
from ..layers.activation import Activation

if TYPE_CHECKING:
    from .limit import Limit
    from .simulate import Simulation


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """Something a program computes; `index` is its place in the program."""

    program: Program = dataclasses.field(repr=False)
    index: int


@dataclasses.dataclass(frozen=True, eq=False)
class Vector(Node):
    """A vector of `width` times n coordinates."""

    width: float

    def __add__(self, other: Vector) -> Mix:
        return self.program.mix((1.0, 1.0), self, other)

    def __sub__(self, other: Vector) -> Mix:
        return self.program.mix((1.0, -1.0), self, other)

    def __mul__(self, scale: float) -> Mix:
        return self.program.mix((scale,), self)

    __rmul__ = __mul__


@dataclasses.dataclass(frozen=True, eq=False)
class Initial(Vector):
    """One of several Gaussian vectors that a program starts from."""

    block: int
    position: int


@dataclasses.dataclass(frozen=True, eq=False)
class MatMul(Vector):
    """W x."""

    matrix: Matrix
    input: Vector


@dataclasses.dataclass(frozen=True, eq=False)
class Nonlin(Vector):
    """fn(x_1, x_2, ..., scores), coordinate by coordinate."""

    fn: Callable = dataclasses.field(repr=False)
    inputs: tuple[Vector, ...] = dataclasses.field(repr=False)
    scores: tuple[Scalar, ...] = dataclasses.field(repr=False)
    dual: Dual | None = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Mix(Vector):
    """sum_j c_j x_j with coefficients c that may depend on scores."""

    fn: Callable = dataclasses.field(repr=False)
    inputs: tuple[Vector, ...] = dataclasses.field(repr=False)
    scores: tuple[Scalar, ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Score(Node):
    """n^{-1/2} x.y."""

    left: Vector
    right: Vector


@dataclasses.dataclass(frozen=True, eq=False)
class Moment(Node):
    """n^{-1} sum_i fn(x_i, y_i, ..., scores)."""

    fn: Callable = dataclasses.field(repr=False)
    inputs: tuple[Vector, ...] = dataclasses.field(repr=False)
    scores: tuple[Scalar, ...] = dataclasses.field(repr=False)


Scalar = Score | Moment


@dataclasses.dataclass(frozen=True, eq=False)
class Matrix:
    """A Gaussian matrix with entries N(0, std^2 / columns); `W @ x` multiplies."""

    program: Program = dataclasses.field(repr=False)
    index: int
    std: float
    rows: float
    columns: float

    def __matmul__(self, x: Vector) -> MatMul:
        self.program._own(x)
        if x.width != self.columns:
            raise ValueError(
                f"matrix {self.index} takes vectors of width {self.columns} n, and vector "
                f"{x.index} has width {x.width} n; make it with p.matrix(columns={x.width})"
            )
        return self.program._add(MatMul, self.rows, self, x)

    @property
    def T(self) -> Matrix:
        raise NotImplementedError(
            f"the transpose of matrix {self.index} was asked for. A program that uses W and its "
            "transpose makes vectors that depend on each other through W, and the limit here does "
            "not hold for them. Use a fresh p.matrix() if the two are meant to be independent."
        )


class Program:
    """A Netsor program with scores, run at width n (`simulate`) or at infinite width (`limit`).

    Vectors are made by MatMul, h = W x with W_ij ~ N(0, std^2/n), and by functions applied to each
    coordinate; scores are p = n^{-1/2} g.g' of two MatMul vectors, and later vectors may depend on
    them. A program is built by calling its methods in order.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from limitformer import netsor
        >>> p = netsor.Program()
        >>> x, y = p.vectors([[1.0, 0.3], [0.3, 1.0]])
        >>> Q, K = p.matrix(), p.matrix()
        >>> s = p.score(Q @ x, K @ y)
        >>> h = p.nonlin(lambda x, s: jnp.tanh(s * x), x, scores=(s,))
        >>> float(p.limit().score_covariance(s).value[0, 0])
        1.0
        >>> p.simulate(n=64, key=jax.random.key(0), runs=10)[h].shape
        (10, 1)

    Reference:
        Yang 2019, arXiv 1910.12478 (Netsor); Sakai, Karakida, Imaizumi 2025, arXiv 2506.00846
        (scores).
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.matrices: list[Matrix] = []
        self.covariances: list[np.ndarray] = []
        self.duals: list[Dual] = []

    def __repr__(self) -> str:
        count = lambda kind: sum(isinstance(node, kind) for node in self.nodes)  # noqa: E731
        return (
            f"Program({count(Vector)} vectors, {len(self.matrices)} matrices, "
            f"{count(Score)} scores, {count(Moment)} moments)"
        )

    def vectors(self, covariance: Any, width: float = 1.0) -> tuple[Initial, ...]:
        """Gaussian vectors whose coordinates are iid copies of N(0, covariance).

        Args:
            covariance: `(k, k)` over the k vectors, positive semidefinite.
            width: of the vectors, as a multiple of n.

        Raises:
            ValueError: a covariance that is not square, symmetric and positive semidefinite.
        """
        C = np.asarray(covariance, float)
        if C.ndim != 2 or C.shape[0] != C.shape[1] or C.shape[0] == 0:
            raise ValueError(
                f"the covariance of initial vectors must be a square matrix, one row per vector, "
                f"got shape {C.shape}"
            )
        size = np.abs(C).max()
        if not np.isfinite(size) or np.abs(C - C.T).max() > 1e-12 * size:
            raise ValueError("the covariance of initial vectors must be finite and symmetric")
        lowest = np.linalg.eigvalsh(C).min()
        if lowest < -1e-10 * size:
            raise ValueError(
                f"the covariance of initial vectors has eigenvalue {lowest:.3g}; it must be "
                "positive semidefinite"
            )
        _positive(width, "width")
        self.covariances.append(C)
        block = len(self.covariances) - 1
        return tuple(self._add(Initial, width, block, i) for i in range(len(C)))

    def vector(self, variance: float = 1.0, width: float = 1.0) -> Initial:
        """One Gaussian vector, independent of all others."""
        return self.vectors([[variance]], width)[0]

    def matrix(self, std: float = 1.0, *, rows: float = 1.0, columns: float = 1.0) -> Matrix:
        """A Gaussian matrix, `rows` n by `columns` n, entries N(0, std^2 / (columns n)).

        Heads narrower than the network are matrices with `rows=1/4`, say.
        """
        _positive(rows, "rows")
        _positive(columns, "columns")
        if not np.isfinite(std):
            raise ValueError(f"std={std}; it must be finite")
        self.matrices.append(Matrix(self, len(self.matrices), float(std), rows, columns))
        return self.matrices[-1]

    def nonlin(
        self, fn: Callable | Dual | Activation, *vectors: Vector, scores: Sequence[Node] = ()
    ) -> Nonlin:
        """A vector of fn(x_1, x_2, ..., *scores), coordinate by coordinate.

        Args:
            fn: gets one array per vector, all of one shape, and then one number per score; uses
                `jax.numpy`. Or an activation such as `lf.Relu()` of one vector, whose expectations
                are then closed forms.
            scores: scores (or moments) that fn depends on.
        """
        dual = fn.dual if isinstance(fn, Activation) else fn if isinstance(fn, Dual) else None
        if dual is not None:
            if len(vectors) != 1 or scores:
                raise ValueError(
                    f"{type(dual).__name__} is a function of one vector, got {len(vectors)} "
                    f"vectors and {len(scores)} scores; write a function of all of them"
                )
            # equal activations are one object, so that their expectations are closed forms
            dual = next((d for d in self.duals if eqx.tree_equal(d, dual)), dual)
            self.duals.append(dual)
            fn = dual.fn
        width = self._coordinatewise(fn, vectors, scores)
        return self._add(Nonlin, width, fn, vectors, tuple(scores), dual)

    def mix(
        self,
        coefficients: Callable | Sequence[float],
        *vectors: Vector,
        scores: Sequence[Node] = (),
    ) -> Mix:
        """The vector sum_j c_j x_j: a Nonlin known to be linear, so that its moments are exact.

        Args:
            coefficients: one number per vector, or a function of the scores that returns them.
        """
        width = self._widths(vectors)
        if callable(coefficients):
            fn = coefficients
        else:
            if scores:
                raise ValueError("coefficients that depend on scores must be a function of them")
            c = tuple(float(v) for v in coefficients)
            fn = lambda: jnp.asarray(c)  # noqa: E731
        found = jax.eval_shape(fn, *self._numbers(scores)).shape
        if found != (len(vectors),):
            raise ValueError(
                f"coefficients must give one number per vector, shape {(len(vectors),)}, got "
                f"{found}"
            )
        return self._add(Mix, width, fn, vectors, tuple(scores))

    def score(self, left: Vector, right: Vector) -> Score:
        """n^{-1/2} left.right, with n the width of the two vectors."""
        self._widths((left, right))
        return self._add(Score, left, right)

    def moment(self, fn: Callable, *vectors: Vector, scores: Sequence[Node] = ()) -> Moment:
        """n^{-1} sum_i fn(x_i, y_i, ..., *scores), fn as for `nonlin`."""
        self._coordinatewise(fn, vectors, scores)
        return self._add(Moment, fn, vectors, tuple(scores))

    def simulate(self, n: int, *, key, runs: int, **options) -> Simulation:
        """Runs at width n; see `limitformer.netsor.simulate.simulate`."""
        from .simulate import simulate

        return simulate(self, n, key=key, runs=runs, **options)

    def limit(self, **options) -> Limit:
        """The limit at infinite width, if the theorem applies; see `netsor.limit.Limit`.

        Raises:
            ValueError: a condition of the theorem fails; the message says which, where and why.
        """
        from .limit import limit

        return limit(self, **options)

    def _add(self, kind, *fields):
        node = kind(self, len(self.nodes), *fields)
        self.nodes.append(node)
        return node

    def _own(self, node: Node, kind: type = Vector) -> None:
        if not isinstance(node, kind):
            raise TypeError(f"expected a {kind.__name__.lower()} of this program, got {node!r}")
        if node.program is not self:
            raise ValueError(
                f"{type(node).__name__} {node.index} belongs to another program; vectors and "
                "scores of two programs cannot be combined"
            )

    def _widths(self, vectors: Sequence[Vector]) -> float:
        if not vectors:
            raise ValueError("at least one vector is needed")
        for v in vectors:
            self._own(v)
        widths = {v.width for v in vectors}
        if len(widths) > 1:
            raise ValueError(
                f"vectors of different widths {sorted(widths)} (multiples of n) have no common "
                "coordinates; bring them to one width with p.matrix(rows=, columns=)"
            )
        return widths.pop()

    def _numbers(self, scores: Sequence[Node]) -> list:
        for s in scores:
            self._own(s, Node)
            if not isinstance(s, Score | Moment):
                raise TypeError(f"scores= takes scores and moments, got {type(s).__name__}")
        return [jax.ShapeDtypeStruct((), jnp.float32)] * len(scores)

    def _coordinatewise(self, fn, vectors, scores) -> float:
        if not callable(fn):
            raise TypeError(f"fn must be a function of {len(vectors)} arrays, got {fn!r}")
        width = self._widths(vectors)
        array = jax.ShapeDtypeStruct((3,), jnp.float32)
        found = jax.eval_shape(fn, *[array] * len(vectors), *self._numbers(scores)).shape
        if found not in ((3,), ()):
            raise ValueError(
                f"fn must act on each coordinate alone: given arrays of shape (3,) it returned "
                f"shape {found}"
            )
        return width


def _positive(value: float, name: str) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value}; it must be a positive multiple of n")
