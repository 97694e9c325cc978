"""One draw of a program's limit: what its vectors are given the scores.

    Cov(Z^{Wx}, Z^{Wy}) = std^2 E[Z^x Z^y],  0 for two matrices;    Z^{phi(x, ...)} = phi(Z^x, ...)

and scores of queries of matrix A with keys of matrix B are p = L_A N L_B^T with N iid normal and
L L^T the covariance of the queries (keys), which is Gaussian with Cov(p_i, p_k) = E[g_i g_k]
E[g'_i g'_k]. Scores of later layers use the same N, and leading blocks of L do not change, so they
have their law given the earlier ones also if layers share A and B.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ..duals import Generic
from ..scores.factor import semidefinite_cholesky
from .conditions import levels
from .expectation import rules
from .program import Initial, MatMul, Mix, Moment, Node, Nonlin, Program, Scalar, Score, Vector

_matmul = jax.jit(lambda a, b: jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST))


def is_gaussian(v: Vector) -> bool:
    """Whether a vector is Gaussian given the scores."""
    if isinstance(v, Mix):
        return all(is_gaussian(u) for u in v.inputs)
    return isinstance(v, Initial | MatMul)


class Shape:
    """Vectors written as functions of Gaussian leaves and scores.

    `forms` are hashable trees with leaves and scores numbered in order of appearance: vectors with
    equal forms are one function of different Gaussians, and are computed together.
    """

    def __init__(self, vectors: Sequence[Vector | Moment]):
        self._leaves: dict[int, Vector] = {}
        self._scalars: dict[int, Scalar] = {}
        self.forms = tuple(self._form(v) for v in vectors)
        self.leaves, self.scalars = tuple(self._leaves.values()), tuple(self._scalars.values())

    def _form(self, v: Vector | Moment) -> tuple:
        if isinstance(v, Vector) and is_gaussian(v):
            self._leaves.setdefault(v.index, v)
            return ("leaf", list(self._leaves).index(v.index))
        assert isinstance(v, Nonlin | Mix | Moment)
        for s in v.scores:
            self._scalars.setdefault(s.index, s)
        numbers = tuple(list(self._scalars).index(s.index) for s in v.scores)
        kind = "mix" if isinstance(v, Mix) else "nonlin"
        return (kind, v.fn, tuple(self._form(u) for u in v.inputs), numbers)


def evaluate(form: tuple, u, s):
    """The values of a form at leaves u `(d, ...)` and scores s `(k,)`."""
    if form[0] == "leaf":
        return u[form[1]]
    kind, fn, inputs, numbers = form
    x = [evaluate(f, u, s) for f in inputs]
    p = [s[i] for i in numbers]
    if kind == "mix":
        return sum(c * v for c, v in zip(fn(*p), x, strict=True))
    return jnp.broadcast_to(fn(*x, *p), x[0].shape)


class Given:
    """Second moments, scores and moments of one draw; everything is computed when asked for.

    Args:
        key: randomness of the scores.
        replicate: which repetition of the quadrature rules to use.
        points: of the Sobol sequences.
        extra: how many normals to draw besides, for the coordinates of vectors.
    """

    def __init__(self, program: Program, key, replicate, points: int, extra: int = 0):
        self.program, self.replicate, self.points = program, replicate, points
        self.level = levels(program)
        self.pairs = _score_pairs(program, self.level)
        # one call for all normals of the scores, because every call is compiled anew
        sizes = [len(a) * len(b) for _, (a, b) in self.pairs.values()]
        ends = list(itertools.accumulate([0, *sizes]))
        z = jax.random.normal(key, (ends[-1],), jnp.float64)
        # another key, so that the scores of a draw do not depend on what is sampled
        self.extra = jax.random.normal(jax.random.fold_in(key, 1), (extra,), jnp.float64)
        self.normals = {
            pair: z[start:end].reshape(len(a), len(b))
            for (pair, (_, (a, b))), (start, end) in zip(
                self.pairs.items(), itertools.pairwise(ends), strict=True
            )
        }
        self.used_rule = False
        self.numbers = 1  # that the largest expectation holds at once
        self._second: dict[tuple, jax.Array] = {}
        self._scores: dict[tuple, tuple[jax.Array, dict[int, int]]] = {}
        self._moments: dict[int, jax.Array] = {}

    # Scores and moments

    def scalars(self, nodes: Sequence[Scalar]) -> jax.Array:
        """Values of scores and moments, `(k,)`."""
        if not nodes:
            return jnp.zeros(0)
        tables = [self._table(node) for node in nodes]
        if all(table[0] is tables[0][0] for table in tables):  # one gather
            return tables[0][0][jnp.asarray([place for _, place in tables])]
        return jnp.stack([table[place] for table, place in tables])

    def _table(self, node: Scalar) -> tuple[jax.Array, int]:
        """An array that holds the value of a score or moment, and where."""
        if isinstance(node, Score):
            pair = _pair(node)
            level = self.level[node.index]
            if (pair, level) not in self._scores:
                self._scores[pair, level] = self._draw(pair, level)
            p, place = self._scores[pair, level]
            return p, place[node.index]
        if node.index not in self._moments:
            shape = Shape([node])
            f = shape.forms[0]
            S = self.second(shape.leaves, shape.leaves)
            self._moments[node.index] = self._expect(
                lambda u, s, z: evaluate(f, u, s), S[None], self.scalars(shape.scalars)[None]
            )
        return self._moments[node.index], 0

    def _draw(self, pair: tuple, level: int) -> tuple[jax.Array, dict[int, int]]:
        """All scores of two matrices at one level, and where each is."""
        wanted, sides = self.pairs[pair]
        N = self.normals[pair]
        known = [tuple(v for v in side if self.level[v.index] < level) for side in sides]
        LA, LB = (semidefinite_cholesky(self.second(side, side)) for side in known)
        p = _matmul(_matmul(LA, N[: len(LA), : len(LB)]), LB.T)
        place = [{v.index: i for i, v in enumerate(side)} for side in known]
        return p.reshape(-1), {
            i: place[0][a.index] * len(known[1]) + place[1][b.index]
            for i, a, b in wanted
            if self.level[i] == level
        }

    # Second moments

    def second(self, X: tuple[Vector, ...], Y: tuple[Vector, ...]) -> jax.Array:
        """E[Z^x Z^y] given the scores, `(len(X), len(Y))`."""
        memo = (tuple(v.index for v in X), tuple(v.index for v in Y))
        if memo not in self._second:
            self._second[memo] = self._compute(X, Y)
            self._second[memo[::-1]] = self._second[memo].T
        return self._second[memo]

    def _compute(self, X, Y) -> jax.Array:
        if any(isinstance(v, Mix) for v in X):
            inner, C = self._expand(X)
            return _matmul(C, self.second(inner, Y))
        if any(isinstance(v, Mix) for v in Y):
            return self._compute(Y, X).T
        out = jnp.zeros((len(X), len(Y)))
        rows, columns = _groups(X), _groups(Y)
        for kx, ix in rows.items():
            for ky, iy in columns.items():
                x, y = tuple(X[i] for i in ix), tuple(Y[i] for i in iy)
                block = self._block(kx, ky, x, y)
                if block is not None:
                    out = out.at[jnp.asarray(ix)[:, None], jnp.asarray(iy)].set(block)
        return out

    def _expand(self, X) -> tuple[tuple[Vector, ...], jax.Array]:
        """X = C inner: sums written out once."""
        inner: dict[int, Vector] = {}
        for v in X:
            for u in v.inputs if isinstance(v, Mix) else (v,):
                inner.setdefault(u.index, u)
        place = {index: i for i, index in enumerate(inner)}
        C = jnp.zeros((len(X), len(inner)))
        alike: dict[tuple, list[int]] = {}
        for row, v in enumerate(X):
            if isinstance(v, Mix):
                alike.setdefault((v.fn, len(v.inputs), len(v.scores)), []).append(row)
            else:
                C = C.at[row, place[v.index]].set(1.0)
        for (fn, _, count), rows in alike.items():
            if count:
                s = self.scalars([s for r in rows for s in X[r].scores]).reshape(len(rows), count)
                c = jax.vmap(lambda row, fn=fn: fn(*row))(s)
            else:
                c = fn()
            columns = jnp.asarray([[place[u.index] for u in X[r].inputs] for r in rows])
            C = C.at[jnp.asarray(rows)[:, None], columns].add(c.astype(C.dtype))
        return tuple(inner.values()), C

    def _block(self, kx, ky, x, y) -> jax.Array | None:
        if kx[0] == "nonlin" and ky[0] == "nonlin":
            if kx == ky and kx[1] and all(is_gaussian(v.inputs[0]) for v in x + y):
                return self._dual(x, y)
            return self._pairs(x, y)
        if kx[0] == "nonlin":
            return self._with_gaussian(x, y)
        if ky[0] == "nonlin":
            return self._with_gaussian(y, x).T
        if kx != ky:
            return None
        if kx[0] == "initial":
            C = jnp.asarray(self.program.covariances[kx[1]], jnp.float64)
            i, j = (jnp.asarray([v.position for v in side]) for side in (x, y))
            return C[i[:, None], j]
        std = self.program.matrices[kx[1]].std
        return std**2 * self.second(tuple(v.input for v in x), tuple(v.input for v in y))

    def _dual(self, x, y) -> jax.Array:
        """E[phi(u) phi(v)] in the closed form of an activation."""
        phi, inputs = x[0].dual, [tuple(v.inputs[0] for v in side) for side in (x, y)]
        prepared = [phi.prepare(jnp.diagonal(self.second(s, s))) for s in inputs]
        rows = jax.tree.map(lambda u: u[:, None], prepared[0])
        columns = jax.tree.map(lambda u: u[None, :], prepared[1])
        value = phi.mix(self.second(*inputs), rows, columns, False)[0]
        own = phi.second(jnp.diagonal(self.second(inputs[0], inputs[0])))
        same = jnp.asarray([[u is v for v in inputs[1]] for u in inputs[0]])
        return jnp.where(same, own[:, None], value)

    def _pairs(self, x, y) -> jax.Array:
        """E[f(u) g(v)] by quadrature, pairs of equal form together."""
        batches: dict[tuple, list] = {}
        half = x == y  # a symmetric block
        for i, u in enumerate(x):
            for j, v in enumerate(y):
                if not half or i <= j:
                    shape = Shape([u, v])
                    batches.setdefault(shape.forms, []).append((i, j, shape))
        out = jnp.zeros((len(x), len(y)))
        for (f, g), items in batches.items():
            value = self._expect(
                lambda u, s, z, f=f, g=g: evaluate(f, u, s) * evaluate(g, u, s),
                *self._gather([shape for _, _, shape in items]),
            )
            i, j = (jnp.asarray([item[k] for item in items]) for k in (0, 1))
            out = out.at[i, j].set(value)
            if half:
                out = out.at[j, i].set(value)
        return out

    def _with_gaussian(self, x, y) -> jax.Array:
        """E[f(u) g] = E[f(L z) (l . z)] with l the part of g along the leaves u = L z of f."""
        rows = []
        for v in x:
            shape = Shape([v])
            f, d = shape.forms[0], len(shape.leaves)
            joint = self.second((*shape.leaves, *y), (*shape.leaves, *y))
            cross = semidefinite_cholesky(joint)[d:, :d]
            moments = self._expect(
                lambda u, s, z, f=f: evaluate(f, u, s) * z,
                joint[None, :d, :d],
                self.scalars(shape.scalars)[None],
            )
            rows.append(_matmul(cross, moments[0]))
        return jnp.stack(rows)

    def _gather(self, shapes: list[Shape]) -> tuple[jax.Array, jax.Array]:
        """Covariances `(B, d, d)` of the leaves and scores `(B, k)` of several shapes."""
        leaves = {v.index: v for shape in shapes for v in shape.leaves}
        place = {index: i for i, index in enumerate(leaves)}
        S = self.second(tuple(leaves.values()), tuple(leaves.values()))
        index = jnp.asarray([[place[v.index] for v in shape.leaves] for shape in shapes])
        scalars = self.scalars([s for shape in shapes for s in shape.scalars])
        scalars = scalars.reshape(len(shapes), -1)
        return S[index[:, :, None], index[:, None, :]], scalars

    def _expect(self, fn: Callable, S, scalars) -> jax.Array:
        """E[fn(u, scalars, z)] with u = L z, L L^T = S, for each of a batch."""
        d = S.shape[-1]
        z, w = (jnp.asarray(a)[self.replicate] for a in rules(d, self.points))
        self.used_rule = True
        self.numbers = max(self.numbers, len(S) * z.shape[0] * (2 * d + 4))

        def one(L, s):
            return jnp.sum(w * fn(_matmul(L, z.T), s, z.T), axis=-1)

        return jax.vmap(one)(semidefinite_cholesky(S), scalars)


def _pair(node: Score) -> tuple[int, int]:
    """The two matrices of a score, the first made first: (A x).(B y) = (B y).(A x)."""
    a, b = sorted((node.left.matrix.index, node.right.matrix.index))  # pyright: ignore
    return a, b


def _score_pairs(program: Program, level: list[int]) -> dict[tuple[int, int], tuple]:
    """By matrices: the scores as (index, vector of A, vector of B), and the vectors of A, of B.

    Vectors are in order of their level, so that what earlier scores need comes first.
    """
    found: dict[tuple[int, int], list] = {}
    for node in program.nodes:
        if isinstance(node, Score):
            a, b = sorted((node.left, node.right), key=lambda v: v.matrix.index)  # pyright: ignore
            found.setdefault(_pair(node), []).append((node.index, a, b))
    order = lambda v: (level[v.index], v.index)  # noqa: E731
    return {
        pair: (items, tuple(sorted({v[side] for v in items}, key=order) for side in (1, 2)))
        for pair, items in found.items()
    }


def _groups(X) -> dict[tuple, list[int]]:
    """Places of initial vectors by block, products by matrix, functions by function."""
    found: dict[tuple, list[int]] = {}
    for i, v in enumerate(X):
        if isinstance(v, Initial):
            kind: tuple = ("initial", v.block)
        elif isinstance(v, MatMul):
            kind = ("matmul", v.matrix.index)
        else:
            # a plain function wrapped as an activation has no closed form
            known = v.dual is not None and not isinstance(v.dual, Generic)
            kind = ("nonlin", id(v.dual) if known else None)
        found.setdefault(kind, []).append(i)
    return found


def needs_scores(program: Program, nodes: Sequence[Node]) -> bool:
    """Whether the law of these nodes depends on scores."""
    level = levels(program)
    return any(level[node.index] > 0 for node in nodes)
