"""What the limit theorem asks of a program, checked one condition at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from .program import MatMul, Mix, Moment, Node, Nonlin, Program, Score

_POINTS = 64
_SCALES = (1e2, 1e4, 1e6)


class ConditionWarning(UserWarning):
    """The limit is given, and a condition under which it is proved does not hold."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A condition that a program does not meet; `fatal` if the limit is then another one."""

    node: Node
    fatal: bool
    text: str


def levels(program: Program) -> list[int]:
    """How many layers of scores each node is made from: 0 before all, a score one more."""
    found: list[int] = []
    for node in program.nodes:
        own = max((found[i.index] for i in uses(node)), default=0)
        found.append(own + isinstance(node, Score))
    return found


def uses(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is computed from."""
    if isinstance(node, MatMul):
        return (node.input,)
    if isinstance(node, Score):
        return (node.left, node.right)
    if isinstance(node, Nonlin | Mix | Moment):
        return (*node.inputs, *node.scores)
    return ()


def check(program: Program) -> tuple[Finding, ...]:
    """Conditions of the limit theorem that the program does not meet.

    Fatal: a score of vectors that are not MatMul outputs, a score of two vectors of one matrix, a
    matrix used for scores and elsewhere, a function that mixes coordinates. Warned about:
    functions of vectors or scores that are unbounded, once vectors depend on scores.

    Example:
        >>> from limitformer import netsor
        >>> p = netsor.Program()
        >>> x = p.vector()
        >>> s = p.score(x, p.matrix() @ x)
        >>> print(netsor.check(p)[0].text)
        score 2 takes vector 0, which is not a MatMul output: ...
    """
    with jax.enable_x64(True):
        return (*_scores(program), *_reuse(program), *_functions(program))


def _scores(program: Program) -> Iterator[Finding]:
    for node in program.nodes:
        if not isinstance(node, Score):
            continue
        wrong = [v for v in (node.left, node.right) if not isinstance(v, MatMul)]
        if wrong:
            yield Finding(
                node,
                True,
                f"score {node.index} takes vector {wrong[0].index}, which is not a MatMul output: "
                "scores are Gaussian because both vectors are made by fresh Gaussian matrices. "
                "Multiply it by a p.matrix() first.",
            )
        elif node.left.matrix is node.right.matrix:  # pyright: ignore[reportAttributeAccessIssue]
            yield Finding(
                node,
                True,
                f"score {node.index} takes two vectors of matrix "
                f"{node.left.matrix.index}: "  # pyright: ignore[reportAttributeAccessIssue]
                "n^{-1/2} (Wx).(Wy) has mean sqrt(n) std^2 x.y/n, which diverges (or, for "
                "orthogonal x and y, keeps the fluctuation of x.y). Use one matrix for queries "
                "and another for keys.",
            )


def _reuse(program: Program) -> Iterator[Finding]:
    scored: dict[int, Score] = {}
    for node in program.nodes:
        if isinstance(node, Score):
            for v in (node.left, node.right):
                if isinstance(v, MatMul):
                    scored.setdefault(v.matrix.index, node)
    seen: set[int] = set()
    for node in program.nodes:
        if isinstance(node, Score):
            continue
        for v in uses(node):
            if not isinstance(v, MatMul) or v.matrix.index not in scored:
                continue
            W = v.matrix.index
            if W not in seen:
                seen.add(W)
                yield Finding(
                    node,
                    True,
                    f"matrix {W} makes a vector of score {scored[W].index} and is used elsewhere: "
                    f"{type(node).__name__} {node.index} takes vector {v.index} = W @ vector "
                    f"{v.input.index}. Scores are independent of the other vectors only if their "
                    "matrices serve scores alone; give the score its own p.matrix().",
                )


def _functions(program: Program) -> Iterator[Finding]:
    level = levels(program)
    rng = np.random.default_rng(0)
    for node in program.nodes:
        if not isinstance(node, Nonlin | Mix | Moment):
            continue
        count = 0 if isinstance(node, Mix) else len(node.inputs)
        z = jnp.asarray(rng.normal(size=(count, _POINTS)))
        # moments are often variances: they are probed at one
        s = [jnp.asarray(rng.normal() if isinstance(q, Score) else 1.0) for q in node.scores]
        name = f"{type(node).__name__} {node.index}"
        if count and not _alone(node.fn, z, s):
            yield Finding(
                node,
                True,
                f"{name} mixes coordinates: its function gives another value when it sees one "
                "coordinate alone. It must act on each coordinate by itself; averages over "
                "coordinates are p.moment(...).",
            )
        elif isinstance(node, Moment) or level[node.index] == 0 or _bounded(node, z, s):
            continue
        else:
            what = "coefficients are" if isinstance(node, Mix) else "function is"
            yield Finding(
                node,
                False,
                f"{name} comes after scores and its {what} unbounded; the limit is proved for "
                "bounded ones. Compare with simulate(), or clip far out, for example "
                "jnp.clip(h, -100, 100).",
            )


def _alone(fn, z, s) -> bool:
    together = jnp.broadcast_to(fn(*z, *s), z.shape[1:])
    alone = jax.vmap(lambda zi: jnp.broadcast_to(fn(*zi[:, None], *s), (1,)))(z.T)[:, 0]
    return bool(jnp.allclose(together, alone, rtol=1e-6, atol=1e-9, equal_nan=True))


def _bounded(node: Nonlin | Mix, z, s) -> bool:
    """Whether |fn| stops growing as vectors and scores grow."""
    sizes = []
    for scale in _SCALES:
        large = [
            scale * jnp.asarray(1.0 + i) * v if isinstance(q, Score) else v
            for i, (q, v) in enumerate(zip(node.scores, s, strict=True))
        ]
        # growth in the vectors at moderate scores, and in the scores at moderate vectors
        values = [node.fn(*(scale * z), *s), node.fn(*z, *large), node.fn(*(scale * z), *large)]
        sizes.append(max(float(jnp.max(jnp.abs(v))) for v in values))
    return bool(np.isfinite(sizes).all() and sizes[2] <= 1.2 * max(sizes[0], sizes[1]) + 1e-12)
