"""What the Mehler series promise: error bounds, kinks, means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from limitformer import duals

RHO = (-0.9, 0.3, 0.9, 0.99)


SMOOTH = pytest.mark.parametrize("cls", [duals.Tanh, duals.Silu, duals.Sigmoid, duals.Softplus])


@jax.jit
def table(phi, v, c):
    """Φ, Φ' for variances v (rows, both sides) and covariances c, and the error bound."""
    side = jax.tree.map(lambda t: t[:, None], phi.prepare(v))
    return *phi.mix(c, side, side, True), phi.error(v)


def long_series(cls, v, rho, terms):
    """Φ, Φ' by plain sums of many terms, in numpy; and the bound on what is left out."""
    phi = cls(terms=terms)
    side, left = jax.jit(lambda v: (phi.prepare(v), phi.error(v)))(v)
    power = 2 * np.arange(terms)
    odd = phi.parity == "odd"
    out = []
    for coefficients, first in ((side.a, odd), (side.d, not odd)):
        weights = np.asarray(coefficients)[:, None, :-1] ** 2
        out.append(np.sum(weights * rho[:, None] ** (power + first), -1))
    value = out[0] + phi.linear**2 * np.asarray(v)[:, None] * rho + phi.constant**2
    return value, out[1] + phi.linear**2, np.asarray(left)


@SMOOTH
def test_defaults_reach_1e_12(cls, x64):
    v, rho = jnp.asarray([0.1, 0.5, 1.0]), np.array(RHO)
    value, slope, _ = table(cls(), v, v[:, None] * rho)
    best, best1, _ = long_series(cls, v, rho, 100)
    np.testing.assert_allclose(value, best, rtol=0, atol=1e-12)
    np.testing.assert_allclose(slope, best1, rtol=0, atol=1e-11)


@SMOOTH
@pytest.mark.parametrize("terms", [4, None])
def test_error_bounds_the_error(cls, terms, x64):
    v, rho = jnp.asarray([0.3, 1.0, 3.0, 10.0, 50.0]), np.array(RHO)
    value, _, bound = table(cls(terms=terms), v, v[:, None] * rho)
    best, _, left = long_series(cls, v, rho, 600)
    measured = np.max(np.abs(value - best), 1)
    assert np.all(measured <= bound + left)
    # Not a bound that is true because it says nothing: the worst of these ρ comes within 1e3.
    assert np.all(bound[2:] <= 1e3 * measured[2:] + 1e-13)


def test_error_of_elu(oracle2, x64):
    def elu(u):
        return np.where(u > 0, u, np.expm1(np.minimum(u, 0)))

    v = np.array([1.0, 10.0, 100.0])
    for phi in (duals.Elu(), duals.Elu(nodes=8)):
        got, _, bound = table(phi, jnp.asarray(v), jnp.asarray(-0.5 * v)[:, None])
        truth = [oracle2(elu, t, t, -0.5) for t in v]
        assert np.all(np.abs(got[:, 0] - np.asarray(truth)) <= bound + 1e-11)
        assert (bound[1] < 1e-10) == (phi.nodes == 20)


def test_generic_with_a_kink_is_honest(oracle2, x64):
    """Shifted ReLU: exact coefficients and diagonal, a series that converges slowly."""
    phi = duals.Generic(lambda u: jnp.maximum(u - 0.7, 0), kinks=(0.7,), terms=32)

    def fn(u):
        return np.maximum(u - 0.7, 0)

    v, rho = jnp.asarray([1.0, 2.5]), np.array(RHO)

    @jax.jit
    def everything(v):
        px, py = (jax.tree.map(lambda t, i=i: t[i], phi.prepare(v)) for i in (0, 1))
        values = phi.mix(rho * jnp.sqrt(v[0] * v[1]), px, py, False)[0]
        diagonal = phi.mix(v[1], py, py, False)[0]
        return values, diagonal, phi.error(v), phi.mean(v)[1], phi.second(v)[1]

    values, diagonal, error, mean, second = everything(v)
    truth = [oracle2(fn, 1.0, 2.5, r, kink=0.7) for r in RHO]
    bound = 2 * np.sqrt(np.prod(error))
    assert np.all(np.abs(values - np.asarray(truth)) <= bound)
    assert bound > 1e-7
    np.testing.assert_allclose(diagonal, second, rtol=1e-13)
    m, s = 0.7 / np.sqrt(2.5), np.sqrt(2.5)
    want = 2.5 * ((1 + m * m) * norm.sf(m) - m * norm.pdf(m))
    np.testing.assert_allclose(second, want, rtol=1e-13)
    np.testing.assert_allclose(mean, s * (norm.pdf(m) - m * norm.sf(m)), rtol=1e-13)


@pytest.mark.parametrize("name", ["gelu", "tanh", "silu", "sin", "polynomial", "leaky_relu", "elu"])
def test_means(name, oracle1, oracle2, x64):
    families = {
        "gelu": (duals.Gelu(), lambda u: u * ndtr(u)),
        "tanh": (duals.Tanh(), np.tanh),
        "silu": (duals.Silu(), lambda u: u / (1 + np.exp(-u))),
        "sin": (duals.Sin(), np.sin),
        "polynomial": (duals.Polynomial((0.2, 0.5, 0.3)), lambda u: 0.2 + 0.5 * u + 0.3 * u * u),
        "leaky_relu": (duals.LeakyRelu(0.2), lambda u: np.where(u > 0, u, 0.2 * u)),
        "elu": (duals.Elu(), lambda u: np.where(u > 0, u, np.expm1(np.minimum(u, 0)))),
    }
    base, fn = families[name]
    phi = duals.with_mean(base)
    assert phi.supports_mean
    v1, v2, m1, m2, rho = 0.8, 1.1, 0.6, -1.3, 0.7
    v, m = jnp.asarray([v1, v2]), jnp.asarray([m1, m2])

    @jax.jit
    def everything(v, m):
        px, py = (jax.tree.map(lambda t, i=i: t[i], phi.prepare(v, m)) for i in (0, 1))
        value, slope = phi.mix(rho * jnp.sqrt(v[0] * v[1]), px, py, True)
        second, pull = jax.vjp(lambda m: phi.second(v, m), m)
        (gradient,) = pull(jnp.ones_like(v))
        return value, slope, phi.mean(v, m), second, gradient, phi.error(v, m)

    value, slope, mean, second, gradient, error = everything(v, m)
    truth = oracle2(fn, v1, v2, rho, means=(m1, m2))
    bound = 1e-12 if error is None else 2 * np.sqrt(np.prod(error))
    assert abs(value - truth) <= bound + 1e-14
    if name in ("gelu", "sin", "silu"):
        assert bound < 1e-11
    np.testing.assert_allclose(mean[0], oracle1(fn, v1, m1), rtol=1e-13)
    np.testing.assert_allclose(second[1], oracle1(lambda u: fn(u) ** 2, v2, m2), rtol=1e-12)
    assert np.all(np.isfinite(gradient)) and np.isfinite(slope)


def test_zero_mean_is_no_mean(x64):
    v = jnp.asarray([0.0, 0.5, 2.0])
    phi = duals.with_mean(duals.Gelu())
    without, with_zero = jax.jit(lambda v: (phi.prepare(v), phi.prepare(v, jnp.zeros_like(v))))(v)
    for a, b in zip(without[:2], with_zero[:2], strict=True):
        # The last entry, the tail, is the square root of a rounding error.
        np.testing.assert_allclose(a[..., :-1], b[..., :-1], rtol=0, atol=1e-13)


def test_a_mean_is_refused_with_advice():
    v = jnp.ones(2)
    with pytest.raises(ValueError, match=r"with_mean\(Relu\(\.\.\.\)\)"):
        duals.Relu().prepare(v, v)
    with pytest.raises(TypeError, match="non-empty tuple"):
        duals.Polynomial(())


def test_terms_and_nodes_are_static():
    phi = duals.Tanh(terms=7, nodes=20)
    assert not jax.tree.leaves(phi)
    assert phi.prepare(jnp.ones(3)).a.shape == (3, 8)
    assert duals.Tanh().prepare(jnp.ones(3)).a.dtype == jnp.float32
