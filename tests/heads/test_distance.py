"""Distances to a Gaussian against known ones, their standard errors and floors."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, t

import limitformer as lf
from limitformer.heads.distance import distances, heads_needed
from limitformer.heads.law import Law

X = 2 * np.eye(4)[None]


def mixture(v):
    return Law([(np.asarray(v, float)[:, None, None], None)])


def test_a_gaussian_is_at_no_distance():
    found = distances(mixture(np.full(50, 1.7)))
    for d in (found.kl, found.wasserstein, found.energy):
        assert abs(d.value) < 1e-6
        assert abs(d.floor) < 1e-6
    wider = distances(mixture(np.full(50, 1.0)), variance=4.0)
    assert wider.kl.value == pytest.approx(0.5 * (0.25 - 1 + np.log(4)), rel=1e-5)
    assert wider.wasserstein.value == pytest.approx(np.sqrt(2 / np.pi), rel=1e-4)
    energy = 2 * quad(lambda y: (norm.cdf(y) - norm.cdf(y / 2)) ** 2, -40, 40)[0]
    assert wider.energy.value == pytest.approx(energy, rel=1e-4)


def test_a_student_law():
    """A mixture over inverse-gamma variances is Student's t."""
    rng = np.random.default_rng(0)
    df = 8
    law = mixture(df / rng.chisquare(df, size=20_000))
    scale = np.sqrt(df / (df - 2))
    want = quad(lambda y: t.pdf(y, df) * (t.logpdf(y, df) - norm.logpdf(y, 0, scale)), -60, 60)[0]
    found = distances(law, variance=scale**2)
    assert abs(found.kl.value - want) < 5 * found.kl.sem + abs(found.kl.floor)
    assert abs(found.kl.floor) < 0.1 * found.kl.value


def test_standard_errors_are_honest():
    rng = np.random.default_rng(1)
    runs = [distances(mixture(rng.gamma(3.0, size=400))) for _ in range(40)]
    for name in ("kl", "wasserstein", "energy"):
        values = np.array([getattr(r, name).value for r in runs])
        said = np.mean([getattr(r, name).sem for r in runs])
        assert 0.6 < values.std(ddof=1) / said < 1.6


@pytest.mark.slow
def test_heads_needed(key):
    net = lf.Serial(lf.Attention(qk_std=2.0), lf.FirstToken())
    found = heads_needed(net, X, key=key, closeness=1e-3, draws=2000)
    assert found.heads is not None
    assert found.found[-1].kl.value <= 1e-3 < found.found[-2].kl.value
    assert found.tried[len(found.found) - 2] < found.heads <= found.tried[len(found.found) - 1]
    assert "heads for KL" in str(found)
    none = heads_needed(net, X, key=key, closeness=1e-9, tried=(1, 2), draws=200)
    assert none.heads is None
    assert "more than tried" in str(none)


def test_bad_input():
    with pytest.raises(ValueError, match="at least 4"):
        distances(mixture([1.0, 2.0]))
    with pytest.raises(ValueError, match="point mass"):
        distances(mixture([1.0, 2.0, 0.0, 1.0]))
