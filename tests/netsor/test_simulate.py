"""Runs at width n: products drawn without their matrix have the law of products with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import limitformer as lf
from limitformer import netsor


def reused_matrix():
    """A matrix applied twice, the second time to what the first product made."""
    p = netsor.Program()
    x = p.vector()
    W = p.matrix(1.5)
    h = W @ x
    g = W @ p.nonlin(lf.Relu(), h)
    s = p.score(p.matrix() @ h, p.matrix(0.7) @ g)
    y = p.mix(lambda s: jnp.stack([jnp.tanh(s), 1 - s / (1 + s * s)]), h, g, scores=(s,))
    return p, h, g, s, y, p.moment(lambda a, b: a * b, h, g)


def test_sequential_is_dense(key):
    p, h, g, s, y, m = reused_matrix()
    a = p.simulate(8, key=key, runs=4000)
    b = p.simulate(8, key=jax.random.fold_in(key, 1), runs=4000, dense=True)
    for node in (h, g, s, y, m):
        assert scipy.stats.ks_2samp(a[node].ravel(), b[node].ravel()).pvalue > 1e-4
    for f in (lambda v: v[h][:, 0] * v[g][:, 0], lambda v: v[s] * v[m], lambda v: v[s] ** 2):
        u, v = f(a), f(b)
        assert abs(u.mean() - v.mean()) < 5 * np.hypot(u.std(), v.std()) / np.sqrt(4000)


def test_runs_do_not_depend_on_the_batch(key):
    p = netsor.Program()
    x = p.vector()
    y = p.matrix() @ x
    s = p.score(p.matrix() @ x, p.matrix() @ y)
    whole = p.simulate(16, key=key, runs=10, keep=(s, y))
    parts = p.simulate(16, key=key, runs=7, batch=3, keep=(s, y))
    with pytest.raises(KeyError, match="Initial 0 was not kept; add it to keep="):
        whole[p.nodes[0]]
    np.testing.assert_allclose(parts[s], whole[s][:7], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(parts[y], whole[y][:7], rtol=1e-4, atol=1e-5)


def test_coordinates_and_widths(key):
    p = netsor.Program()
    h = p.matrix(rows=0.5) @ p.vector()
    assert p.simulate(16, key=key, runs=3, coordinates=8)[h].shape == (3, 8)
    with pytest.raises(ValueError, match=r"width 0.5 n has 4 coordinates, and 5 are"):
        p.simulate(8, key=key, runs=3, coordinates=5)
    with pytest.raises(ValueError, match="runs=0"):
        p.simulate(8, key=key, runs=0)


def test_repeated_vectors(key):
    p = netsor.Program()
    x, y = p.vectors(np.ones((2, 2)))
    W = p.matrix()
    h, g = W @ x, W @ y
    sim = p.simulate(32, key=key, runs=5)
    np.testing.assert_allclose(sim[h], sim[g], rtol=1e-5)
