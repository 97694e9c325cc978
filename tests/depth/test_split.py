"""Split arithmetic against high-precision arithmetic, and the cubic rate."""

import math

import mpmath
import numpy as np
import pytest

from limitformer.depth.split import split


def network(seed, layers=5, heads=1, n=4, d=6, size=0.3):
    rng = np.random.default_rng(seed)
    X = size * rng.normal(size=(n, d)) + rng.normal(size=d)
    A, B = rng.normal(size=(2, layers, heads, d, d)) / math.sqrt(d)
    return X, A, B / math.sqrt(heads)


def precise(X, A, B, digits=600):
    """log10 of the residual around the mean after every layer, by plain attention."""
    found = []
    with mpmath.workdps(digits):
        n, d = X.shape
        x = mpmath.matrix(X.tolist())

        def residual(x):
            total = mpmath.mpf(0)
            for c in range(d):
                mean = mpmath.fsum(x[a, c] for a in range(n)) / n
                total += mpmath.fsum((x[a, c] - mean) ** 2 for a in range(n))
            return mpmath.log(total) / 2

        found.append(residual(x))
        for A_l, B_l in zip(A, B, strict=True):
            new = mpmath.zeros(n, d)
            for Q, V in zip(A_l, B_l, strict=True):
                G = x * mpmath.matrix(Q.tolist()) * x.T / mpmath.sqrt(d)
                P = mpmath.zeros(n, n)
                for a in range(n):
                    e = [mpmath.exp(G[a, b]) for b in range(n)]
                    for b in range(n):
                        P[a, b] = e[b] / mpmath.fsum(e)
                new += P * x * mpmath.matrix(V.tolist())
            x = new
            found.append(residual(x))
        return [mpmath.mpf(v) for v in found]


@pytest.mark.parametrize(("seed", "heads"), [(0, 1), (1, 3)])
def test_high_precision(seed, heads):
    X, A, B = network(seed, layers=5, heads=heads, size=0.5)
    wanted = precise(X, A, B)
    found = split(X, A, B)
    log = found.log_residual()
    assert wanted[-1] < -60 * math.log(10)
    with mpmath.workdps(60):
        # the residual itself, from mantissa and exponent, so that no logarithm rounds
        for l, value in enumerate(wanted):
            R = found.R[l] - found.R[l].mean(axis=0)
            square = mpmath.fsum(mpmath.mpf(float(v)) ** 2 for v in R.ravel())
            mine = mpmath.sqrt(square) * mpmath.mpf(2) ** int(found.exponent[l])
            assert abs(mine / mpmath.exp(value) - 1) < 1e-12
    np.testing.assert_allclose(log, [float(v) for v in wanted], rtol=1e-13, atol=1e-12)


def test_float64_floors_and_split_does_not():
    X, A, B = network(0, layers=8)
    x = X
    for (Q,), (V,) in zip(A, B, strict=True):
        G = x @ Q @ x.T / math.sqrt(6)
        x = np.exp(G) / np.exp(G).sum(1, keepdims=True) @ x @ V
    floor = np.linalg.norm(x - x.mean(0)) / np.linalg.norm(x)  # rounding, or nothing at all
    log = split(X, A, B).log_residual() / math.log(10)
    assert (floor == 0 or floor > 1e-18) and -10000 < log[-1] < -1000
    found = split(X, A, B)
    # early, while float64 still shows it
    np.testing.assert_allclose(np.exp(found.log_relative_residual()[0]), _relative(X), rtol=1e-13)
    x1 = found.x[1] + np.ldexp(found.R[1], int(found.exponent[1]))
    np.testing.assert_allclose(np.exp(found.log_relative_residual()[1]), _relative(x1), rtol=1e-11)


def _relative(x):
    return np.linalg.norm(x - x.mean(0)) / np.linalg.norm(x)


@pytest.mark.parametrize("heads", [1, 4])
def test_the_exponent_is_three(heads):
    found = split(*network(3, layers=40, heads=heads))
    log = found.log_residual()
    assert np.isfinite(log).all() and log[-1] < -(3.0**30)
    np.testing.assert_allclose(found.exponents[10:], 3.0, rtol=1e-3)
    assert (np.diff(log) < 0).all()


def test_equal_tokens_stay_equal():
    X, A, B = network(0)
    found = split(np.tile(X[:1], (4, 1)), A, B)
    assert (found.log_residual() == -np.inf).all()
    assert (found.log_relative_residual() == -np.inf).all()


def test_bad_input():
    X, A, B = network(0)
    with pytest.raises(ValueError, match="two tokens or more"):
        split(X[:1], A, B)
    with pytest.raises(ValueError, match=r"W must have shape \(layers, heads, 6, 6\)"):
        split(X, A, B[:2])
    with pytest.raises(ValueError, match="must be finite"):
        split(X, A, B * np.nan)
    with pytest.raises(ValueError, match="not known"):
        split(X, A, B).log_residual("max")
