"""Distances between samples: against SciPy, closed forms, and the size and power of the test."""

import numpy as np
import pytest
import scipy.stats

from limitformer.heads.two_sample import cdf_distances, holm, kde, kde_kl, two_sample


def test_against_scipy():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=300), rng.normal(0.3, 1.4, size=200)
    wasserstein, energy = cdf_distances(x, y)
    assert wasserstein == pytest.approx(scipy.stats.wasserstein_distance(x, y), rel=1e-12)
    assert energy == pytest.approx(scipy.stats.energy_distance(x, y) ** 2, rel=1e-9)
    grid = np.linspace(-6, 6, 500)
    want = scipy.stats.gaussian_kde(x)(grid) + 1e-12
    np.testing.assert_allclose(kde(x, grid), want / want.sum(), rtol=1e-2, atol=1e-7)
    q = scipy.stats.gaussian_kde(y)(grid) + 1e-12
    exact = scipy.stats.entropy(want, q)
    assert kde_kl(x, y, grid) == pytest.approx(exact, rel=1e-3)


def test_large_samples_against_the_truth():
    """N(0, 1) and N(0, 4): KL, W1 and energy distance in closed form or by quadrature."""
    rng = np.random.default_rng(1)
    found = two_sample(rng.normal(size=4000), 2 * rng.normal(size=4000), permutations=19)
    bandwidth = 4000**-0.2
    # kernels widen both laws by the same factor, which leaves the ratio of their variances
    assert bandwidth < 0.2
    assert abs(found.kl.value - 0.5 * (0.25 - 1 + np.log(4))) < 5 * found.kl.sem
    assert abs(found.wasserstein.value - np.sqrt(2 / np.pi)) < 5 * found.wasserstein.sem
    y = np.linspace(-12, 12, 4001)
    gap = scipy.stats.norm.cdf(y) - scipy.stats.norm.cdf(y / 2)
    energy = 2 * np.sum(gap**2) * (y[1] - y[0])
    assert abs(found.energy.value - energy) < 5 * found.energy.sem
    assert found.p_value == 1 / 20


def test_floors_are_what_one_law_gives():
    rng = np.random.default_rng(2)
    runs = [
        two_sample(rng.normal(size=150), rng.normal(size=250), permutations=39, seed=i)
        for i in range(30)
    ]
    for name in ("kl", "wasserstein", "energy"):
        values = np.array([getattr(r, name).value for r in runs])
        floor = np.mean([getattr(r, name).floor for r in runs])
        assert abs(values.mean() - floor) < 5 * values.std() / np.sqrt(30), name
    p = np.array([r.p_value for r in runs])
    assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3


def test_holm():
    np.testing.assert_allclose(holm([0.5, 0.001, 0.02]), [0.5, 0.003, 0.04])
    assert holm([0.9, 0.8]).max() == 1.0


def test_bad_input():
    with pytest.raises(ValueError, match="y has 3 samples; two_sample needs 20 finite numbers"):
        two_sample(np.arange(30.0), np.arange(3.0))
    with pytest.raises(ValueError, match="x has 30 samples; two_sample needs 20 finite"):
        two_sample(np.full(30, np.nan), np.arange(30.0))
