"""Calibration scores: by hand, and their standard errors against simulation."""

import itertools

import numpy as np
import pytest
from scipy.stats import norm

from limitformer.gp.calibration import (
    accuracy,
    brier,
    calibration_error,
    coverage,
    debiased_calibration_error,
    gaussian_log_loss,
    log_loss,
    reliability,
)


def simulate(rng, n, shift=0.0):
    """Confidences in (.5, 1), right with probability confidence - shift."""
    confidence = rng.uniform(0.6, 0.95, size=n)
    labels = (rng.uniform(size=n) > confidence - shift).astype(int)
    return np.stack([confidence, 1 - confidence], axis=1), labels


def test_table_by_hand():
    P = np.array([[0.95, 0.05], [0.91, 0.09], [0.6, 0.4], [0.3, 0.7], [0.45, 0.55]])
    labels = np.array([0, 1, 0, 1, 0])
    table = reliability(P, labels, bins=10)
    np.testing.assert_allclose(table.lower, [0.5, 0.6, 0.9])  # 0.6 and 0.7 close their bins
    np.testing.assert_allclose(table.upper, [0.6, 0.7, 1.0])
    assert table.count.tolist() == [2, 1, 2]
    np.testing.assert_allclose(table.confidence, [0.575, 0.7, 0.93])
    np.testing.assert_allclose(table.accuracy, [0.5, 1.0, 0.5])
    np.testing.assert_allclose(table.accuracy_sem, [np.sqrt(0.125), 0, np.sqrt(0.125)])
    np.testing.assert_allclose(table.gap, table.accuracy - table.confidence)
    assert np.isnan(table.gap_variance[1])
    error = calibration_error(P, labels, bins=10)
    assert error.value == pytest.approx((2 * 0.075 + 0.3 + 2 * 0.43) / 5)


def test_the_standard_error_of_the_ece_is_that_of_a_signed_mean():
    P, labels = simulate(np.random.default_rng(0), 300, 0.2)
    error = calibration_error(P, labels)
    confidence, right = P.max(axis=1), P.argmax(axis=1) == labels
    edges = np.linspace(0, 1, 16)
    signed = np.empty(300)
    for low, high in itertools.pairwise(edges):
        rows = (confidence > low) & (confidence <= high)
        if rows.any():
            difference = right[rows] - confidence[rows]
            signed[rows] = np.sign(difference.mean()) * difference
    assert error.value == pytest.approx(signed.mean())
    assert error.sem == pytest.approx(signed.std(ddof=1) / np.sqrt(300))


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_ece_scatters_as_its_standard_error_says(binning):
    rng = np.random.default_rng(1)
    errors = [calibration_error(*simulate(rng, 400, 0.3), 8, binning) for _ in range(300)]
    values = np.array([e.value for e in errors])
    sem = np.mean([e.sem for e in errors])
    assert values.std() == pytest.approx(sem, rel=0.2)
    assert abs(values.mean() - 0.3) < 5 * values.std() / np.sqrt(300) + 0.002


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_debiased_error_has_no_bias(shift):
    rng = np.random.default_rng(2)
    errors = [debiased_calibration_error(*simulate(rng, 200, shift), 10) for _ in range(400)]
    squared = np.array([e.squared for e in errors])
    assert abs(squared.mean() - shift**2) < 5 * squared.std() / np.sqrt(400)
    assert squared.std() == pytest.approx(
        np.sqrt(np.mean([e.squared_sem**2 for e in errors])), rel=0.25
    )
    if shift == 0:
        plain = np.mean([calibration_error(*simulate(rng, 200), 10).value for _ in range(50)])
        assert plain > 0.04  # the plain error of a calibrated model is far from 0
        assert np.mean([e.value == 0 for e in errors]) > 0.3
    if shift == 0.3:
        values = np.array([e.value for e in errors])
        assert values.std() == pytest.approx(np.mean([e.sem for e in errors]), rel=0.25)


def test_equal_mass_bins():
    P, labels = simulate(np.random.default_rng(3), 103)
    table = reliability(P, labels, 10, "mass")
    assert table.count.sum() == 103 and table.count.min() >= 9 and table.count.max() <= 12
    assert np.all(table.lower[1:] > table.upper[:-1])
    ties = np.array([[0.9, 0.1]] * 9 + [[0.6, 0.4]])
    table = reliability(ties, np.zeros(10, int), 5, "mass")
    assert table.count.tolist() == [10]  # ties together, and the single joined
    few = reliability(P[:5], labels[:5], 15, "mass")
    assert few.count.sum() == 5 and few.count.min() >= 2
    order = np.random.default_rng(4).permutation(103)
    one, two = (debiased_calibration_error(P[i], labels[i]).value for i in (slice(None), order))
    assert one == pytest.approx(two, rel=1e-12)


def test_scores_by_hand():
    P = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    labels = np.array([0, 1])
    rows = np.array([0.09 + 0.04 + 0.01, 0.01 + 0.49 + 0.36])
    found = brier(P, labels)
    assert found.value == pytest.approx(rows.mean())
    assert found.sem == pytest.approx(rows.std(ddof=1) / np.sqrt(2))
    losses = -np.log([0.7, 0.3])
    found = log_loss(P, labels)
    assert found.value == pytest.approx(losses.mean())
    assert found.sem == pytest.approx(losses.std(ddof=1) / np.sqrt(2))
    assert accuracy(P, labels).value == 0.5
    none = log_loss(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    assert none.value == np.inf and np.isnan(none.sem)
    assert np.isnan(brier(P[:1], labels[:1]).sem)


def test_gaussian_log_loss_is_that_of_scipy():
    rng = np.random.default_rng(5)
    mean, deviation, targets = (
        rng.normal(size=(9, 2)),
        rng.uniform(1, 2, (9, 2)),
        rng.normal(size=(9, 2)),
    )
    rows = -norm.logpdf(targets, mean, deviation).mean(axis=1)
    found = gaussian_log_loss(mean, deviation, targets)
    assert found.value == pytest.approx(rows.mean())
    assert found.sem == pytest.approx(rows.std(ddof=1) / 3)


def test_coverage_of_calibrated_and_overconfident_intervals():
    rng = np.random.default_rng(6)
    mean, deviation = rng.normal(size=4000), rng.uniform(0.5, 2, size=4000)
    targets = mean + deviation * rng.normal(size=4000)
    good = coverage(mean, deviation, targets)
    assert np.all(np.abs(good.z) < 4)
    np.testing.assert_allclose(good.sem, good.expected_sem, rtol=0.3)
    bad = coverage(mean, deviation / 2, targets, [0.9])
    assert bad.z[0] < -20
    expected = 2 * norm.cdf(norm.ppf(0.95) / 2) - 1
    assert abs(bad.observed[0] - expected) < 5 * bad.sem[0]


def test_outputs_of_one_input_count_once():
    rng = np.random.default_rng(7)
    column = rng.normal(size=(500, 1))
    one = coverage(np.zeros((500, 1)), np.ones((500, 1)), column, [0.8])
    copies = coverage(np.zeros((500, 4)), np.ones((500, 4)), np.repeat(column, 4, axis=1), [0.8])
    assert copies.observed[0] == pytest.approx(one.observed[0])
    assert copies.sem[0] == pytest.approx(one.sem[0])
    assert copies.expected_sem[0] == one.expected_sem[0]


def test_bad_input():
    P, labels = np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([0, 1])
    with pytest.raises(ValueError, match=r"Row 1 of the probabilities is \[2.0, 8.0\].*softmax"):
        brier(P * np.array([[1.0], [10.0]]), labels)
    with pytest.raises(ValueError, match=r"integers from 0 to 1, .* not \[0, 2\]"):
        log_loss(P, labels * 2)
    with pytest.raises(ValueError, match="bins=0; give at least 1"):
        calibration_error(P, labels, bins=0)
    with pytest.raises(ValueError, match="1 inputs; a debiased error needs at least two"):
        debiased_calibration_error(P[:1], labels[:1])
    with pytest.raises(ValueError, match=r"levels=\[1.0\] should be a list of numbers between"):
        coverage(np.zeros(2), np.ones(2), np.zeros(2), [1.0])
    with pytest.raises(ValueError, match="smallest deviation is 0; it should be positive"):
        coverage(np.zeros(2), np.zeros(2), np.zeros(2))
    with pytest.raises(ValueError, match="not finite"):
        gaussian_log_loss(np.array([np.nan]), np.ones(1), np.zeros(1))
    with pytest.raises(ValueError, match="probabilities"):
        brier(np.full((2, 2), np.nan), labels)
