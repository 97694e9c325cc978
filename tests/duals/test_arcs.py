"""The polynomials behind the closed forms, against 80-bit or scipy functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

from limitformer.duals import arcs
from limitformer.duals.erfcx import erfcx

BITS = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def grid(dtype):
    near = 1 - np.geomspace(20 * np.finfo(dtype).eps, 1, 2000)
    rho = np.concatenate([near, -near, np.linspace(-1, 1, 2001)[1:-1]]).astype(dtype)
    # What is snapped is tested below.
    return rho[np.abs(rho) < 1 - 17 * np.finfo(dtype).eps]


def wide(dtype):
    return jax.enable_x64(dtype == np.float64)


@BITS
def test_arc_functions(dtype):
    rho = grid(dtype)
    eps = float(np.finfo(dtype).eps)
    exact = rho.astype(np.longdouble)
    with wide(dtype):
        (line, absolute), sign = arcs.arc1(jnp.asarray(rho)), arcs.arc0(jnp.asarray(rho))
        angle = arcs.arccos(jnp.asarray(rho))
    sine = np.sqrt((1 - exact) * (1 + exact))
    want = 2 / np.longdouble(np.pi) * (sine + exact * np.arcsin(exact))
    assert line.dtype == absolute.dtype == sign.dtype == dtype
    np.testing.assert_allclose(line, rho, rtol=0, atol=eps)
    assert np.max(np.abs(np.asarray(absolute) - want)) < 2 * eps
    assert np.max(np.abs(np.asarray(sign) - 2 / np.longdouble(np.pi) * np.arcsin(exact))) < 3 * eps
    assert np.max(np.abs(np.asarray(angle) - np.arccos(exact))) < 4 * eps


def test_relu_keeps_its_digits_where_it_vanishes(x64):
    """κ1 falls like (1+ρ)^{3/2} at ρ = -1; series in the angle as the oracle."""
    z = np.geomspace(1e-14, 1e-3, 50)
    rho = -1 + z
    z = 1 + rho.astype(np.longdouble)
    line, absolute = arcs.arc1(jnp.asarray(rho))
    theta = 2 * np.arcsin(np.sqrt(z / 2))
    series = theta**3 / 3 - theta**5 / 30 + theta**7 / 840 - theta**9 / 45360
    got = np.asarray(line + absolute) / 2
    eps = np.finfo(np.float64).eps
    assert np.max(np.abs(got - series / np.pi) / (eps + series)) < 1.0


@BITS
def test_snap(dtype):
    eps = float(np.finfo(dtype).eps)
    with wide(dtype):
        rho = jnp.asarray([1 + 5 * eps, 1.0, 1 - 2 * eps, 1 - 15 * eps], dtype)
        for sign in (1, -1):
            line, absolute = arcs.arc1(sign * rho)
            np.testing.assert_array_equal(line, sign * np.ones(4))
            np.testing.assert_array_equal(absolute, np.ones(4))
            np.testing.assert_array_equal(arcs.arc0(sign * rho), sign * np.ones(4))
            np.testing.assert_array_equal(arcs.sine_squared(sign * rho), np.zeros(4))
        assert float(arcs.sine_squared(jnp.asarray(1 - 40 * eps, dtype))) > 0
        assert np.isnan(arcs.arc0(jnp.asarray(np.nan, dtype)))
        assert np.isnan(arcs.arc1(jnp.asarray(np.nan, dtype))[1])


@BITS
def test_arcsin2_half_turn_erfcx(dtype):
    eps = float(np.finfo(dtype).eps)
    t = np.concatenate([np.linspace(-1, 1, 1001)[1:-1], np.geomspace(1e-12, 1e-2, 50)])
    angle = np.linspace(0, np.pi, 1001)
    x = np.concatenate([np.linspace(0, 8, 801), np.geomspace(8, 1e6, 50)])
    with wide(dtype):
        t, angle, x = (jnp.asarray(a, dtype) for a in (t, angle, x))
        got = np.asarray(arcs.arcsin2(t, jnp.sqrt((1 - t) * (1 + t))))
        sine, cosine = map(np.asarray, arcs.half_turn(angle))
        scaled = np.asarray(erfcx(x))
    t, angle, x = (np.asarray(a).astype(np.longdouble) for a in (t, angle, x))
    np.testing.assert_allclose(got, np.arcsin(t), rtol=8 * eps)
    np.testing.assert_allclose(sine, np.sin(angle), rtol=0, atol=4 * eps)
    np.testing.assert_allclose(cosine, np.cos(angle), rtol=0, atol=4 * eps)
    np.testing.assert_allclose(scaled, sp.erfcx(x.astype(np.float64)), rtol=8 * eps)
