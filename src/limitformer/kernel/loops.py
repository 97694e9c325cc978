"""States that go round a loop: what a turn must leave alike, and where its channels come from."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from .state import Cross, Marginal


def is_marginal(node) -> bool:
    """For `is_leaf` of tree maps."""
    return isinstance(node, Marginal)


def is_cross(node) -> bool:
    """For `is_leaf` of tree maps."""
    return isinstance(node, Cross)


def state_lead(state) -> int:
    """Number of leading input axes of a marginal state."""
    first = jax.tree.leaves(state, is_leaf=is_marginal)[0]
    return first.unit.ndim


def loop_ready(state, path: str):
    """The state without what cannot be carried around a loop: features and single origins."""

    def ready(node):
        if not is_marginal(node):
            return node
        facts = dataclasses.replace(node.facts, sources=frozenset({(path, ())}))
        return dataclasses.replace(node, facts=facts, F=None)

    return jax.tree.map(ready, state, is_leaf=lambda n: is_marginal(n) or is_cross(n))


def _marginals(state) -> list[Marginal]:
    return [n for n in jax.tree.leaves(state, is_leaf=is_marginal) if is_marginal(n)]


def carries(state, path: str) -> bool:
    """Whether a turn of the loop at `path` passes channels of its input on."""
    return any(origin == path for n in _marginals(state) for origin, _ in n.facts.sources)


def with_origins(state, before, operation: str):
    """The state after a loop whose every turn passes channels on: they come from before it too."""
    old = frozenset().union(*(n.facts.passed(operation).sources for n in _marginals(before)))

    def extended(node):
        if not is_marginal(node):
            return node
        facts = dataclasses.replace(node.facts, sources=node.facts.sources | old)
        return dataclasses.replace(node, facts=facts)

    return jax.tree.map(extended, state, is_leaf=lambda n: is_marginal(n) or is_cross(n))


def same_structure(before, after) -> bool:
    """Whether a turn leaves the state in the structure, shapes and types that it had."""
    shape = lambda a: (jnp.shape(a), jnp.result_type(a))  # noqa: E731
    same = jax.tree.structure(before) == jax.tree.structure(after)
    return same and jax.tree.map(shape, before) == jax.tree.map(shape, after)
