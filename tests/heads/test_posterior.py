"""The mixture posterior of finitely many heads, against importance sampling and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import limitformer as lf
from limitformer.heads.tempering import effective, temper

rng = np.random.default_rng(4)
X = rng.normal(size=(8, 3, 2))
NEW = rng.normal(size=(3, 3, 2))
Y = np.sin(2 * X[:, 0, 0]) + X[:, 1, 1]
NET = lf.Serial(lf.Dense(), lf.Attention(heads=1, qk_std=2.0), lf.MeanPool(), lf.Dense())


def by_importance(net, noise, key, draws, mask=None):
    """Posterior mean, variance and evidence from prior draws of the joint kernels alone."""
    both = np.concatenate([X, NEW])
    K = net.law(both, key=key, draws=draws, x_mask=mask).nngp
    n = len(X)
    M = K[:, :n, :n] + noise * np.eye(n)
    solved = np.linalg.solve(M, np.broadcast_to(Y[:, None], (draws, n, 1)))
    log = -0.5 * (Y @ solved[..., 0].T + np.linalg.slogdet(M)[1] + n * np.log(2 * np.pi))
    w = np.exp(log - log.max())
    mean = (K[:, n:, :n] @ solved)[..., 0]
    A = np.linalg.solve(M, K[:, :n, n:])
    v = np.diagonal(K[:, n:, n:] - K[:, n:, :n] @ A, axis1=1, axis2=2)
    total = w.sum()
    m = w @ mean / total
    sem = np.sqrt((w**2) @ (mean - m) ** 2) / total
    second = w @ (v + (mean - m) ** 2) / total
    evidence = np.log(w.mean()) + log.max()
    return m, sem, second, evidence, w.std() / w.mean() / np.sqrt(draws)


@pytest.mark.parametrize(
    "net",
    [
        pytest.param(NET, id="known features"),
        pytest.param(
            lf.Serial(lf.Dense(), lf.Relu(), NET.layers[1], lf.MeanPool()),
            id="joint features",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lf.Serial(lf.Dense(), lf.Repeat(lf.Residual(lf.Attention(heads=2)), 2), lf.MeanPool()),
            id="two layers",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_against_importance_sampling(net, key):
    noise = 0.3
    mean, sem, variance, evidence, error = by_importance(net, noise, key, 20_000)
    post = lf.condition(net, X, Y, noise=noise, key=key, draws=400)
    found = post.predict(NEW)
    assert (np.abs(found.mean - mean) < 5 * np.hypot(sem, found.mean_sem) + 1e-3).all()
    np.testing.assert_allclose(found.cov, variance, rtol=0.2)
    log = post.log_evidence
    assert abs(log.value - evidence) < 5 * np.hypot(log.sem, error)
    assert post.prior_ess < 250 < post.ess <= 400


def test_tempering_reaches_a_known_posterior(key):
    """A Gaussian likelihood far from the prior: the posterior and the evidence are known."""
    y, noise = 2.0, 0.05
    with jax.enable_x64(True):
        z = {"a": np.asarray(jax.random.normal(key, (1000, 2), jnp.float64))}
        found = temper(
            lambda z: -0.5 * jnp.sum((y - z["a"]) ** 2) / noise, z, key=key, moves=4, at_once=300
        )
    a = found.z["a"]
    mean, variance = y / (1 + noise), noise / (1 + noise)
    assert len(found.temperatures) > 3
    assert found.prior_ess < 50
    assert np.abs(a.mean(axis=0) - mean).max() < 5 * np.sqrt(variance / 500)
    assert np.abs(a.var(axis=0) / variance - 1).max() < 5 * np.sqrt(2 / 500)
    exact = 2 * scipy.stats.norm.logpdf(y, scale=np.sqrt(1 + noise)) + np.log(2 * np.pi * noise)
    assert abs(found.log_evidence - exact) < 0.4


@pytest.mark.slow
def test_many_heads_are_the_limit(key):
    net = lf.Serial(lf.Dense(), lf.Attention(qk_std=0.5), lf.MeanPool())
    limit = lf.condition(net, X, Y, noise=0.1, draws=2**12)
    many = lf.condition(net.with_heads(256), X, Y, noise=0.1, key=key, draws=16)
    np.testing.assert_allclose(many.predict(NEW).mean, limit.predict(NEW).mean, atol=0.03)
    np.testing.assert_allclose(many.log_evidence.value, limit.log_evidence, atol=0.3)
    assert [p.temperatures for p in many.populations] == [(1.0,)] * 4


def test_the_mixture_and_its_parts(key):
    post = lf.condition(NET, X, np.stack([Y, -Y], axis=1), noise=0.3, key=key, draws=32)
    found = post.predict(NEW, cov="full")
    assert found.mean.shape == found.std.shape == (3, 2)
    assert found.cov.shape == (2, 3, 3)
    np.testing.assert_allclose(np.diagonal(found.cov[1]), found.std[:, 1] ** 2)
    np.testing.assert_allclose(found.mean[:, 1], -found.mean[:, 0])
    diagonal = post.predict(NEW)
    np.testing.assert_allclose(diagonal.mean, found.mean, rtol=1e-9)
    np.testing.assert_allclose(diagonal.cov, found.std**2, rtol=1e-9)
    at = found.at(2, 1)
    assert abs(float(at.cdf(at.quantile(0.3).value).value) - 0.3) < 1e-9
    log = found.log_density(np.zeros((3, 2)), noise=0.1)
    naive = sum(
        w * np.prod(scipy.stats.norm.pdf(0.0, m[2], np.sqrt(v[2, 2] + 0.1)))
        for w, m, v in zip(found.weight, found.means, found.spreads, strict=True)
    )
    np.testing.assert_allclose(log[2], np.log(naive), rtol=1e-10)
    noisy = post.predict(NEW, observed=0.3)
    np.testing.assert_allclose(noisy.std**2, found.std**2 + 0.3, rtol=1e-9)
    again = lf.condition(NET, X, np.stack([Y, -Y], axis=1), noise=0.3, key=key, draws=32)
    np.testing.assert_allclose(again.predict(NEW).mean, found.mean, rtol=1e-12)


def test_tokens_and_masks(key):
    """Targets token by token; new inputs that are shorter; padding is truncation."""
    net = lf.Serial(lf.Dense(), lf.Attention(heads=2))
    targets = X[..., :1] - X[..., 1:]
    mask = np.ones((8, 3), bool)
    mask[0, 2:] = False
    targets[0, 2] = np.nan
    post = lf.condition(net, X, targets, x_mask=mask, noise=0.5, key=key, draws=16)
    assert post.predict(NEW).mean.shape == (3, 3, 1)
    short = post.predict(NEW[:, :2]).mean
    padded = post.predict(NEW, x_mask=np.array([[True, True, False]] * 3)).mean
    np.testing.assert_allclose(short[:, :2], padded[:, :2], rtol=1e-9)


def test_bad_input(key):
    with pytest.raises(ValueError, match=r"pass key="):
        lf.condition(NET, X, Y)
    with pytest.raises(ValueError, match="a linearisation only"):
        lf.condition(NET, X, Y, kind="ntk", key=key)
    with pytest.raises(ValueError, match="draws=10; use a multiple of 4"):
        lf.condition(NET, X, Y, key=key, draws=10)
    with pytest.raises(ValueError, match="MiB of normals do not fit"):
        lf.condition(NET, X, Y, key=key, draws=64, memory=256)
    with pytest.raises(ValueError, match="token by token"):
        lf.condition(NET, X, X[..., :1], key=key, draws=16)
    post = lf.condition(NET, X, Y, noise=lf.relative(0.1), key=key, draws=16)
    assert 0 < post.noise[0] < 1
    assert "16 draws in 4 populations" in repr(post)
    with pytest.raises(ValueError, match="new inputs have 5 tokens"):
        post.predict(np.ones((1, 5, 2)))
    with pytest.raises(ValueError, match=r"new inputs have shape \(1, 2\)"):
        post.predict(np.ones((1, 2)))
    same = X[[0, 0, 0, 0, 0, 0, 0, 0]]
    with pytest.raises(ValueError, match="use more noise"):
        lf.condition(NET, same, Y, noise=0.0, key=key, draws=16)


def test_effective_sample_size():
    w = np.array([1.0, 2.0, 3.0])
    assert abs(effective(np.log(w) - 700) - 36 / 14) < 1e-12
