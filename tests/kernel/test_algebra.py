"""Gathered sums and products: the same values with fewer operations."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limitformer.duals import Relu
from limitformer.duals.base import roots
from limitformer.kernel.algebra import simplified

rng = np.random.default_rng(0)
K, T = rng.normal(size=(2, 8, 8))
row, col = rng.normal(size=(8, 1)), rng.normal(size=(1, 8))
u, v = 1 + rng.random(size=(2, 8))


def layers(K, T, row, col, u, v):
    """A dense layer, a norm, an activation and a residual, as layers write them."""
    w2, b2 = 1.3**2, 0.1**2
    K, T = K * row * col, row * col * T
    linear = w2 * (0.1 * K) + b2
    px, py = (
        jax.tree.map(lay, roots(a)) for a, lay in ((u, lambda a: a[:, None]), (v, lambda a: a))
    )
    value, slope = Relu().mix(linear, px, py, True)
    through = (linear + w2 * T) * slope
    return 0.5 * K + 0.5 * value, 0.5 * T + 0.5 * through


def polynomial(K, T, row, col, u, v):
    total = jnp.zeros_like(K)
    for c in (0.1, -2.0, 0.3):
        total = total * K + c
    return -total - (1 - T), jnp.where(K > 0, K - T, 1.0), K.astype(int) * 2 + 1


def loop(K, T, row, col, u, v):
    scale = jnp.sum(K * K) / K.size

    def turn(i, state):
        K, T = state
        return scale * (2.0 * K + row) - i.astype(col.dtype) * col, K * T + 3.0 * (T + T)

    return jax.lax.fori_loop(jnp.int32(0), jnp.int32(3), turn, (K, T))


def masks(K, T, row, col, u, v):
    zero, rows, cols = jnp.zeros((), K.dtype), row > 0, col > 0
    bias = jnp.where(rows, jnp.where(cols, 0.3 * jnp.ones((), K.dtype), zero), zero)
    return (
        K + bias,
        jnp.where(cols, 0.0, T) - bias * T,
        jnp.where(rows, K, 1.0),
        jnp.where(K > 0, K, zero),
    )


def numbers(K, T, row, col, u, v):
    a = jnp.sum(K)
    return {"sum": a * 2 + 1, "same": K, "broadcast": jnp.broadcast_to(a, (2, 3))}


@pytest.mark.parametrize("function", [layers, polynomial, loop, masks, numbers])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_values_are_the_same(function, dtype):
    with jax.enable_x64(dtype == np.float64):
        given = [jnp.asarray(a, dtype) for a in (K, T, row, col, u, v)]
        expected, found = function(*given), jax.jit(simplified(function))(*given)
    assert jax.tree.structure(expected) == jax.tree.structure(found)
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert jnp.shape(a) == b.shape and jnp.result_type(a) == b.dtype
        np.testing.assert_allclose(b, a, rtol=50 * np.finfo(dtype).eps, atol=1e-6)


def operations(function) -> collections.Counter:
    """Of a matrix, by name, the way a compiler sees them that removes equal ones."""
    numbers: dict = {}
    counts: collections.Counter = collections.Counter()

    def walk(jaxpr, names):
        read = lambda v: str(v.val) if hasattr(v, "val") else names[v]  # noqa: E731
        for e in jaxpr.eqns:
            given = tuple(read(v) for v in e.invars)
            inner = [p.jaxpr for p in e.params.values() if hasattr(p, "jaxpr")]
            if inner:
                found = walk(inner[0], dict(zip(inner[0].invars, given, strict=True)))
            else:
                key = (e.primitive.name, given, str(e.params))
                counts[e.primitive.name] += key not in numbers and e.outvars[0].aval.shape == (8, 8)
                number = numbers.setdefault(key, len(numbers))
                found = [(number, k) for k in range(len(e.outvars))]
            names |= zip(e.outvars, found, strict=True)
        return [read(v) for v in jaxpr.outvars]

    jaxpr = jax.make_jaxpr(function)(K, T, row, col, u, v).jaxpr
    walk(jaxpr, {v: str(v) for v in jaxpr.invars})
    return counts


def test_there_are_fewer_operations():
    before, after = (operations(f) for f in (layers, simplified(layers)))
    assert after.total() <= before.total() - 10
    assert (before["sqrt"], after["sqrt"]) == (2, 1)  # layers write correlations in two orders


def test_multiply_add_is_used_for_every_term():
    calls = []

    def multiply_add(a, b, c, sign):
        calls.append(sign)
        return sign * a * b + c

    simplified(lambda K, T: 2.0 * (3.0 * K + 1.0) - K * T, multiply_add)(K, T)
    assert sorted(calls) == [-1, 1]  # - K T, and 2 + 6 K


def test_equal_terms_are_one_term():
    found = simplified(lambda K, T: (K + K - T + (K - T)) * 2.0 + (T - T))(K, T)
    np.testing.assert_allclose(found, 6 * K - 4 * T, rtol=1e-5)


def test_what_two_sums_share_is_computed_once():
    """K' and T' of a dense layer in a residual branch: both have its value and its bias."""

    def layer(K, T, row, col, u, v):
        zero, b2 = jnp.zeros((), K.dtype), 0.3 * jnp.ones((), K.dtype)
        bias = jnp.where(row > 0, jnp.where(col > 0, b2, zero), zero)
        value = 1.7 * (row * col * jnp.abs(K)) + bias
        return 0.5 * K + 0.25 * value, 0.5 * T + 0.25 * (value + 1.7 * T)

    counts = operations(simplified(layer))
    # row col |K| is two products and K, T and the bias one each, for four sums
    assert (counts["mul"], counts["add"] + counts["sub"]) == (5, 3)


def test_an_operation_is_done_once():
    def sums(K, T, row, col, u, v):
        return jnp.sum(K * T) + jnp.sum(T * K), jnp.exp(K) * jnp.exp(K)

    found = str(jax.make_jaxpr(simplified(sums))(K, T, row, col, u, v))
    assert (found.count("reduce_sum"), found.count("exp ")) == (1, 1)
