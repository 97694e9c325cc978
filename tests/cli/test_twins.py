"""Twins against the limit: the line in 1/width, and a limit that is wrong."""

import jax
import numpy as np
import pytest

import limitformer as lf
from limitformer.cli import twins


def of_width(width, value, sem):
    both = {"nngp": value, "ntk": value}
    return twins.Compared(width, 1, 2, both, dict.fromkeys(both, sem), {}, {})


def test_a_line_in_one_over_width_ends_at_its_intercept():
    rng = np.random.default_rng(0)
    k, c, sem = rng.normal(size=(3, 2, 2))
    sem = 0.1 + np.abs(sem)
    found = [of_width(w, k + c / w, sem) for w in (8, 16, 64)]
    value, error = twins._extrapolated(found, "nngp")
    np.testing.assert_allclose(value, k, atol=1e-10)
    two, both = twins._extrapolated(found[:2], "nngp")  # 2 k_16 - k_8
    np.testing.assert_allclose(two, k, atol=1e-10)
    np.testing.assert_allclose(both, np.sqrt(5) * sem, rtol=1e-3)
    assert np.all(error < both)


@pytest.mark.twin
def test_z_scores_of_a_network_and_of_a_wrong_limit():
    net = lf.Serial(lf.Dense(1.2, 0.1), lf.Erf(), lf.Dense())
    x = np.random.default_rng(0).normal(size=(3, 4))
    options = {"widths": (16, 32), "networks": 400, "heads": 1, "draws": 64}
    found = twins.compare(net, x, key=jax.random.key(0), **options)
    assert [c.width for c in found] == [16, 32, None]
    end = found[-1]
    for kind in ("nngp", "ntk"):
        assert len(end.z[kind]) == 6
        assert np.abs(end.z[kind]).max() < 5
    limit = {kind: 1.3 * np.asarray(getattr(net.kernel(x), kind)) for kind in ("nngp", "ntk")}
    doubt = {kind: np.zeros((3, 3)) for kind in limit}
    wrong = twins._compared(None, None, None, end.value, end.sem, limit, doubt)
    assert min(np.abs(wrong.z[kind]).max() for kind in limit) > 5


def test_bad_settings():
    x = np.ones((2, 3, 4))
    options = {"key": jax.random.key(0), "heads": 1, "draws": 64}
    with pytest.raises(ValueError, match="two different widths and two networks"):
        twins.compare(lf.Dense(), x, widths=(8, 8), networks=4, **options)
    with pytest.raises(ValueError, match="needs a network with a readout"):
        twins.compare(lf.Dense(), x, widths=(8, 16), networks=2, **options)
