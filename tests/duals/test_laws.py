"""Symmetry, homogeneity, positive semidefiniteness, padded tokens, gradients, transformations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limitformer import duals

EDGES = [(1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (0.5, 2.0, 1.0), (0.5, 2.0, -1.0), (0.0, 0.0, 0.0)]
EDGES += [(0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (1.0, 0.7, 0.5)]
SIZE = 36  # one shape for all tests: every dual is compiled once per dtype


def edges(dtype):
    """The corners of the domain, then random points inside."""
    inside = np.random.default_rng(0).uniform([0.1, 0.1, -0.95], [3, 3, 0.95], (SIZE, 3))
    v1, v2, rho = np.concatenate([EDGES, inside])[:SIZE].T
    return tuple(jnp.asarray(t, dtype) for t in (v1, v2, rho * np.sqrt(v1 * v2)))


def test_symmetry_and_padded_tokens(family, both, x64):
    _, phi, _ = family
    v1, v2, c = edges(np.float64)
    value, slope = both(phi, v1, v2, c)
    for one, other in zip((value, slope), both(phi, v2, v1, c), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)
    assert np.all(np.isfinite(slope))
    at_zero, mean = phi.fn(jnp.zeros(())), phi.mean(jnp.ones(()))
    np.testing.assert_allclose(value[4], at_zero**2, atol=1e-15)
    np.testing.assert_allclose(value[5], at_zero * mean, atol=1e-15)
    np.testing.assert_allclose(phi.second(v1[4:5]), at_zero**2, atol=1e-15)
    np.testing.assert_allclose(phi.mean(v1[4:5]), at_zero, atol=1e-15)


def test_positive_semidefinite(family, both, x64):
    _, phi, _ = family
    x = np.random.default_rng(0).normal(size=(6, 4)) / 2
    x[1] = 1.001 * x[0]
    K = x @ x.T
    v1, v2 = np.broadcast_arrays(np.diag(K)[:, None], np.diag(K)[None])
    for out in both(phi, *(jnp.asarray(t.ravel()) for t in (v1, v2, K))):
        spectrum = np.linalg.eigvalsh(np.asarray(out).reshape(6, 6))
        assert spectrum.min() > -1e-13 * max(spectrum.max(), 1)


@given(
    scale=st.floats(1e-3, 1e3), rho=st.floats(-1, 1), slope=st.floats(-1, 1), v=st.floats(0.1, 10)
)
def test_rectifiers_are_homogeneous(both, scale, rho, slope, v):
    with jax.enable_x64(True):
        for phi in (duals.Relu(), duals.LeakyRelu(slope), duals.Abs()):
            args = [jnp.asarray(t) for t in (v, 1.0, rho * np.sqrt(v))]
            value, derivative = both(phi, *args)
            scaled, same = both(phi, *(scale * t for t in args))
            np.testing.assert_allclose(scaled, scale * value, rtol=1e-12, atol=1e-14 * scale)
            # One eps in ρ moves Φ' by 1/√(1-ρ²), at most 1/√(16 eps) beside the snap.
            np.testing.assert_allclose(derivative, same, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients(family, both, dtype):
    """Finite everywhere, forward equal to reverse, dΦ/dc = Φ', dΦ/dv and dΦ'/dv by differences."""
    name, phi, _ = family
    if dtype == np.float32 and name in ("cos", "sigmoid", "softplus", "gelu_tanh", "generic"):
        pytest.skip("the same code as sin, tanh and silu")
    with jax.enable_x64(dtype == np.float64):
        args = edges(dtype)

        @jax.jit
        def everything(phi, *args):
            _, forward = jax.jvp(lambda *a: duals.dual(phi, *a), args, args)
            out, pull = jax.vjp(lambda *a: duals.dual(phi, *a), *args)
            one, zero = jnp.ones_like(args[0]), jnp.zeros_like(args[0])
            return out, jax.vmap(pull)((jnp.stack([one, zero]), jnp.stack([zero, one]))), forward

        (_, slope), reverse, forward = everything(phi, *args)
        h = 1e-5
        up, down = (both(phi, args[0] * (1 + sign * h), *args[1:]) for sign in (1, -1))
    for which in (0, 1):
        gradients = [np.asarray(g[which]) for g in reverse]
        assert all(np.all(np.isfinite(g)) and g.dtype == dtype for g in gradients)
        total = sum(g * np.asarray(a) for g, a in zip(gradients, args, strict=True))
        np.testing.assert_allclose(forward[which], total, rtol=1e-4, atol=1e-4)
        if dtype == np.float64:
            inside = slice(len(EDGES) - 1, None)
            difference = (np.asarray(up[which]) - np.asarray(down[which])) / (2 * h)
            got = gradients[0] * np.asarray(args[0])
            np.testing.assert_allclose(got[inside], difference[inside], rtol=1e-6, atol=1e-7)
    if name != "sign":
        # Where v = 0 nothing depends on c. A series' Φ' has the tail of φ', larger than φ's: 1e-9.
        positive = np.asarray(args[0]) > 0
        small = np.asarray(args[0]) * np.asarray(args[1]) <= 1
        tight = {"float32": 1e-5, "float64": 1e-13 if phi.exact or name == "elu" else 1e-9}
        where = positive & (small | phi.exact)
        gradient = np.asarray(reverse[2][0])
        tolerance = tight[np.dtype(dtype).name]
        np.testing.assert_allclose(gradient[where], slope[where], rtol=0, atol=tolerance)


@pytest.mark.parametrize("phi", [duals.Relu(), duals.Gelu(), duals.Tanh(), duals.Elu()])
def test_jit_and_vmap(phi, both, x64):
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
