"""Products over the axes of an image, against the matrix of all tokens."""

import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf
from limitformer.layers.kronecker import Kronecker

rng = np.random.default_rng(5)


@pytest.mark.parametrize("sizes", [((3, 4),), ((3, 4), (2, 5)), ((4, 4), (3, 3), (2, 2))])
def test_products_with_a_matrix(sizes):
    factors = tuple(jnp.asarray(rng.normal(size=(2, 1, *size))) for size in sizes)
    A = Kronecker(factors)
    full = np.stack([_kron([f[i, 0] for f in factors]) for i in range(2)])[:, None]
    np.testing.assert_allclose(A.matrix, full, rtol=1e-6)
    K = jnp.asarray(rng.normal(size=(2, 3, full.shape[-1], 6)))
    np.testing.assert_allclose(A.rows(K), full @ np.asarray(K), rtol=1e-5, atol=1e-5)
    right = jnp.swapaxes(K, -1, -2)
    expected = np.asarray(right) @ np.swapaxes(full, -1, -2)
    np.testing.assert_allclose(A.columns(right), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(A.T.matrix, np.swapaxes(full, -1, -2), rtol=1e-6)


@pytest.mark.parametrize("sizes", [(3,), (3, 4), (2, 3, 2)])
def test_both_sides_of_one_axis_at_a_time(sizes):
    def product(lead, inner):
        pairs = zip(sizes, inner, strict=True)
        return Kronecker(tuple(jnp.asarray(rng.normal(size=(*lead, o, s))) for o, s in pairs))

    A, B = product((2, 1), sizes), product((1, 3), [s + 1 for s in sizes])
    left, right = np.asarray(A.matrix), np.asarray(B.matrix)
    K = rng.normal(size=(2, 3, left.shape[-1], right.shape[-1]))
    expected = np.sum((left @ K) * right, axis=-1)
    np.testing.assert_allclose(A.diagonal(jnp.asarray(K), B), expected, rtol=1e-4, atol=1e-4)


def test_a_mask_on_one_side_only():
    layers = (lf.ResidualAttention(lf.SquaredExponential(2.0, 0.5), 0.6), lf.LayerNorm())
    net = lf.Serial(lf.Conv((3, 3)), lf.Relu(), *layers, lf.Flatten(), lf.Dense())
    x, y = rng.normal(size=(2, 4, 3, 2)), rng.normal(size=(3, 4, 3, 2))
    mask = np.ones((2, 4, 3), bool)
    mask[0, 3] = False
    found = net.kernel(x, y, x_mask=mask)
    expected = net.kernel(x, y, x_mask=mask, y_mask=np.ones((3, 4, 3), bool))
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-12)
    np.testing.assert_allclose(found.ntk[1:], net.kernel(x[1:], y).ntk, rtol=1e-12)


def test_residual_attention_goes_axis_by_axis_only_where_it_is_one():
    def factors(decay, weights="identity", grid=(3, 4), mask=None):
        layer = lf.ResidualAttention(decay, weights=weights)
        lead = () if mask is None else mask.shape[:1]
        return len(layer.token_weights(grid, mask, lead, jnp.dtype(jnp.float32)).factors)

    assert factors(lf.SquaredExponential(2.0, 0.5)) == 2
    assert factors(lf.OneHot()) == 2
    assert factors(lf.SquaredExponential(2.0), "softmax") == 1
    assert factors(lf.SquaredExponential(2.0), grid=(12,)) == 1
    assert factors(lf.SquaredExponential(2.0), mask=jnp.ones((1, 12), bool)) == 1
    assert factors(lambda d: jnp.exp(-d)) == 1


def _kron(factors):
    result = np.ones((1, 1))
    for factor in factors:
        result = np.kron(result, factor)
    return result
