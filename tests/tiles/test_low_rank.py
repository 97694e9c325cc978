"""Feature maps of a kernel: exact where they must be, with an error that is measured honestly."""

import os

import jax
import numpy as np
import pytest

import limitformer as lf
from limitformer import tiles

NET = lf.Serial(lf.Dense(1.4, 0.1), lf.Relu(), lf.Dense())
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4))
Y = np.sin(X[:, :2])


def test_inducing_inputs_are_the_nystrom_formula():
    Z, A = X[:30], X[100:120]
    phi = tiles.inducing(NET, Z, kind="ntk")
    k = NET.kernel(A, Z).ntk, NET.kernel(Z).ntk
    exact = np.asarray(k[0]) @ np.linalg.solve(np.asarray(k[1]), np.asarray(k[0]).T)
    np.testing.assert_allclose(phi(A) @ phi(A).T, exact, rtol=1e-8)
    np.testing.assert_allclose(phi(Z) @ phi(Z).T, k[1], rtol=1e-10)


def test_error_falls_with_inducing_inputs_and_is_the_true_one():
    errors = [tiles.kernel_error(tiles.inducing(NET, X[:m]), X[100:]) for m in (5, 80)]
    assert errors[1].value < errors[0].value / 3
    A = X[100:]
    phi, K = tiles.inducing(NET, X[:5])(A), np.asarray(NET.kernel(A).nngp)
    off = ~np.eye(100, dtype=bool)
    true = np.sqrt(np.square(phi @ phi.T - K)[off].mean() / np.square(K)[off].mean())
    assert abs(errors[0].value - true) < 5 * errors[0].sem


def test_all_inputs_inducing_is_exact_regression():
    found = tiles.ridge(tiles.inducing(NET, X), X, Y, noise=1e-2)
    K = np.asarray(NET.kernel(X).nngp)
    new = X[:10] + 0.1
    exact = np.asarray(NET.kernel(new, X).nngp) @ np.linalg.solve(K + 1e-2 * np.eye(200), Y)
    np.testing.assert_allclose(found.predict(new), exact, atol=1e-7)


def test_stored_kernels_of_inducing_inputs(tmp_path):
    features = tiles.inducing(NET, X[:20])
    K = lf.gram(NET, X, X[:20], kinds="nngp", store=tmp_path / "K", tile=70)
    plain, stored = (tiles.ridge(features, x, Y, noise=1e-2) for x in (X, K.nngp))
    np.testing.assert_allclose(stored.w, plain.w, rtol=1e-6, atol=1e-8 * np.abs(plain.w).max())
    np.testing.assert_allclose(stored.predict(K.nngp), plain.predict(X), atol=1e-8)
    os.remove(tmp_path / "K/nngp/c/1/0")
    with pytest.raises(tiles.MissingTile):
        tiles.ridge(features, K.nngp, Y, noise=1e-2)
    with pytest.raises(ValueError, match=r"\(200, 20\) is not K\(x, z\) of these features"):
        next(tiles.inducing(NET, X[:5]).blocks(K.nngp))


@pytest.mark.slow
def test_twin_features_come_closer_with_width(key):
    values = []
    for width in (16, 1024):
        features = tiles.twin_features(NET, X, key=key, width=width, rank=4 * width)
        error = tiles.kernel_error(features, X)
        values.append(error.value)
        assert error.pairs == 64 * 64 and 0 < error.sem < error.value
    assert values[1] < values[0] / 3
    w = tiles.ridge(features, X, Y[:, 0], noise=1e-2)
    exact = lf.condition(NET, X, Y[:, 0], noise=1e-2).predict(X, cov=None).mean
    assert np.sqrt(np.mean(np.square(w.predict(X) - exact))) < 0.1 * exact.std()
    assert jax.config.jax_enable_x64 is False


def test_what_is_refused():
    features = tiles.inducing(NET, X[:5])
    with pytest.raises(ValueError, match="noise=0 must be above 0"):
        tiles.ridge(features, X, Y, noise=0)
    with pytest.raises(ValueError, match=r"y has shape \(3, 2\); expected \(200,\)"):
        tiles.ridge(features, X, Y[:3], noise=1.0)
    with pytest.raises(ValueError, match="needs at least 4"):
        tiles.kernel_error(features, X[:3])
    with pytest.raises(ValueError, match="readout"):
        tiles.inducing(lf.Serial(lf.Dense(), lf.Relu()), np.ones((3, 2, 2)))
