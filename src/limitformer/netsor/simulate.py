"""A program at width n, with its own random matrices in every run.

Matrices need not be formed. A program never uses W^T, so W enters only through its products with
vectors x_1, ..., x_k, whose exact joint law is known: with the Gram matrix of the vectors,

    W x_i = std sum_{j <= i} L_ij g_j,      L L^T = (x_i . x_j / n)_ij,     g_j iid N(0, I)

also if x_i depends on the earlier products (L is triangular: it is Gram-Schmidt). That is n k^2
work instead of n^2 k. In float32 a vector that others determine to 2e-3 of its length is taken to
be determined by them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..scores.factor import semidefinite_cholesky
from .conditions import uses
from .program import Initial, MatMul, Mix, Moment, Node, Nonlin, Program, Score, Vector

_NUMBERS_AT_ONCE = 2**22


@dataclasses.dataclass(frozen=True, eq=False)
class Simulation:
    """Values of a program's nodes in independent runs at width n.

    `sim[score]` and `sim[moment]` are `(runs,)`; `sim[vector]` is `(runs, coordinates)`, the first
    coordinates of the vector.
    """

    program: Program
    n: int
    runs: int
    values: dict[int, np.ndarray] = dataclasses.field(repr=False)

    def __getitem__(self, node: Node) -> Float[np.ndarray, "runs *coordinates"]:
        self.program._own(node, Node)
        if node.index not in self.values:
            raise KeyError(f"{type(node).__name__} {node.index} was not kept; add it to keep=")
        return self.values[node.index]


def simulate(
    program: Program,
    n: int,
    *,
    key,
    runs: int,
    coordinates: int = 1,
    keep: Sequence[Node] | None = None,
    dense: bool = False,
    batch: int | None = None,
) -> Simulation:
    """Run the program `runs` times at width n, in float32.

    Conditions of the limit theorem are not asked for: any program can be simulated.

    Args:
        n: width; a vector of width w has round(w n) coordinates.
        key: randomness of the runs; run r depends on the key and r alone.
        coordinates: how many first coordinates of each vector to keep.
        keep: the nodes to keep; None for all. Fewer compile faster.
        dense: form the matrices (n^2 numbers each) instead of drawing their products.
        batch: runs computed together.

    Raises:
        ValueError: runs or coordinates below 1, or a vector with fewer coordinates than asked for.

    Example:
        >>> import jax
        >>> from limitformer import netsor
        >>> p = netsor.Program()
        >>> s = p.score(p.matrix() @ p.vector(), p.matrix() @ p.vector())
        >>> p.simulate(n=100, key=jax.random.key(0), runs=5)[s].shape
        (5,)
    """
    if runs < 1 or coordinates < 1:
        raise ValueError(f"runs={runs} and coordinates={coordinates} must both be at least 1")
    narrow = min((v.width for v in program.nodes if isinstance(v, Vector)), default=1.0)
    if _size(narrow, n) < coordinates:
        raise ValueError(
            f"at n={n} a vector of width {narrow} n has {_size(narrow, n)} coordinates, and "
            f"{coordinates} are needed; use a larger n"
        )
    if batch is None:
        each = n * (len(program.nodes) + (n * len(program.matrices) if dense else 0))
        batch = max(1, min(runs, _NUMBERS_AT_ONCE // each))

    kept = tuple(node.index for node in (program.nodes if keep is None else keep))
    run = _compiled(program, len(program.nodes), n, coordinates, kept, dense)
    parts = []
    for start in range(0, runs, batch):  # the last batch is filled up: one shape, one compilation
        found = run(key, jnp.arange(start, start + batch, dtype=jnp.uint32))
        parts.append({i: np.asarray(v)[: runs - start] for i, v in found.items()})
    return Simulation(
        program, n, runs, {i: np.concatenate([part[i] for part in parts]) for i in parts[0]}
    )


@functools.lru_cache(maxsize=64)
def _compiled(program: Program, size: int, n: int, coordinates: int, kept: tuple, dense: bool):
    """Several runs as one function of the key and their numbers; `size`: programs can grow."""

    def run(key, r):
        return _run(program, n, jax.random.fold_in(key, r), coordinates, kept, dense)

    return jax.jit(jax.vmap(run, (None, 0)))


def _size(width: float, n: int) -> int:
    return round(width * n)


def _run(program, n: int, key, coordinates: int, kept: tuple[int, ...], dense: bool) -> dict:
    """One run. Nodes of one depth are computed together: fewer, larger steps compile faster."""
    run = _Run(program, n, key, dense)
    for step in _steps(program):
        run.take(step)
    return {i: run.values[i][:coordinates] if run.values[i].ndim else run.values[i] for i in kept}


def _steps(program: Program) -> list[list[Node]]:
    """Nodes in an order in which they can be computed, those of one kind and depth together."""
    depth: list[int] = []
    steps: dict[tuple, list[Node]] = {}
    for node in program.nodes:
        depth.append(1 + max((depth[u.index] for u in uses(node)), default=0))
        if isinstance(node, Initial):
            kind: tuple = (node.block,)
        elif isinstance(node, MatMul):
            kind = (node.matrix.index,)
        elif isinstance(node, Mix):
            kind = (id(node.fn), *(v.index for v in node.inputs))
        elif isinstance(node, Score):
            kind = (node.left.width,)
        else:
            kind = (node.index,)
        steps.setdefault((depth[-1], type(node).__name__, *kind), []).append(node)
    return [nodes for _, nodes in sorted(steps.items(), key=lambda item: item[0][0])]


class _Run:
    def __init__(self, program: Program, n: int, key, dense: bool):
        self.program, self.n, self.dense = program, n, dense
        self.values: dict[int, jax.Array] = {}
        self.inputs: dict[int, list[jax.Array]] = {}  # of every matrix so far
        # one call for all normals of a run, because every call is compiled anew
        shapes = {("block", i): (len(C), 0) for i, C in enumerate(program.covariances)}
        for v in program.nodes:
            if isinstance(v, Initial):
                shapes["block", v.block] = (shapes["block", v.block][0], _size(v.width, n))
        for W in program.matrices:
            count = sum(isinstance(v, MatMul) and v.matrix is W for v in program.nodes)
            shapes["matrix", W.index] = (
                _size(W.columns, n) if dense else count,
                _size(W.rows, n),
            )
        ends = list(itertools.accumulate(a * b for a, b in shapes.values()))
        z = jax.random.normal(key, (ends[-1] if ends else 0,), jnp.float32)
        self.normals = {
            name: z[end - shape[0] * shape[1] : end].reshape(shape)
            for (name, shape), end in zip(shapes.items(), ends, strict=True)
        }

    def take(self, nodes: list) -> None:
        found = getattr(self, "_" + type(nodes[0]).__name__.lower())(nodes)
        for node, value in zip(nodes, found, strict=True):
            self.values[node.index] = value.astype(jnp.float32)

    def _at(self, nodes) -> list[jax.Array]:
        return [self.values[node.index] for node in nodes]

    def _initial(self, nodes: list[Initial]):
        C = jnp.asarray(self.program.covariances[nodes[0].block], jnp.float32)
        x = _product(semidefinite_cholesky(C), self.normals["block", nodes[0].block])
        return [x[node.position] for node in nodes]

    def _matmul(self, nodes: list[MatMul]):
        W, g = nodes[0].matrix, self.normals["matrix", nodes[0].matrix.index]
        known = self.inputs.setdefault(W.index, [])
        known += self._at([node.input for node in nodes])
        X = jnp.stack(known)
        if self.dense:
            return _product(X[-len(nodes) :], g) * (W.std / math.sqrt(X.shape[1]))
        L = semidefinite_cholesky(_product(X, X.T) / X.shape[1])[-len(nodes) :]
        return W.std * _product(L, g[: len(known)])

    def _nonlin(self, nodes: list[Nonlin]):
        return [_apply(v.fn, self._at(v.inputs), self._at(v.scores)) for v in nodes]

    def _moment(self, nodes: list[Moment]):
        return [jnp.mean(_apply(v.fn, self._at(v.inputs), self._at(v.scores))) for v in nodes]

    def _mix(self, nodes: list[Mix]):
        x = jnp.stack(self._at(nodes[0].inputs))
        if not nodes[0].scores:
            c = jnp.broadcast_to(nodes[0].fn(), (len(nodes), len(x)))
        else:
            s = jnp.stack([v for node in nodes for v in self._at(node.scores)])
            c = jax.vmap(lambda row: nodes[0].fn(*row))(s.reshape(len(nodes), -1))
        return _product(c.astype(jnp.float32), x)

    def _score(self, nodes: list[Score]):
        left, right = (list({v.index: v for v in side}.values()) for side in _sides(nodes))
        x, y = (jnp.stack(self._at(side)) for side in (left, right))
        p = _product(x, y.T) / math.sqrt(x.shape[1])
        places = [(left.index(node.left), right.index(node.right)) for node in nodes]
        i, j = np.asarray(places).T
        return p[i, j]


def _sides(nodes: list[Score]):
    return [node.left for node in nodes], [node.right for node in nodes]


def _apply(fn, x, s) -> jax.Array:
    return jnp.broadcast_to(fn(*x, *s), x[0].shape)


def _product(a, b) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
