"""Every dual against converged quadrature, in float64 and float32."""

import jax
import jax.numpy as jnp
import numpy as np

from limitformer.duals.base import derivative_of

# Every dual is compiled once per dtype, for arrays of 36.
POINTS = [(1.0, 0.7, 0.3), (0.5, 1.0, -0.8), (1.0, 1.0, 0.95), (0.1, 0.9, -0.99), (2.0, 1.0, 0.6)]


def test_phi_and_its_derivative(family, both, oracle2, x64):
    name, phi, fn = family
    v1, v2, rho = (np.array(t) for t in zip(*POINTS, strict=True))
    c = rho * np.sqrt(v1 * v2)
    value, slope = both(phi, *(jnp.resize(t, 36) for t in (v1, v2, c)))
    truth = [oracle2(fn, *point) for point in POINTS]
    np.testing.assert_allclose(value[: len(POINTS)], truth, rtol=0, atol=2e-12)
    if name == "sign":
        assert not np.any(slope)
        return

    def dfn(u):
        return np.asarray(derivative_of(phi.fn, jnp.asarray(u))[1])

    truth = [oracle2(dfn, *point) for point in POINTS[:3]]
    np.testing.assert_allclose(slope[:3], truth, rtol=0, atol=1e-11)


def test_fn_is_the_activation(family, x64):
    _, phi, fn = family
    u = np.linspace(-5, 5, 41)
    np.testing.assert_allclose(phi.fn(jnp.asarray(u)), fn(u), rtol=1e-13, atol=1e-14)


def test_mean_second_and_diagonal(family, oracle1, x64):
    """Also for large variances, and with c off by 2 eps on the diagonal."""
    _, phi, fn = family
    v = np.array([0.0, 1e-3, 0.3, 1.0, 4.0, 100.0, 1e4])
    eps = np.finfo(np.float64).eps

    @jax.jit
    def moments(phi, v):
        side = phi.prepare(v)
        value, none = phi.mix(v * (1 + 2 * eps), side, side, False)
        assert none is None
        return phi.mean(v), phi.second(v), value, phi.mix(v, side, side, True)[1]

    mean, second, value, slope = moments(phi, jnp.asarray(v))
    some = slice(1, 5)
    np.testing.assert_allclose(mean[some], [oracle1(fn, t) for t in v[some]], rtol=0, atol=1e-13)
    want = [oracle1(lambda u: fn(u) ** 2, t) for t in v[some]]
    np.testing.assert_allclose(second[some], want, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(value, second, rtol=1e-11, atol=1e-13)
    assert np.all(np.isfinite(slope))


def test_float32(family, both):
    """float32 against float64: a few eps of the scale sqrt(Φ(v1,v1,v1) Φ(v2,v2,v2))."""
    _, phi, _ = family
    rng = np.random.default_rng(0)
    v1, v2 = rng.uniform(0.1, 2, (2, 36)).astype(np.float32)
    rho = rng.uniform(-1, 1, 36).astype(np.float32) * np.float32(0.999)
    c = (rho * np.sqrt(v1 * v2)).astype(np.float32)
    got = both(phi, *map(jnp.asarray, (v1, v2, c)))
    with jax.enable_x64(True):
        wide = [jnp.asarray(t.astype(np.float64)) for t in (v1, v2, c)]
        want = both(phi, *wide)
        scale = np.sqrt(phi.second(wide[0]) * phi.second(wide[1]))
    assert all(t.dtype == jnp.float32 for t in got)
    assert np.max(np.abs(got[0] - np.asarray(want[0])) / scale) < 2e-6
    # Φ' of the ReLU family is steep where |ρ| is close to 1: 1 eps in ρ counts 1/√(1-ρ²).
    assert np.max(np.abs(got[1] - np.asarray(want[1]))) < 5e-6
