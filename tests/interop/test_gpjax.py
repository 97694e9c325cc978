"""GPJax's models with a limit kernel, against dense formulas."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf
from limitformer.interop import gpjax_kernel

gpx = pytest.importorskip("gpjax", reason='needs pip install "limitformer[gpjax]"')

NET = lf.Serial(lf.Dense(1.2, 0.3), lf.Relu(), lf.MeanPool(), lf.Dense())


@pytest.fixture(autouse=True)
def users_promotion():
    """GPJax mixes types as JAX allows."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def data(x64):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(8, 4, 3)), rng.normal(size=(3, 4, 3))
    return jnp.asarray(x), jnp.asarray(np.sin(x.sum((1, 2)))), jnp.asarray(z)


def model(kernel):
    prior = gpx.gps.Prior(kernel, gpx.mean_functions.Zero(), jitter=0.0)
    return prior * gpx.likelihoods.Gaussian(obs_stddev=jnp.sqrt(0.1))


def flat(x):
    return x.reshape(len(x), -1)


def negative_evidence(model, data):
    return -gpx.objectives.conjugate_mll(model, data)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_conditioning(data, kind):
    x, y, z = data
    D = gpx.Dataset(flat(x), y[:, None])
    joint = model(gpjax_kernel(NET, kind, shape=(4, 3)))
    posterior = joint.condition(D)
    predicted = posterior.predict(flat(z))
    K, Kz, Kzz = (np.asarray(getattr(NET.kernel(*a), kind)) for a in ((x,), (z, x), (z,)))
    A = K + 0.1 * np.eye(8)
    np.testing.assert_allclose(predicted.mean, Kz @ np.linalg.solve(A, y), rtol=1e-8)
    np.testing.assert_allclose(
        predicted.covariance_matrix, Kzz - Kz @ np.linalg.solve(A, Kz.T), rtol=1e-6, atol=1e-9
    )
    dense = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(2 * np.pi * A)[1])
    np.testing.assert_allclose(gpx.objectives.conjugate_mll(joint, D), dense, rtol=1e-8)


def test_fit_learns_hyper_parameters(data):
    optax = pytest.importorskip("optax")
    x, y, _ = data
    D = gpx.Dataset(flat(x), y[:, None])
    joint = model(gpjax_kernel(NET, shape=(4, 3)))
    before = negative_evidence(joint, D)
    slope = eqx.filter_grad(negative_evidence)(joint, D).prior.kernel.net.layers[0].w_std
    assert abs(slope) > 1e-3
    fitted, _ = gpx.fit(
        model=joint,
        objective=negative_evidence,
        train_data=D,
        optim=optax.adam(0.02),
        num_iters=20,
        verbose=False,
        key=jax.random.key(0),
    )
    assert negative_evidence(fitted, D) < before
    assert fitted.prior.kernel.net.layers[0].w_std != joint.prior.kernel.net.layers[0].w_std


def test_constrained_and_frozen_parameters(data):
    paramax = pytest.importorskip("paramax")
    x, _, _ = data
    kernel = gpjax_kernel(NET, shape=(4, 3))
    K = NET.kernel(x).nngp
    positive = eqx.tree_at(
        lambda k: k.net.layers[0].w_std, kernel, gpx.parameters.PositiveReal(jnp.asarray(1.2))
    )
    np.testing.assert_allclose(positive.gram(flat(x)).as_matrix(), K, rtol=1e-10)
    frozen = eqx.tree_at(lambda k: k.net, kernel, replace_fn=paramax.non_trainable)
    np.testing.assert_allclose(frozen.gram(flat(x)).as_matrix(), K, rtol=1e-10)
    slope = eqx.filter_grad(lambda k: k.gram(flat(x)).as_matrix().sum())(frozen)
    assert all(float(g) == 0 for g in jax.tree.leaves(slope.net))


def test_sums_pairs_and_diagonal(data):
    x, _, z = data
    kernel, K = gpjax_kernel(NET, shape=(4, 3)), NET.kernel(x, z).nngp
    np.testing.assert_allclose((kernel + kernel).cross_covariance(flat(x), flat(z)), 2 * K)
    own = np.diagonal(kernel.diagonal(flat(x)).as_matrix())
    np.testing.assert_allclose(own, np.diagonal(NET.kernel(x).nngp), rtol=1e-10)


def test_rows_as_they_are(data):
    net = lf.Serial(lf.Dense(), lf.Erf(), lf.Dense())
    x = flat(data[0])
    np.testing.assert_allclose(
        gpjax_kernel(net, "ntk").gram(x).as_matrix(), net.kernel(x).ntk, rtol=1e-10
    )
