"""A program at infinite width: covariances, the law of the scores, and samples of any vector."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..estimate import Estimate
from ..scores.factor import semidefinite_cholesky
from .conditions import ConditionWarning, check
from .expectation import REPLICATES
from .given import Given, Shape, evaluate, needs_scores
from .program import Moment, Node, Program, Score, Vector

_NUMBERS_AT_ONCE = 2**24


@dataclasses.dataclass(frozen=True, eq=False)
class Limit:
    """The limit of a program; made by `Program.limit`.

    A coordinate of a vector x is a random variable Z^x, and coordinates are independent given the
    scores; all coordinates share the scores, which are Gaussian and independent of everything that
    the program computed before them. What depends on scores is random also in the limit, and asks
    for a `key` and a number of `draws`.
    """

    program: Program
    points: int

    def second_moment(self, *vectors: Vector, key=None, draws: int | None = None) -> Estimate:
        """E[Z^x Z^y], `(k, k)`: for initial and MatMul vectors, the covariance.

        For vectors that depend on scores, the mean over draws of the scores.

        Example:
            >>> import limitformer as lf
            >>> from limitformer import netsor
            >>> p = netsor.Program()
            >>> h = p.nonlin(lf.Relu(), p.matrix(std=2.0) @ p.vector())
            >>> p.limit().second_moment(h).value
            array([[2.]])
        """
        self._check(vectors, Vector)
        return self._mean(lambda given: given.second(vectors, vectors), vectors, key, draws)

    def given_scores(self, *vectors: Vector, key, draws: int) -> Float[np.ndarray, "draws k k"]:
        """E[Z^x Z^y | scores] of every draw: the random kernel of the vectors."""
        self._check(vectors, Vector)
        return self._draws(lambda given: given.second(vectors, vectors), key, draws)

    def score_covariance(self, *scores: Score, key=None, draws: int | None = None) -> Estimate:
        """Cov(p_i, p_k) = E[g_i g_k] E[g'_i g'_k] + E[g_i g'_k] E[g'_i g_k], `(k, k)`.

        Scores of the first layer are Gaussian with this covariance. Scores of later layers are
        Gaussian only given the earlier ones, and this is their mean covariance over draws.
        """
        self._check(scores, Score)

        def covariance(given: Given):
            left = tuple(s.left for s in scores)
            right = tuple(s.right for s in scores)
            direct = given.second(left, left) * given.second(right, right)
            crossed = given.second(left, right)
            return direct + crossed * crossed.T

        inputs = [v for s in scores for v in (s.left, s.right)]
        return self._mean(covariance, inputs, key, draws)

    def moment(self, m: Moment, *, key=None, draws: int | None = None) -> Estimate:
        """The limit E[fn(Z, ...)] of a moment; over draws of the scores, its mean.

        Its distribution over scores is `sample(m)`.
        """
        self._check((m,), Moment)
        return self._mean(lambda given: given.scalars((m,))[0], (m,), key, draws)

    def sample(self, *nodes: Node, key, draws: int, coordinates: int = 1):
        """Joint samples of any vectors, scores and moments.

        Args:
            key: randomness; the scores of draw d depend on the key and d alone, in all methods.
            coordinates: of each vector; the coordinates of a draw share its scores.

        Returns:
            One array per node (alone if there is one node): `(draws, coordinates)` for vectors,
            `(draws,)` for scores and moments.
        """
        self._check(nodes, Node)
        shape = Shape([v for v in nodes if isinstance(v, Vector)])

        def one(given: Given):
            found: list = []
            if shape.forms:
                L = semidefinite_cholesky(given.second(shape.leaves, shape.leaves))
                u = L @ given.extra.reshape(len(L), coordinates)
                s = given.scalars(shape.scalars)
                found = [evaluate(form, u, s) for form in shape.forms]
            return tuple(
                found.pop(0) if isinstance(v, Vector) else given.scalars((v,))[0]  # pyright: ignore
                for v in nodes
            )

        values = self._draws(one, key, draws, len(shape.leaves) * coordinates)
        return values[0] if len(nodes) == 1 else values

    def _check(self, nodes, kind: type) -> None:
        if not nodes:
            raise ValueError(f"give at least one {kind.__name__.lower()} of the program")
        for node in nodes:
            self.program._own(node, kind)

    def _given(self, key, replicate, extra: int = 0) -> Given:
        return Given(self.program, key, replicate, self.points, extra)

    def _uses(self, fn: Callable, key, extra: int = 0) -> Given:
        """What a computation of one draw would use; nothing is computed."""
        kept: list[Given] = []

        def look(key):
            kept.append(self._given(key, 0, extra))
            return fn(kept[0])

        jax.eval_shape(look, key)
        return kept[0]

    def _mean(self, fn: Callable, nodes, key, draws: int | None) -> Estimate:
        if needs_scores(self.program, nodes):
            if key is None or draws is None:
                raise ValueError(
                    "this depends on scores, which are random also in the limit: pass key= and "
                    "draws= to average over them"
                )
            if draws < 2:
                raise ValueError(f"draws={draws}; a standard error needs at least 2")
            values = self._draws(fn, key, draws)
            sem = values.std(axis=0, ddof=1) / math.sqrt(draws)
            with jax.enable_x64(True):
                exact = not self._uses(fn, key).used_rule
            if not exact and draws >= 2 * REPLICATES:
                # draws that share a rule share its error, which the spread over draws misses
                parts = np.stack([values[r::REPLICATES].mean(axis=0) for r in range(REPLICATES)])
                sem = np.maximum(sem, parts.std(axis=0, ddof=1) / math.sqrt(REPLICATES))
            return Estimate(np.asarray(values.mean(axis=0)), np.asarray(sem))
        with jax.enable_x64(True):
            key = jax.random.key(0)  # not used: nothing random is asked for
            each = jax.jit(jax.vmap(lambda r: fn(self._given(key, r))))
            values = np.asarray(each(jnp.arange(REPLICATES)))
        sem = values.std(axis=0, ddof=1) / math.sqrt(REPLICATES)
        return Estimate(np.asarray(values.mean(axis=0)), np.asarray(sem))

    def _draws(self, fn: Callable, key, draws: int, extra: int = 0):
        """fn of one draw, for every draw; replicates of the rules take turns."""
        if key is None:
            raise ValueError("key is required: scores are random also in the limit")
        if draws < 1:
            raise ValueError(f"draws={draws}; use at least 1")
        with jax.enable_x64(True):
            uses = self._uses(fn, key, extra)
            turns = REPLICATES if uses.used_rule else 1
            rows = -(-draws // turns)
            numbers = turns * (uses.numbers + len(self.program.nodes) ** 2)
            batch = max(1, min(rows, _NUMBERS_AT_ONCE // numbers))

            @jax.jit
            def part(first):
                # replicates outside, so that what does not depend on scores is computed once each
                index = first + jnp.arange(batch * turns, dtype=jnp.uint32).reshape(batch, turns)
                one = lambda d, r: fn(self._given(jax.random.fold_in(key, d), r, extra))  # noqa: E731
                each = jax.vmap(jax.vmap(one, (0, None)), (1, 0), 1)
                return each(index, jnp.arange(turns))

            step = batch * turns
            parts = [part(jnp.uint32(start)) for start in range(0, draws, step)]
            return jax.tree.map(
                lambda *v: np.concatenate([np.asarray(u).reshape(step, *u.shape[2:]) for u in v])[
                    :draws
                ],
                *parts,
            )


def limit(program: Program, *, points: int = 1024) -> Limit:
    """The limit of a program at infinite width.

    Expectations of functions of one or two Gaussians are exact to rounding for smooth functions;
    of more Gaussians they are quasi-random averages, with standard errors.

    Args:
        points: of each quasi-random average, a power of two.

    Raises:
        ValueError: a condition of the limit theorem fails; the message has all that do.

    Warns:
        ConditionWarning: an unbounded function after scores, for which the limit is not proved.
    """
    if points < 2 or points & (points - 1):
        raise ValueError(f"points={points}; a Sobol sequence needs a power of two, such as 1024")
    findings = check(program)
    fatal = [f.text for f in findings if f.fatal]
    if fatal:
        raise ValueError("this program has no limit by the theorem.\n" + "\n".join(fatal))
    for f in findings:
        warnings.warn(f.text, ConditionWarning, stacklevel=3)
    return Limit(program, points)
