"""tinygp's Gaussian process with a limit kernel, against dense formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf
from limitformer.interop import tinygp_kernel

tinygp = pytest.importorskip("tinygp", reason='needs pip install "limitformer[tinygp]"')

NET = lf.Serial(lf.Dense(1.2, 0.3), lf.Relu(), lf.MeanPool(), lf.Dense())


@pytest.fixture(autouse=True)
def users_promotion():
    """tinygp mixes types as JAX allows."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def data(x64):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(8, 4, 3)), rng.normal(size=(3, 4, 3))
    return jnp.asarray(x), jnp.asarray(np.sin(x.sum((1, 2)))), jnp.asarray(z)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_conditioning(data, kind):
    x, y, z = data
    gp = tinygp.GaussianProcess(tinygp_kernel(NET, kind), x, diag=0.1)
    log_evidence, posterior = gp.condition(y, z, diag=0.0)
    K, Kz, Kzz = (np.asarray(getattr(NET.kernel(*a), kind)) for a in ((x,), (z, x), (z,)))
    A = K + 0.1 * np.eye(8)
    np.testing.assert_allclose(posterior.loc, Kz @ np.linalg.solve(A, y), rtol=1e-10)
    np.testing.assert_allclose(
        posterior.covariance, Kzz - Kz @ np.linalg.solve(A, Kz.T), rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(posterior.variance, np.diagonal(posterior.covariance), rtol=1e-8)
    dense = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(2 * np.pi * A)[1])
    np.testing.assert_allclose(log_evidence, dense, rtol=1e-10)


def test_hyper_parameters_can_be_learned(data):
    x, y, _ = data

    @jax.jit
    def loss(net):
        return -tinygp.GaussianProcess(tinygp_kernel(net), x, diag=0.1).log_probability(y)

    def moved(h):
        w = NET.layers[0].w_std + h
        return float(loss(lf.Serial(lf.Dense(w, 0.3), *NET.layers[1:])))

    slope = jax.grad(loss)(NET).layers[0].w_std
    np.testing.assert_allclose(slope, (moved(1e-5) - moved(-1e-5)) / 2e-5, rtol=1e-6)


def test_sums_products_and_pairs(data):
    x, _, z = data
    kernel, K = tinygp_kernel(NET), NET.kernel(x, z).nngp
    np.testing.assert_allclose((2.0 * kernel + kernel * kernel)(x, z), 2 * K + K**2, rtol=1e-10)
    np.testing.assert_allclose(kernel(x), np.diagonal(NET.kernel(x).nngp), rtol=1e-10)
    np.testing.assert_allclose((kernel + kernel)(x), 2 * kernel(x), rtol=1e-10)


def test_masked_sequences(data):
    x, _, z = data
    mask = jnp.arange(4) < jnp.array([4, 2, 3, 1, 4, 4, 2, 3])[:, None]
    full = jnp.ones((3, 4), bool)
    kernel = tinygp_kernel(NET, masked=True)
    np.testing.assert_allclose(
        kernel((x, mask), (z, full)), NET.kernel(x, z, mask, full).nngp, rtol=1e-10
    )
    gp = tinygp.GaussianProcess(kernel, (x, mask), diag=0.1)
    np.testing.assert_allclose(gp.variance, np.diagonal(gp.covariance), rtol=1e-10)


def test_dropout_keeps_its_diagonal(data):
    x, _, _ = data
    net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dropout(0.5), lf.MeanPool(), lf.Dense())
    kernel = tinygp_kernel(net)
    np.testing.assert_allclose(kernel(x, x), net.kernel(x).nngp, rtol=1e-10)
    np.testing.assert_allclose(kernel(x), np.diagonal(kernel(x, x)), rtol=1e-10)
    with pytest.raises(NotImplementedError, match="two equal inputs are not one input"):
        (kernel + kernel)(x, x)


def test_types(data):
    x, _, _ = data
    single = np.asarray(x, np.float32)
    assert tinygp_kernel(NET)(single, single).dtype == np.float32
    assert tinygp_kernel(NET, dtype="float64")(single, single).dtype == np.float64
    with jax.enable_x64(False):
        assert tinygp_kernel(NET)(np.ones((2, 4, 3)), np.ones((2, 4, 3))).dtype == np.float32


def test_no_readout(data):
    with pytest.raises(ValueError, match=r"no readout, its kernel has shape \(8, 8, 4, 4\)"):
        tinygp_kernel(lf.Serial(lf.Dense(), lf.Relu()))(data[0], data[0])
