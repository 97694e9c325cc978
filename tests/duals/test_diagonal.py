"""Equal inputs through deep networks: the digits that sqrt(1 - ρ²) would lose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limitformer import duals


def he_relu_ntk(v, depth, eps_per_layer, dtype):
    """NTK of a He ReLU network at equal inputs, c off by some eps in every layer."""
    phi, rng = duals.Relu(), np.random.default_rng(1)
    eps = float(np.finfo(dtype).eps)
    v1 = v2 = jnp.asarray(v, dtype)
    c, T = v1, jnp.zeros_like(v1)
    for _ in range(depth):
        off = rng.choice([-1, 1], v.shape) * rng.uniform(0, eps_per_layer, v.shape) * eps
        c = (c * jnp.asarray(1 + off, dtype)).astype(dtype)
        value, slope = phi.mix(c, phi.prepare(v1), phi.prepare(v2), True)
        v1, v2 = 2 * phi.second(v1), 2 * phi.second(v2)
        c = 2 * value
        T = c + 2 * T * slope
    return np.asarray(c), np.asarray(T)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("depth", [8, 100])
@pytest.mark.parametrize("noise", [1, 3])
def test_ntk_diagonal(dtype, depth, noise):
    v = np.random.default_rng(0).uniform(0.01, 10, 200).astype(dtype)
    eps = float(np.finfo(dtype).eps)
    with jax.enable_x64(dtype == np.float64):
        K, T = he_relu_ntk(v, depth, noise, dtype)
    np.testing.assert_allclose(K, v, rtol=10 * eps)
    error = np.max(np.abs(T.astype(np.float64) / v.astype(np.float64) / depth - 1))
    # The running sum T = K + T rounds `depth` times, eps/2 each; K itself is off by a few eps.
    assert error <= (depth / 2 + 4) * eps
    if depth == 8:
        assert error < (1e-12 if dtype == np.float64 else 1e-6)


def test_what_the_snap_costs(x64):
    """Φ' of inputs that really differ by less than the snap is off by at most √(32 eps)/(2π)."""
    eps = np.finfo(np.float64).eps
    rho = jnp.asarray(1 - np.array([1.0, 4.0, 15.0]) * eps)
    value, slope = duals.dual(duals.Relu(), jnp.ones(3), jnp.ones(3), rho)
    exact = 0.5 - np.sqrt(2 * (1 - np.asarray(rho))) / (2 * np.pi)
    assert np.max(np.abs(slope - exact)) < np.sqrt(32 * eps) / (2 * np.pi)
    assert np.max(np.abs(value - rho / 2)) < 16 * eps
