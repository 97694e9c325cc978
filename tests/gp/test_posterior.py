"""Conditioning against naive dense algebra, closed-form limits, and trained twins."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import limitformer as lf
from limitformer.gp.flow import Modes, rate
from limitformer.gp.solve import PrecisionWarning

rng = np.random.default_rng(7)
NET = lf.Serial(lf.Dense(1.3, 0.4), lf.Relu(), lf.Dense(1.1), lf.MeanPool())
TOKENS = lf.Serial(lf.Dense(1.3, 0.4), lf.Relu(), lf.Dense(1.1))
DRAWN = lf.Serial(lf.Dense(), lf.Relu(), lf.Attention(), lf.MeanPool(), lf.Dense())
X, NEW = rng.normal(size=(15, 4, 3)), rng.normal(size=(6, 4, 3))
Y = rng.normal(size=(15, 2))
MASK = np.arange(4) < rng.integers(2, 5, size=(15, 1))


def grams(net=NET):
    return net.kernel(X), net.kernel(NEW, X), net.kernel(NEW)


@pytest.mark.parametrize("kind", ["nngp", "ntkgp"])
@pytest.mark.parametrize("noise", [0.1, np.linspace(0.05, 0.3, 15)])
def test_gaussian_posterior(kind, noise):
    field = "nngp" if kind == "nngp" else "ntk"
    K, Kx, Kxx = (getattr(k, field) for k in grams())
    post = lf.condition(NET, X, Y, noise=noise, kind=kind)
    inverse = np.linalg.inv(K + np.diag(np.broadcast_to(noise, 15)))
    mean, cov = post.predict(NEW)
    np.testing.assert_allclose(mean, Kx @ inverse @ Y, atol=1e-8)
    np.testing.assert_allclose(cov, Kxx - Kx @ inverse @ Kx.T, atol=1e-8)
    np.testing.assert_allclose(post.noise, np.broadcast_to(noise, 15))
    assert post.residual < 1e-12
    each = [
        scipy.stats.multivariate_normal(np.zeros(15), np.linalg.inv(inverse)).logpdf(y) for y in Y.T
    ]
    np.testing.assert_allclose(post.log_evidence, sum(each), rtol=1e-8)


def test_leave_one_out_is_what_it_says():
    post = lf.condition(NET, X, Y, noise=0.1)
    loo = post.leave_one_out
    for i in (0, 7, 14):
        kept = np.arange(15) != i
        one = lf.condition(NET, X[kept], Y[kept], noise=0.1)
        mean, var = one.predict(X[i : i + 1], cov="diag", observed=True)
        np.testing.assert_allclose(loo.mean[i], mean[0], atol=1e-8)
        np.testing.assert_allclose(loo.variance[i], var[0], atol=1e-8)
    np.testing.assert_allclose(loo.residual, Y - loo.mean)
    dense = scipy.stats.norm(loo.mean, np.sqrt(loo.variance)[:, None]).logpdf(Y).mean()
    np.testing.assert_allclose(loo.log_density, dense)


def test_trained_ensemble():
    (K, T), (Kx, Tx), (Kxx, _) = ((k.nngp, k.ntk) for k in grams())
    post = lf.condition(NET, X, Y, noise=0.1, kind="ntk")
    M = T + 0.1 * np.eye(15)
    for t in (0.3, 5.0, np.inf):
        decay = np.zeros_like(M) if np.isinf(t) else scipy.linalg.expm(-t * M)
        A = Tx @ np.linalg.inv(M) @ (np.eye(15) - decay)
        mean, cov = post.predict(NEW, t=t)
        np.testing.assert_allclose(mean, A @ Y, atol=1e-8)
        np.testing.assert_allclose(cov, Kxx + A @ K @ A.T - A @ Kx.T - Kx @ A.T, atol=1e-8)
        np.testing.assert_allclose(
            post.predict(NEW, t=t, cov="diag").cov, np.diagonal(cov), atol=1e-8
        )
    several = post.predict(NEW, t=[0.0, 5.0, np.inf])
    assert several.mean.shape == (3, 6, 2)
    assert several.cov.shape == (3, 6, 6)
    np.testing.assert_allclose(several.mean[0], 0)
    np.testing.assert_allclose(several.cov[0], Kxx)
    np.testing.assert_allclose(several.mean[2], post.predict(NEW).mean)
    np.testing.assert_allclose(several.cov[2], post.predict(NEW).cov)
    with pytest.raises(ValueError, match="has no evidence"):
        _ = post.log_evidence
    with pytest.raises(ValueError, match="a time of at least 0"):
        post.predict(NEW, t=-1.0)
    with pytest.raises(ValueError, match='only kind="ntk" has'):
        lf.condition(NET, X, Y).predict(NEW, t=1.0)


def test_derivative_of_the_flow():
    """The change of A_t y with the kernel, against differences, also with equal eigenvalues."""
    A = rng.normal(size=(6, 6))
    T = A @ A.T
    T[:3, :3] = 2 * np.eye(3)
    T[:3, 3:] = T[3:, :3] = 0.0
    D = rng.normal(size=(6, 6))
    D, y, Tx, zero = D + D.T, rng.normal(size=(6, 2)), rng.normal(size=(4, 6)), np.zeros(6)
    for t in (0.0, 0.1, 3.0, np.inf):
        step = 1e-6
        up, down = (Modes(T + s * step * D, zero).weights(Tx, t) @ y for s in (1, -1))
        found = Modes(T, zero).derivative(Tx, D, y, t)
        np.testing.assert_allclose(found, (up - down) / (2 * step), atol=1e-6, rtol=1e-5)
    assert rate(np.array([0.0, 1e-20]), 2.0).tolist() == [2.0, 2.0]


def test_token_targets():
    y = rng.normal(size=(15, 4, 2))
    post = lf.condition(TOKENS, X, y, noise=0.2, x_mask=MASK)
    valid = MASK.reshape(-1)
    flat = lambda k: k.swapaxes(1, 2).reshape(k.shape[0] * k.shape[2], -1)  # noqa: E731
    K = flat(TOKENS.kernel(X, x_mask=MASK).nngp)[np.ix_(valid, valid)]
    Kx = flat(TOKENS.kernel(NEW, X, y_mask=MASK).nngp)[:, valid]
    alpha = np.linalg.solve(K + 0.2 * np.eye(len(K)), y.reshape(60, 2)[valid])
    mean, cov = post.predict(NEW)
    np.testing.assert_allclose(mean.reshape(24, 2), Kx @ alpha, atol=1e-8)
    assert cov.shape == (24, 24)
    assert mean.shape == (6, 4, 2)
    with pytest.raises(ValueError, match="end it with a readout"):
        lf.condition(TOKENS, X, Y)
    with pytest.raises(ValueError, match="token by token"):
        lf.condition(NET, X, y)


def test_blocks_of_test_inputs_are_the_whole(monkeypatch):
    post = lf.condition(NET, X, Y[:, 0], noise=0.1, kind="ntk")
    whole = post.predict(NEW, t=[0.5, 2.0], cov="diag")
    monkeypatch.setattr("limitformer.gp.posterior.Posterior._ahead", lambda self: 4)
    parts = post.predict(NEW, t=[0.5, 2.0], cov="diag")
    assert parts.mean.shape == (2, 6)
    np.testing.assert_allclose(parts.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(parts.cov, whole.cov, atol=1e-12)
    np.testing.assert_allclose(parts.std, np.sqrt(whole.cov))


def test_standard_errors_from_replicates(key):
    """The spread of independent fits is what one fit says of itself."""
    options = {"noise": 0.1, "draws": 64}
    fits = [
        lf.condition(DRAWN, X[:6, :2], Y[:6], key=k, **options) for k in jax.random.split(key, 24)
    ]
    for value in (
        lambda p: (p.predict(NEW[:, :2], cov=None).mean, p.predict(NEW[:, :2], cov=None).mean_sem),
        lambda p: (p.log_evidence, p.log_evidence_sem),
        lambda p: (p.leave_one_out.mean, p.leave_one_out.mean_sem),
    ):
        values, errors = (np.stack(v) for v in zip(*(value(p) for p in fits), strict=True))
        spread = values.std(axis=0, ddof=1)
        said = np.sqrt(np.mean(errors**2, axis=0))
        ratio = np.mean(spread) / np.mean(said)
        assert (
            0.7 < ratio < 1.4
        )  # 24 fits and few independent numbers: 10 per cent a standard error
    assert lf.condition(NET, X, Y).predict(NEW[:, :2], cov=None).mean_sem is None
    assert lf.condition(NET, X, Y).log_evidence_sem is None


def test_errors_of_a_training_time():
    """At a long time the standard error is that of the end."""
    post = lf.condition(DRAWN, X[:6, :2], Y[:6], noise=0.1, draws=64, kind="ntk")
    late = post.predict(NEW[:, :2], t=1e6, cov=None)
    end = post.predict(NEW[:, :2], cov=None)
    np.testing.assert_allclose(late.mean, end.mean, rtol=1e-6)
    np.testing.assert_allclose(late.mean_sem, end.mean_sem, rtol=1e-5)


def test_prior_draws_are_calibrated(key):
    """Targets drawn from the prior, conditioned on: z-scores of the held-out ones are normal."""
    x = rng.normal(size=(140, 3))
    net = lf.Serial(lf.Dense(1.5, 0.5), lf.Erf(), lf.Dense(1.2))
    K = net.kernel(x).nngp
    f = np.linalg.cholesky(K + 1e-10 * np.eye(140)) @ rng.normal(size=(140, 40))
    y = f + 0.1 * rng.normal(size=f.shape)
    post = lf.condition(net, x[:100], y[:100], noise=0.01)
    mean, cov = post.predict(x[100:], observed=True)
    z = np.linalg.solve(np.linalg.cholesky(cov), y[100:] - mean)
    assert scipy.stats.kstest(z.reshape(-1), "norm").pvalue > 1e-3
    samples = post.sample(x[100:], key=key, samples=500)
    assert samples.shape == (500, 40, 40)
    latent = post.predict(x[100:])
    np.testing.assert_allclose(
        samples.mean(0), latent.mean, atol=6 * np.sqrt(latent.cov.max() / 500)
    )
    assert np.abs(samples.var(0).mean(1) / np.diagonal(latent.cov) - 1).max() < 0.1


@pytest.mark.slow
@pytest.mark.twin
def test_trained_twins(key):
    """Gradient flow of wide twins: mean and covariance of the ensemble within standard errors."""
    net = lf.Serial(lf.Dense(1.4, 0.3), lf.Erf(), lf.Dense(1.2))
    x, new = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    y, noise, t = rng.normal(size=4), 0.3, 2.0
    post = lf.condition(net, x, y, noise=noise, kind="ntk")
    want = post.predict(new, t=t)

    def trained(key, width, steps=400):
        twin = net.twin(key=key, features=3, width=width)
        params, run = jax.tree_util.tree_flatten(twin)
        dynamic = [p for p in params if hasattr(p, "dtype")]

        def rebuild(values):
            it = iter(values)
            return jax.tree_util.tree_unflatten(
                run, [next(it) if hasattr(p, "dtype") else p for p in params]
            )

        def loss(values):
            f = rebuild(values)(jnp.asarray(x, jnp.float32))[:, 0]
            far = sum(jnp.sum((a - b) ** 2) for a, b in zip(values, dynamic, strict=True))
            return 0.5 * jnp.sum((f - jnp.asarray(y, jnp.float32)) ** 2) + 0.5 * noise * far

        def step(values, _):
            slope = jax.grad(loss)(values)
            return [v - t / steps * s for v, s in zip(values, slope, strict=True)], None

        end, _ = jax.lax.scan(step, dynamic, None, length=steps)
        return rebuild(end)(jnp.asarray(new, jnp.float32))[:, 0]

    runs = np.asarray(jax.jit(jax.vmap(lambda k: trained(k, 256)))(jax.random.split(key, 600)))
    sem = runs.std(axis=0) / np.sqrt(len(runs))
    assert (np.abs(runs.mean(axis=0) - want.mean) < 5 * sem + 0.02).all()
    np.testing.assert_allclose(np.cov(runs.T), want.cov, atol=5 * want.cov.max() * np.sqrt(2 / 600))


def test_float32_kernels_are_solved_in_float64():
    post = lf.condition(NET, X.astype(np.float32), Y, noise=0.1)
    assert post.K.value.dtype == np.float32
    assert post.alpha.dtype == np.float64
    np.testing.assert_allclose(
        post.predict(NEW.astype(np.float32)).mean,
        lf.condition(NET, X, Y, noise=0.1).predict(NEW).mean,
        atol=1e-4,
    )


def test_imprecise_kernels_warn():
    with pytest.warns(PrecisionWarning, match="use more noise|more noise"):
        lf.condition(NET, X.astype(np.float32), Y, noise=1e-5)
    post = lf.condition(NET, X, Y, noise=lf.relative(1e-6))
    np.testing.assert_allclose(post.noise, 1e-6 * np.diagonal(post.K.value).mean())


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (np.full(15, np.nan), r"NaN or infinite values in rows \[0"),
        (np.zeros(14), r"expected \(15,\)"),
        (np.zeros((15, 0)), "empty"),
        (np.array(["a"] * 15), "lf.classify"),
    ],
)
def test_bad_targets(y, match):
    with pytest.raises((ValueError, TypeError), match=match):
        lf.condition(NET, X, y)


def test_singular_kernels_and_bad_noise():
    twice = np.concatenate([X, X])
    with (
        pytest.raises(ValueError, match=r"not positive definite.*duplicate inputs"),
        pytest.warns(PrecisionWarning),
    ):
        lf.condition(NET, twice, np.concatenate([Y, Y]), noise=0.0)
    same = lf.condition(NET, twice, np.concatenate([Y, Y]), noise=0.2)
    once = lf.condition(NET, X, Y, noise=0.1)
    np.testing.assert_allclose(same.predict(NEW).mean, once.predict(NEW).mean, atol=1e-8)
    for noise, match in ((-1.0, "at least 0"), (np.ones(3), "one for each of the 15")):
        with pytest.raises(ValueError, match=match):
            lf.condition(NET, X, Y, noise=noise)
    with pytest.raises(ValueError, match="observed=True needs one noise"):
        lf.condition(NET, X, Y, noise=np.linspace(0.1, 1, 15)).predict(NEW, observed=True)
    with pytest.raises(
        ValueError,
        match=r"key=jax.random.key\(0\), or take the limit with net.with_heads\(lf.inf\)",
    ):
        lf.condition(lf.Serial(lf.Attention(heads=2), lf.MeanPool()), X, Y)
    with pytest.raises(ValueError, match="kind='gp' is not known"):
        lf.condition(NET, X, Y, kind="gp")


def test_save_and_load(tmp_path, key):
    for i, (net, kind, options) in enumerate(
        [(NET, "ntk", {"x_mask": MASK}), (DRAWN, "nngp", {"key": key, "draws": 64})]
    ):
        post = lf.condition(net, X, Y, noise=0.1, kind=kind, **options)
        post.save(tmp_path / str(i))
        back = lf.load_posterior(tmp_path / str(i))
        a, b = post.predict(NEW), back.predict(NEW)
        np.testing.assert_array_equal(a.mean, b.mean)
        np.testing.assert_array_equal(a.cov, b.cov)
        if a.mean_sem is not None:
            np.testing.assert_array_equal(a.mean_sem, b.mean_sem)
    with pytest.raises(FileExistsError, match="nothing is overwritten"):
        post.save(tmp_path / "0")
    with pytest.raises(FileNotFoundError, match=r"has no posterior\.toml"):
        lf.load_posterior(tmp_path)
    file = tmp_path / "0" / "arrays.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="does not match its digest"):
        lf.load_posterior(tmp_path / "0")
    function = lf.Serial(lf.Dense(), lf.Activation(jnp.tanh), lf.Dense(), lf.MeanPool())
    with pytest.raises(ValueError, match="Activation"):
        lf.condition(function, X, Y).save(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert len(list(tmp_path.iterdir())) == 2


def test_prediction_says_when_there_is_no_covariance():
    found = lf.condition(NET, X, Y).predict(NEW, cov=None)
    with pytest.raises(ValueError, match="there is no covariance"):
        _ = found.std
    assert dataclasses.is_dataclass(found)
    square = lf.condition(NET, X, Y[:, 0], kind="ntk").predict(NEW, t=np.arange(6.0), cov="diag")
    np.testing.assert_allclose(square.std, np.sqrt(square.cov))


def test_variances_below_zero_are_refused():
    x = np.random.default_rng(0).normal(size=(12, 4, 30))
    near = x[:3] + 1e-3 * np.random.default_rng(1).normal(size=(3, 4, 30))
    net = lf.Serial(lf.Dense(), lf.Relu(), lf.Attention(qk_std=2.0), lf.MeanPool(), lf.Dense())
    post = lf.condition(net, x, np.ones(12), noise=1e-6, draws=16)
    for cov in ("full", "diag"):
        with pytest.raises(ValueError, match=r"below zero for \d of 3 .* more draws \(draws=128\)"):
            post.predict(near, cov=cov)
    assert post.predict(near, cov=None).mean.shape == (3,)
