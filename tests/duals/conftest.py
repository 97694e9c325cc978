"""Oracles that share nothing with the package: float64 quadrature of φ written in numpy."""

import jax
import numpy as np
import pytest
import scipy.special as sp

from limitformer import duals

FAMILIES = {
    "relu": (duals.Relu(), lambda u: np.maximum(u, 0)),
    "leaky_relu": (duals.LeakyRelu(0.2), lambda u: np.where(u > 0, u, 0.2 * u)),
    "abs": (duals.Abs(), np.abs),
    "sign": (duals.Sign(), np.sign),
    "erf": (duals.Erf(0.8), lambda u: sp.erf(0.8 * u)),
    "gelu": (duals.Gelu(), lambda u: u * sp.ndtr(u)),
    "gelu_tanh": (
        duals.GeluTanh(),
        lambda u: 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3))),
    ),
    "silu": (duals.Silu(), lambda u: u * sp.expit(u)),
    "tanh": (duals.Tanh(), np.tanh),
    "sigmoid": (duals.Sigmoid(), sp.expit),
    "softplus": (duals.Softplus(), lambda u: np.logaddexp(0, u)),
    "elu": (duals.Elu(0.7), lambda u: np.where(u > 0, u, 0.7 * np.expm1(np.minimum(u, 0)))),
    "sin": (duals.Sin(1.3, 0.4), lambda u: np.sin(1.3 * u + 0.4)),
    "cos": (duals.Cos(0.9), lambda u: np.cos(0.9 * u)),
    "gaussian": (duals.Gaussian(0.6), lambda u: np.exp(-0.6 * u * u)),
    "polynomial": (
        duals.Polynomial((0.3, 1.0, -0.5, 0.1)),
        lambda u: 0.3 + u - 0.5 * u**2 + 0.1 * u**3,
    ),
    "identity": (duals.Identity(), lambda u: u),
    "generic": (duals.Generic(lambda u: duals.Gelu().fn(u) + 0.5), lambda u: u * sp.ndtr(u) + 0.5),
}
"""name -> (dual, φ in numpy)."""

_X, _W = np.polynomial.legendre.leggauss(24)
_ENDS = np.array([-11, -8, -6, -4.5, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4.5, 6, 8, 11.0])


def _panels(ends):
    """Gauss-Legendre nodes and Gaussian weights on panels, along the last axis."""
    left, right = ends[..., :-1, None], ends[..., 1:, None]
    z = 0.5 * (left + right) + 0.5 * (right - left) * _X
    w = 0.5 * (right - left) * _W * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return z.reshape(*z.shape[:-2], -1), w.reshape(*w.shape[:-2], -1)


def expect1(f, v, mean=0.0, kink=0.0):
    """E[f(u)], u ~ N(mean, v)."""
    split = np.clip((kink - mean) / np.sqrt(v), -11, 11) if v > 0 else 0.0
    z, w = _panels(np.sort(np.append(_ENDS, split)))
    return float(np.sum(w * f(mean + np.sqrt(v) * z)))


def expect2(f, v1, v2, rho, means=(0.0, 0.0), kink=0.0):
    """E[f(u) f(v)] by integrating v given u with panels split at the kink, then u."""
    q1, q2, s = np.sqrt(v1), np.sqrt(v2), np.sqrt((1 - rho) * (1 + rho))
    z, w = _panels(np.sort(np.append(_ENDS, (kink - means[0]) / q1)))
    keep = w > 1e-25
    z, w = z[keep], w[keep]
    split = np.clip(((kink - means[1]) / q2 - rho * z) / s, -11, 11)[:, None]
    y, wy = _panels(np.sort(np.concatenate([np.tile(_ENDS, (len(z), 1)), split], 1)))
    inner = np.sum(wy * f(means[1] + q2 * (rho * z[:, None] + s * y)), -1)
    return float(np.sum(w * f(means[0] + q1 * z) * inner))


@pytest.fixture(params=list(FAMILIES))
def family(request):
    """(name, dual, φ in numpy)."""
    return request.param, *FAMILIES[request.param]


@pytest.fixture(scope="session")
def both():
    """`duals.dual`, compiled."""
    return jax.jit(duals.dual)


@pytest.fixture
def oracle1():
    return expect1


@pytest.fixture
def oracle2():
    return expect2
