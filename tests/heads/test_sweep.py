"""Sweeps: laws of theory 3 over heads, finite twins, the table."""

import numpy as np
import pytest
import scipy.stats

import limitformer as lf
from limitformer.heads.one_token import gaussian_inputs, one_token
from limitformer.heads.sweep import stack, sweep, twin_outputs


def test_over_heads(key):
    """Kurtosis .243 / H and spread .285 / sqrt H for four tokens; KL falls as 1 / H^2."""
    found = sweep({"heads": (1, 4)}, key=key, draws=2000, twins=400, width=512)
    for row in found.rows:
        H = row.parameters["heads"]
        assert abs(row.kurtosis.value - 0.243 / H) < 5 * row.kurtosis.sem + 0.001
        assert abs(row.spread.value - 0.285 / np.sqrt(H)) < 5 * row.spread.sem + 0.001
        assert row.twins is not None and row.twins.p_value > 1e-3
    kl, sem = found.column("kl"), found.column("kl_sem")
    # 3 log-moments decide the constant at H = 1; the order of magnitude is the law's
    assert 8 < kl[0] / kl[1] < 20
    assert (kl > 5 * sem).all()
    text = str(found)
    assert "energy, width 512" in text and text.count("\n") == 3
    record = found.records()[1]
    assert record["heads"] == 4 and {"kl_floor", "energy_sem", "twins_p_value"} <= set(record)


def test_a_builder_of_ones_own(key):
    def build(tokens):
        net = lf.Serial(lf.Attention(heads=2, scale="linear"), lf.FirstToken(), lf.Dense())
        return net, np.random.default_rng(0).normal(size=(1, tokens, 3))

    found = sweep({"tokens": (2, 3)}, key=key, build=build, draws=20)
    assert np.abs(found.column("kl")).max() < 1e-6  # no scores fluctuate: a Gaussian
    assert found.width is None and "width" not in str(found)


@pytest.mark.slow
@pytest.mark.twin
def test_twins_of_depth_two(key):
    """The second layer's twins have the law that the sweep compares them with."""
    found = sweep({"depth": (2,), "skip": (0.0, 1.0)}, key=key, draws=4000, twins=2000, width=192)
    for row in found.rows:
        assert row.twins is not None and row.twins.p_value > 1e-3


@pytest.mark.twin
def test_the_exact_sampler_is_the_twin(key):
    """One layer at width 8, where nothing is near its limit."""
    net, x = stack(heads=2, tokens=3, qk_std=1.5)
    y = twin_outputs(net, x, 8, 3000, key)
    exact = one_token(gaussian_inputs(np.eye(3), 8), 8, heads=2, key=key, runs=3000, qk_std=1.5)
    assert scipy.stats.ks_2samp(y, exact.outputs).pvalue > 1e-4
    gap = np.mean(y**2) - np.mean(exact.outputs**2)
    assert abs(gap) < 5 * np.hypot((y**2).std(), (exact.outputs**2).std()) / np.sqrt(3000)


def test_bad_input(key):
    with pytest.raises(ValueError, match="has no combinations; give values such as"):
        sweep({"heads": ()}, key=key)
    found = sweep({"heads": (1,)}, key=key, draws=10)
    with pytest.raises(ValueError, match="no column 'depth'; there are heads, kl"):
        found.column("depth")
