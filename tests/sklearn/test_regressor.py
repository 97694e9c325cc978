"""Regressors against dense computations, in the units of the targets."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import limitformer as lf
from limitformer.sklearn import NNGPRegressor, NTKRegressor

NET = lf.Serial(lf.Dense(1.4, 0.3), lf.Relu(), lf.Dense())
RNG = np.random.default_rng(0)
X = RNG.normal(3.0, 5.0, size=(24, 3))
Y = 100 + 20 * np.sin(X[:, 0] / 4) + RNG.normal(size=24)
NEW = RNG.normal(3.0, 5.0, size=(6, 3))


def dense(noise):
    """Mean, covariance and evidence of the scaled problem by plain linear algebra."""
    mu, sd = X.mean(axis=0), X.std(axis=0)
    x, z = (X - mu) / sd, (NEW - mu) / sd
    K, Kz, Kzz = (NET.kernel(a, b, kinds="nngp").nngp for a, b in ((x, x), (z, x), (z, z)))
    M = K + noise * np.eye(len(K))
    inverse = np.linalg.inv(M)
    y = Y - Y.mean()
    alpha = inverse @ y
    s2 = np.mean(alpha**2 / np.diag(inverse))  # squared leave-one-out z-scores are 1 on average
    evidence = -0.5 * (y @ alpha / s2 + np.linalg.slogdet(M)[1] + len(y) * np.log(2 * np.pi * s2))
    return Y.mean() + Kz @ alpha, s2 * (Kzz - Kz @ inverse @ Kz.T), s2 * noise, evidence


def test_nngp_is_the_posterior_of_scaled_data():
    model = NNGPRegressor(NET, noise=0.2).fit(X, Y)
    mean, cov, noise, evidence = dense(0.2)
    np.testing.assert_allclose(model.predict(NEW), mean, rtol=1e-10)
    np.testing.assert_allclose(model.predict(NEW, return_cov=True)[1], cov, rtol=1e-8, atol=1e-8)
    std = model.predict(NEW, return_std=True)[1]
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), rtol=1e-8)
    std = model.predict(NEW, return_std=True, observed=True)[1]
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov) + noise), rtol=1e-8)
    np.testing.assert_allclose(model.log_marginal_likelihood_, evidence, rtol=1e-10)
    assert model.noise_ == 0.2 and model.ridge_path_ is None


def test_units_of_inputs_and_targets_do_not_matter():
    a = NNGPRegressor(NET).fit(X, Y)
    b = NNGPRegressor(NET).fit(X * [1e3, 1.0, 1e-3] + 7, Y * 1e-6 - 3)
    mean, std = a.predict(NEW, return_std=True)
    mean_b, std_b = b.predict(NEW * [1e3, 1.0, 1e-3] + 7, return_std=True)
    np.testing.assert_allclose(mean_b, mean * 1e-6 - 3, rtol=1e-8)
    np.testing.assert_allclose(std_b, std * 1e-6, rtol=1e-6)


def test_noise_is_chosen_by_leave_one_out():
    model = NNGPRegressor(NET).fit(X, Y)
    path = model.ridge_path_
    assert path.by == "loo" and model.noise_ == path.noise == path.noises[np.argmin(path.error)]
    same = NNGPRegressor(NET, noise=lf.relative(path.chosen)).fit(X, Y)
    np.testing.assert_allclose(same.predict(NEW), model.predict(NEW), rtol=1e-10)


def test_several_outputs_are_fitted_as_one_would_be():
    two = np.stack([Y, -1e3 * Y**2], axis=1)
    model = NNGPRegressor(NET, noise=0.2).fit(X, two)
    mean, std = model.predict(NEW, return_std=True)
    cov = model.predict(NEW, return_cov=True)[1]
    assert mean.shape == std.shape == (6, 2) and cov.shape == (6, 6, 2)
    evidence = 0.0
    for i in range(2):
        one = NNGPRegressor(NET, noise=0.2).fit(X, two[:, i])
        alone = one.predict(NEW, return_std=True)
        np.testing.assert_allclose(mean[:, i], alone[0], rtol=1e-9)
        np.testing.assert_allclose(std[:, i], alone[1], rtol=1e-9)
        np.testing.assert_allclose(np.sqrt(np.diag(cov[:, :, i])), alone[1], rtol=1e-8)
        evidence += one.log_marginal_likelihood_
    np.testing.assert_allclose(model.log_marginal_likelihood_, evidence, rtol=1e-10)


def test_ntk_is_the_trained_ensemble():
    model = NTKRegressor(NET, noise=1e-6, scale=False).fit(X / 10, Y / 100)
    post = lf.condition(NET, X / 10, Y / 100, noise=1e-6, kind="ntk")
    mean, std = model.predict(NEW / 10, return_std=True)
    np.testing.assert_allclose(mean, post.predict(NEW / 10).mean, rtol=1e-10)
    np.testing.assert_allclose(std, post.predict(NEW / 10).std, rtol=1e-6)
    start = NTKRegressor(NET, noise=1e-6, scale=False, t=0.0).fit(X / 10, Y / 100)
    assert np.abs(start.predict(NEW / 10)).max() < 1e-12
    assert not hasattr(model, "log_marginal_likelihood_")
    assert NTKRegressor(NET, kind="ntkgp").fit(X, Y).log_marginal_likelihood_ < 0
    with pytest.raises(ValueError, match=r'weight decay.*use kind="ntkgp"'):
        model.predict(NEW, return_std=True, observed=True)


def test_constant_columns_and_constant_targets():
    x = np.column_stack([X, np.full(24, 5.0)])
    plain = NNGPRegressor(NET).fit(x, Y).predict(np.column_stack([NEW, np.full(6, 5.0)]))
    assert np.isfinite(plain).all()
    np.testing.assert_allclose(NNGPRegressor(NET).fit(X, np.full(24, 3.0)).predict(NEW), 3.0)


def test_duplicate_rows():
    model = NNGPRegressor(NET).fit(np.repeat(X, 2, axis=0), np.repeat(Y, 2))
    assert np.isfinite(model.predict(NEW)).all()


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"network": "mlp"}, TypeError, "network='mlp' is not a network; give layers such as"),
        ({"noise": "evidence"}, ValueError, "noise='evidence'; choose \"loo\", a variance"),
        ({"noise": np.ones(24)}, ValueError, "noise has shape .24,.; an estimator takes one"),
        ({"noise": -1.0}, ValueError, "noise must be finite and at least 0"),
        ({"network": lf.Dense(), "reshape": "columns"}, ValueError, "end it with a readout"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        NNGPRegressor(**parameters).fit(X, Y)


def test_bad_kind_time_and_questions():
    with pytest.raises(ValueError, match="kind='nngp' is not known; choose one of ntk, ntkgp"):
        NTKRegressor(NET, kind="nngp").fit(X, Y)
    with pytest.raises(ValueError, match=r't=1.0: give one training time, with kind="ntk"'):
        NTKRegressor(NET, kind="ntkgp", t=1.0).fit(X, Y)
    model = NNGPRegressor(NET)
    with pytest.raises(NotFittedError):
        model.predict(NEW)
    with pytest.raises(ValueError, match="choose one of return_std=True and return_cov=True"):
        model.fit(X, Y).predict(NEW, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, Y[:-1])
