"""Slopes of errors in the width."""

import numpy as np
import pytest

import limitformer as lf
from limitformer.report.convergence import KINDS, Convergence, Width, convergence


def made(errors: dict[int, np.ndarray]) -> Convergence:
    K = {kind: np.eye(2) for kind in KINDS}
    return Convergence(
        K, tuple(Width(w, 1, w, dict.fromkeys(KINDS, e), K) for w, e in errors.items())
    )


def test_an_exact_power_law_is_found():
    result = made({w: 3 * w**-0.5 * np.array([0.9, 1.0, 1.1]) for w in (16, 64, 256)})
    fit = result.slope("nngp")
    assert fit.slope == pytest.approx(-0.5, abs=1e-12)
    assert fit.at(100) == pytest.approx(0.3, rel=1e-10)


def test_the_standard_error_of_the_slope_is_honest():
    rng = np.random.default_rng(0)
    z = []
    for _ in range(300):
        errors = {w: w**-0.5 * rng.gamma(16, 1 / 16, size=40) for w in (16, 32, 64, 128)}
        fit = made(errors).slope("ntk")
        z.append((fit.slope + 0.5) / fit.slope_sem)
    # A standard deviation of 300 draws has a standard error of 4 per cent.
    assert abs(np.mean(z)) < 5 * np.std(z) / np.sqrt(300)
    assert abs(np.std(z) - 1) < 5 * 0.041


def test_one_width_has_no_slope():
    with pytest.raises(ValueError, match="a slope needs two widths of at least 64, got 1"):
        made({16: np.ones(3), 64: np.ones(3)}).slope("nngp", narrowest=64)


@pytest.mark.parametrize(
    ("net", "networks", "message"),
    [
        (lf.Serial(lf.Dense(), lf.Relu()), [2], "must end in lf.Dense"),
        (lf.Serial(lf.Dense(), lf.Relu(), lf.Dense()), [1], "at least 2"),
    ],
)
def test_what_cannot_be_compared(net, networks, message, key):
    x = np.ones((2, 3), np.float32)
    K = {kind: np.eye(2) for kind in KINDS}
    with pytest.raises(ValueError, match=message):
        convergence(net, x, K, key=key, widths=[4], networks=networks, head_width=4, tokens=(1,))
