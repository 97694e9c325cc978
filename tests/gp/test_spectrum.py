"""Eigenvalues, decay and alignment against dense formulas and known spectra."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import limitformer as lf
from limitformer.gp.spectrum import spectrum


def gram(n, seed=0, rank=None):
    x = np.random.default_rng(seed).normal(size=(n, rank or 2 * n))
    return x @ x.T / x.shape[1]


def with_eigenvalues(d, seed=0):
    V = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(d), len(d))))[0]
    return (V * d) @ V.T, V


@given(st.integers(2, 12), st.integers(0, 100))
def test_agrees_with_dense_formulas(n, seed):
    rng = np.random.default_rng(seed)
    K, Y = gram(n, seed), rng.normal(size=(n, 2))
    s = spectrum(K, Y)
    assert np.all(np.diff(s.eigenvalues) <= 0)
    np.testing.assert_allclose(s.eigenvalues.sum(), np.trace(K), rtol=1e-10)
    np.testing.assert_allclose(s.condition, np.linalg.cond(K), rtol=1e-6)
    for noise in (1e-3, 1.0):
        dense = np.trace(np.linalg.solve(K + noise * np.eye(n), K))
        np.testing.assert_allclose(s.effective_dimension(noise), dense, rtol=1e-9)
    H = np.eye(n) - 1 / n
    Kc = H @ K @ H
    for c in range(2):
        T = H @ np.outer(Y[:, c], Y[:, c]) @ H
        dense = np.sum(Kc * T) / np.linalg.norm(Kc) / np.linalg.norm(T)
        np.testing.assert_allclose(s.output_alignment[c], dense, rtol=1e-8, atol=1e-12)
    T = H @ Y @ Y.T @ H
    dense = np.sum(Kc * T) / np.linalg.norm(Kc) / np.linalg.norm(T)
    np.testing.assert_allclose(s.alignment, dense, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(s.power[-1], 1.0)
    np.testing.assert_allclose(np.sum(s.coefficients**2), np.sum(Y**2))
    assert np.all(np.diff(s.total_power) >= 0)


def test_power_of_targets_along_an_eigenvector():
    K, V = with_eigenvalues(np.array([5.0, 3.0, 2.0, 1.0]))
    s = spectrum(K, V[:, [1, 3]])
    np.testing.assert_allclose(s.power, [[0, 0], [1, 0], [1, 0], [1, 1]], atol=1e-12)
    np.testing.assert_allclose(s.total_power, [0, 0.5, 0.5, 1], atol=1e-12)
    assert spectrum(K).power is spectrum(K).total_power is spectrum(K).alignment is None


def test_ranks_of_known_spectra():
    equal = spectrum(np.eye(7))
    np.testing.assert_allclose((equal.effective_rank, equal.participation_ratio), 7)
    one = spectrum(np.ones((7, 7)))
    np.testing.assert_allclose((one.effective_rank, one.participation_ratio), 1, rtol=1e-10)
    assert (equal.rank, one.rank) == (7, 1)
    assert one.condition > 1e14
    np.testing.assert_allclose(equal.effective_dimension(np.array([[1.0, 3.0]])), [[3.5, 1.75]])


@pytest.mark.parametrize("exponent", [1.0, 1.5, 3.0])
def test_a_power_law_is_found(exponent):
    K, _ = with_eigenvalues(2.5 * np.arange(1, 201) ** -exponent)
    decay = spectrum(K).decay
    np.testing.assert_allclose([decay.exponent, decay.scale], [exponent, 2.5], rtol=1e-6)
    assert (decay.first, decay.last) == (4, 100)
    assert decay.sem < 1e-6 and decay.r2 > 1 - 1e-9
    np.testing.assert_allclose(decay(np.array([1, 4])), 2.5 * np.array([1, 4]) ** -exponent)


def test_a_power_law_of_a_sample_is_found_within_its_standard_error():
    rng = np.random.default_rng(1)
    l = np.arange(1, 1201) ** -1.5
    features = rng.normal(size=(300, len(l)))
    decay = spectrum((features * l) @ features.T, fit=(4, 60)).decay
    assert abs(decay.exponent - 1.5) < 5 * decay.sem
    assert decay.sem < 0.1


def test_no_power_law_is_in_the_standard_error():
    K, _ = with_eigenvalues(np.exp(-np.arange(60) / 5))
    curved = spectrum(K).decay
    assert curved.sem > 0.1 * curved.exponent
    assert spectrum(gram(10)).decay is None


def test_the_fit_stops_at_the_floor():
    K, _ = with_eigenvalues(np.concatenate([np.arange(1, 31.0) ** -1.0, np.zeros(30)]))
    s = spectrum(K, fit=(1, 60))
    assert s.rank == s.decay.last == 30
    np.testing.assert_allclose(s.decay.exponent, 1.0, rtol=1e-6)


def test_negative_eigenvalues_are_reported():
    K, _ = with_eigenvalues(np.array([2.0, 1.0, -0.5]))
    s = spectrum(K)
    np.testing.assert_allclose(s.eigenvalues, [2, 1, -0.5])
    np.testing.assert_allclose(s.negative, [-0.5])
    assert s.condition == np.inf and s.negative[0] < -s.floor
    np.testing.assert_allclose(s.effective_dimension(1.0), 2 / 3 + 1 / 2 - 1)
    with pytest.raises(ValueError, match=r"noise 0\.25 .* eigenvalue of -0\.5.*above 0\.5"):
        s.effective_dimension(np.array([1.0, 0.25]))
    rounded = spectrum(gram(30, rank=3))
    assert len(rounded.negative) and np.all(rounded.negative > -rounded.floor)


def test_float32_and_labels():
    net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
    x = np.random.default_rng(0).normal(size=(20, 5))
    single = spectrum(net.kernel(x.astype(np.float32)).nngp, np.arange(20) % 2)
    double = spectrum(net.kernel(x).nngp, np.arange(20) % 2)
    assert single.floor > 1e6 * double.floor
    assert np.all(np.abs(single.eigenvalues - double.eigenvalues) < single.floor)


def test_constant_targets_have_no_alignment():
    Y = np.stack([np.full(6, 0.1), np.arange(6.0)], axis=1)
    s = spectrum(gram(6), Y)
    assert np.isnan(s.output_alignment[0]) and np.isfinite(s.output_alignment[1])
    assert s.alignment == pytest.approx(s.output_alignment[1])
    assert np.isnan(spectrum(np.ones((6, 6)), Y).alignment)
    assert np.isnan(spectrum(gram(6), np.zeros(6)).power).all()


def bad(i, j, value):
    K = np.eye(3)
    K[i, j] = value
    return K


@pytest.mark.parametrize(
    ("K", "targets", "message"),
    [
        (np.ones((2, 3)), None, r"\(n, n\), got shape \(2, 3\)"),
        (np.ones((0, 0)), None, r"got shape \(0, 0\)"),
        (bad(0, 1, 1e-3), None, r"not symmetric: K - K\^T has an entry of 0.001"),
        (bad(2, 1, np.nan), None, r"1 entries that are not finite, the first at \[2, 1\]"),
        (np.eye(3), np.ones(4), r"\(3,\) or \(3, outputs\) to match K, got shape \(4,\)"),
        (np.eye(3), np.ones((3, 1, 1)), r"got shape \(3, 1, 1\)"),
        (np.eye(3), np.array([1, 2, np.inf]), "1 values that are not finite"),
    ],
)
def test_bad_input(K, targets, message):
    with pytest.raises(ValueError, match=message):
        spectrum(K, targets)


@pytest.mark.parametrize("fit", [(0, 2), (2, 2), (1, 4)])
def test_ranks_that_do_not_exist(fit):
    with pytest.raises(ValueError, match="1 <= first < last <= 3"):
        spectrum(np.eye(3), fit=fit)


def test_small_asymmetry_is_reported():
    assert spectrum(bad(0, 1, 1e-10)).asymmetry == pytest.approx(1e-10)
