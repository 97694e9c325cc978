"""The ridge path against one fit per ridge, and cross-validation against a loop."""

import numpy as np
import pytest

import limitformer as lf
from limitformer.gp import cross_validate, ridge_path

rng = np.random.default_rng(3)
NET = lf.Serial(lf.Dense(1.2, 0.2), lf.Relu(), lf.Dense())
X, Y = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
K = NET.kernel(X).nngp
RIDGES = (1e-3, 1e-2, 0.1)


def test_every_ridge_is_a_fit():
    path = ridge_path(K, Y, RIDGES)
    for i, ridge in enumerate(RIDGES):
        post = lf.condition(NET, X, Y, noise=lf.relative(ridge))
        np.testing.assert_allclose(path.noises[i], post.noise[0])
        np.testing.assert_allclose(path.error[i], post.leave_one_out.mse, rtol=1e-8)
        np.testing.assert_allclose(path.log_evidence[i], post.log_evidence, rtol=1e-8)
        smooth = K @ np.linalg.inv(K + np.diag(post.noise))
        np.testing.assert_allclose(path.dimension[i], np.trace(smooth), rtol=1e-8)
    best = ridge_path(K, Y, RIDGES, amplitude=None).log_evidence
    for factor in (0.5, 1.0, 2.0):
        assert (best >= ridge_path(K, Y, RIDGES, amplitude=factor).log_evidence).all()
    twice = lf.Serial(*NET.layers[:-1], lf.Dense(2**0.5))
    post = lf.condition(twice, X, Y, noise=2 * path.noises[0])
    found = ridge_path(K, Y, RIDGES, amplitude=2.0).log_evidence[0]
    np.testing.assert_allclose(found, post.log_evidence, rtol=1e-8)
    assert path.chosen == RIDGES[int(np.argmin(path.error))]
    assert path.noise == path.noises[path.index]
    by = ridge_path(K, Y, RIDGES, by="evidence")
    assert by.index == int(np.argmax(path.log_evidence))
    assert "<" in str(path)


def test_singular_ridges_lose():
    twice = np.concatenate([X, X])
    gram, y = NET.kernel(twice).nngp, rng.normal(size=40)
    path = ridge_path(gram, y, (0.0, 1e-2))
    assert np.isinf(path.error[0])
    assert path.chosen == 1e-2
    with pytest.raises(ValueError, match="singular to rounding with every ridge"):
        ridge_path(gram, y, (0.0,))


def test_cross_validation():
    path = cross_validate(K, Y, RIDGES, folds=4, seed=1)
    order = np.random.default_rng(1).permutation(20)
    errors = []
    for out in np.array_split(order, 4):
        kept = np.setdiff1d(np.arange(20), out)
        noise = path.noises[1] * np.eye(len(kept))
        alpha = np.linalg.solve(K[np.ix_(kept, kept)] + noise, Y[kept])
        errors.append(np.mean((K[np.ix_(out, kept)] @ alpha - Y[out]) ** 2))
    np.testing.assert_allclose(path.error[1], np.mean(errors), rtol=1e-8)
    np.testing.assert_allclose(path.error_sem[1], np.std(errors, ddof=1) / 2, rtol=1e-8)
    groups = np.repeat(np.arange(5), 4)
    assert np.isfinite(cross_validate(K, Y, RIDGES, folds=5, groups=groups).error).all()
    with pytest.raises(ValueError, match="from 2 to the 5 groups"):
        cross_validate(K, Y, folds=6, groups=groups)
    seen = []
    cross_validate(K, Y, RIDGES, folds=2, progress=lambda *p: seen.append(p[:2]))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("ridges", [(), (-1.0,), (np.nan,), [[1.0]]])
def test_bad_ridges(ridges):
    with pytest.raises(ValueError, match="give one or more finite numbers"):
        ridge_path(K, Y, ridges)
