"""Symmetry, homogeneity, positive semidefiniteness, padded tokens, gradients, transformations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limitformer import duals

DUAL = jax.jit(duals.dual)
EDGES = [(1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (0.5, 2.0, 1.0), (0.5, 2.0, -1.0), (0.0, 0.0, 0.0)]
EDGES += [(0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (1.0, 0.7, 0.5)]


def edges(dtype):
    v1, v2, rho = np.array(EDGES).T
    return tuple(jnp.asarray(t, dtype) for t in (v1, v2, rho * np.sqrt(v1 * v2)))


def test_symmetry(family, both, x64):
    _, phi, _ = family
    v1, v2, rho = np.random.default_rng(0).uniform([[0], [0], [-1]], [[3], [3], [1]], (3, 50))
    v1, v2, c = (jnp.asarray(t) for t in (v1, v2, rho * np.sqrt(v1 * v2)))
    for one, other in zip(both(phi, v1, v2, c), both(phi, v2, v1, c), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)


@given(
    scale=st.floats(1e-3, 1e3), rho=st.floats(-1, 1), slope=st.floats(-1, 1), v=st.floats(0.1, 10)
)
def test_rectifiers_are_homogeneous(scale, rho, slope, v):
    with jax.enable_x64(True):
        for phi in (duals.Relu(), duals.LeakyRelu(slope), duals.Abs()):
            args = [jnp.asarray(t) for t in (v, 1.0, rho * np.sqrt(v))]
            value, derivative = DUAL(phi, *args)
            scaled, same = DUAL(phi, *(scale * t for t in args))
            np.testing.assert_allclose(scaled, scale * value, rtol=1e-12, atol=1e-14 * scale)
            # One eps in ρ moves Φ' by 1/√(1-ρ²), at most 1/√(16 eps) beside the snap.
            np.testing.assert_allclose(derivative, same, rtol=0, atol=1e-7)


def test_positive_semidefinite(family, x64):
    _, phi, _ = family
    x = np.random.default_rng(0).normal(size=(30, 6))
    K = jnp.asarray(x @ x.T / 6)
    side = phi.prepare(jnp.diag(K))
    rows = jax.tree.map(lambda t: t[:, None], side)
    cols = jax.tree.map(lambda t: t[None, :], side)
    for out in jax.jit(lambda phi, *a: phi.mix(*a, True))(phi, K, rows, cols):
        spectrum = np.linalg.eigvalsh(np.asarray(out))
        assert spectrum.min() > -1e-13 * max(spectrum.max(), 1)


def test_padded_tokens(family, both, x64):
    _, phi, _ = family
    v = jnp.asarray([0.0, 0.0, 1.0])
    value, slope = both(phi, v, jnp.asarray([0.0, 1.0, 0.0]), jnp.zeros(3))
    at_zero, mean = phi.fn(jnp.zeros(())), phi.mean(jnp.ones(()))
    np.testing.assert_allclose(value, [at_zero**2, at_zero * mean, at_zero * mean], atol=1e-15)
    assert np.all(np.isfinite(slope))
    np.testing.assert_allclose(phi.second(v)[0], at_zero**2, atol=1e-15)
    np.testing.assert_allclose(phi.mean(v)[0], at_zero, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients(family, dtype):
    """Finite everywhere, forward equal to reverse, dΦ/dc = Φ'."""
    name, phi, _ = family
    with jax.enable_x64(dtype == np.float64):
        args = edges(dtype)

        @jax.jit
        def everything(phi, *args):
            out, pull = jax.vjp(lambda *a: duals.dual(phi, *a), *args)
            one, zero = jnp.ones_like(args[0]), jnp.zeros_like(args[0])
            _, forward = jax.jvp(lambda *a: duals.dual(phi, *a), args, (one, one, one))
            return out, pull((one, zero)), pull((zero, one)), forward

        (_, slope), first, second, forward = everything(phi, *args)
    for reverse, tangent in zip((first, second), forward, strict=True):
        assert all(np.all(np.isfinite(g)) and g.dtype == dtype for g in reverse)
        scale = 1 + sum(np.abs(g) for g in reverse)
        assert np.max(np.abs(np.asarray(tangent) - sum(map(np.asarray, reverse))) / scale) < 1e-4
    if name == "sign":
        return
    # Where v = 0 nothing depends on c. A series carries the tail of φ', larger than that of φ.
    inside = np.asarray(args[0]) * np.asarray(args[1]) > 0
    tolerance = 1e-13 if phi.exact or name == "elu" else 1e-9
    tolerance = tolerance if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(first[2][inside], slope[inside], rtol=0, atol=tolerance)


def test_the_derivative_in_v(family, x64):
    """Against central differences, away from |ρ| = 1."""
    _, phi, _ = family
    v2, c, h = jnp.asarray(1.1), jnp.asarray(0.5), 1e-5

    @jax.jit
    def compare(phi, v):
        def f(v):
            return jnp.stack(duals.dual(phi, v, v2, c))

        return jax.jacfwd(f)(v), (f(v + h) - f(v - h)) / (2 * h)

    gradient, difference = compare(phi, jnp.asarray(0.8))
    np.testing.assert_allclose(gradient, difference, rtol=1e-7, atol=1e-8)


def test_jit_and_vmap(family, both, x64):
    _, phi, _ = family
    args = edges(np.float64)
    plain = duals.dual(phi, *args)
    jitted = both(phi, *args)
    mapped = jax.jit(jax.vmap(duals.dual, (None, 0, 0, 0)))(phi, *args)
    for a, b, d in zip(plain, jitted, mapped, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(a, d, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    "phi",
    [
        duals.LeakyRelu(0.1),
        duals.Erf(0.9),
        duals.Sin(1.2, 0.3),
        duals.Cos(0.7),
        duals.Gaussian(0.5),
        duals.Elu(0.8),
        duals.Polynomial((0.1, 1.0, 0.2)),
    ],
    ids=lambda phi: type(phi).__name__,
)
def test_parameters_are_leaves(phi, x64):
    """The gradient in every hyper-parameter agrees with central differences."""
    args = tuple(jnp.asarray(t) for t in (0.8, 1.2, 0.4))

    @jax.jit
    def f(phi):
        return duals.dual(phi, *args)[0]

    leaves, tree = jax.tree.flatten(phi)
    gradient = jax.tree.leaves(jax.jit(jax.grad(f))(phi))
    assert leaves and len(gradient) == len(leaves)
    for i, g in enumerate(gradient):
        moved = [
            jax.tree.unflatten(tree, [t + h * (k == i) for k, t in enumerate(leaves)])
            for h in (1e-5, -1e-5)
        ]
        difference = (f(moved[0]) - f(moved[1])) / 2e-5
        np.testing.assert_allclose(g, difference, rtol=1e-7, atol=1e-9)


def test_frozen_and_registered(family):
    name, phi, _ = family
    assert type(phi) is duals.DUALS[name]
    assert isinstance(phi, eqx.Module) and isinstance(phi.exact, bool)
    with pytest.raises(AttributeError):
        phi.kinks = (1.0,)
