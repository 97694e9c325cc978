"""A program at width n, with its own random matrices in every run.

Matrices need not be formed. A program never uses W^T, so W enters only through its products with
vectors x_1, x_2, ..., and these can be drawn one after another from their exact joint law: with
e_1, e_2, ... the orthonormal basis that Gram-Schmidt makes of the vectors,

    W x_k = std n^{-1/2} sum_{i <= k} (e_i . x_k) g_i,      g_i = sqrt(n) W e_i / std  iid N(0, I),

also if x_k depends on the earlier products. That is n k^2 work instead of n^2.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..scores.factor import semidefinite_cholesky
from .program import Initial, Matrix, MatMul, Mix, Moment, Node, Nonlin, Program, Score, Vector

_NUMBERS_AT_ONCE = 2**22


@dataclasses.dataclass(frozen=True, eq=False)
class Simulation:
    """Values of a program's nodes in independent runs at width n.

    `sim[score]` and `sim[moment]` are `(runs,)`; `sim[vector]` is `(runs, coordinates)`, the first
    coordinates of the vector.
    """

    n: int
    runs: int
    values: dict[int, np.ndarray] = dataclasses.field(repr=False)

    def __getitem__(self, node: Node) -> Float[np.ndarray, "runs *coordinates"]:
        return self.values[node.index]


def simulate(
    program: Program,
    n: int,
    *,
    key,
    runs: int,
    coordinates: int = 1,
    dense: bool = False,
    batch: int | None = None,
) -> Simulation:
    """Run the program `runs` times at width n, in float32.

    Conditions of the limit theorem are not asked for: any program can be simulated.

    Args:
        n: width; a vector of width w has round(w n) coordinates.
        key: randomness of the runs; run r depends on the key and r alone.
        coordinates: how many first coordinates of each vector to keep.
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

    def run(r):
        return _run(program, n, jax.random.fold_in(key, r), coordinates, dense)

    keep = jax.jit(lambda r: jax.lax.map(run, r, batch_size=batch))
    found = keep(jnp.arange(runs, dtype=jnp.uint32))
    return Simulation(n, runs, {i: np.asarray(v) for i, v in found.items()})


def _size(width: float, n: int) -> int:
    return round(width * n)


def _run(program: Program, n: int, key, coordinates: int, dense: bool) -> dict[int, jax.Array]:
    start, weights = jax.random.split(key)
    values: dict[int, jax.Array] = {}
    blocks: dict[int, jax.Array] = {}
    product = _Dense if dense else _Sequential
    matrices = [product(W, n, jax.random.fold_in(weights, W.index)) for W in program.matrices]

    def at(nodes):
        return [values[node.index] for node in nodes]

    for node in program.nodes:
        if isinstance(node, Initial):
            if node.block not in blocks:
                C = jnp.asarray(program.covariances[node.block], jnp.float32)
                z = jax.random.normal(
                    jax.random.fold_in(start, node.block),
                    (len(C), _size(node.width, n)),
                    jnp.float32,
                )
                blocks[node.block] = semidefinite_cholesky(C) @ z
            value = blocks[node.block][node.position]
        elif isinstance(node, MatMul):
            value = matrices[node.matrix.index](values[node.input.index])
        elif isinstance(node, Nonlin):
            x = at(node.inputs)
            value = jnp.broadcast_to(node.fn(*x, *at(node.scores)), x[0].shape)
        elif isinstance(node, Mix):
            c = node.fn(*at(node.scores)).astype(jnp.float32)
            value = c @ jnp.stack(at(node.inputs))
        elif isinstance(node, Score):
            x, y = at((node.left, node.right))
            value = jnp.sum(x * y) / math.sqrt(len(x))
        else:
            assert isinstance(node, Moment)
            x = at(node.inputs)
            value = jnp.mean(jnp.broadcast_to(node.fn(*x, *at(node.scores)), x[0].shape))
        values[node.index] = value.astype(jnp.float32)
    return {i: v[:coordinates] if v.ndim else v for i, v in values.items()}


class _Dense:
    """Products with a matrix that is there."""

    def __init__(self, W: Matrix, n: int, key):
        rows, columns = _size(W.rows, n), _size(W.columns, n)
        self.W = jax.random.normal(key, (rows, columns), jnp.float32) * (W.std / math.sqrt(columns))

    def __call__(self, x):
        return jnp.matmul(self.W, x, precision=jax.lax.Precision.HIGHEST)


class _Sequential:
    """Products with a matrix that is known only where it has been applied."""

    def __init__(self, W: Matrix, n: int, key):
        self.rows, self.key = _size(W.rows, n), key
        self.scale = W.std / math.sqrt(_size(W.columns, n))
        self.basis: list[jax.Array] = []
        self.images: list[jax.Array] = []

    def __call__(self, x):
        g = jax.random.normal(
            jax.random.fold_in(self.key, len(self.images)), (self.rows,), jnp.float32
        )
        left, along = x, []
        if self.basis:
            E = jnp.stack(self.basis)
            c = jnp.zeros(len(E), jnp.float32)
            for _ in range(2):  # the second pass removes the rounding of the first
                step = jnp.sum(E * left, axis=1)
                c, left = c + step, left - jnp.sum(step[:, None] * E, axis=0)
            along = list(c)
        size, rest = jnp.sqrt(jnp.sum(x * x)), jnp.sqrt(jnp.sum(left * left))
        new = rest > 1e-6 * size  # below, x lies in the span and what is left is rounding
        rest = jnp.where(new, rest, 0.0)
        self.basis.append(jnp.where(new, left / jnp.where(new, rest, 1.0), 0.0))
        self.images.append(g)
        return self.scale * (
            rest * g + sum((c * h for c, h in zip(along, self.images, strict=False)), 0.0)
        )
