"""Learned hyper-parameters: the gradient against differences, and a truth that is found."""

import jax
import numpy as np
import pytest

import limitformer as lf
from limitformer.gp.hyper import GramGradient, _free, _objective, hyper_parameters

rng = np.random.default_rng(5)
NET = lf.Serial(
    lf.Dense(1.2, 0.3),
    lf.Relu(),
    lf.Attention(scale="linear", qk_std=0.5),
    lf.MeanPool(),
    lf.Dense(),
)
X, Y = rng.normal(size=(9, 3, 2)), rng.normal(size=(9, 1))


@pytest.mark.parametrize(("objective", "field"), [("evidence", "nngp"), ("loo", "ntk")])
def test_gradient(objective, field, monkeypatch):
    """Tiles of 4 on 9 inputs: edges, diagonal and off-diagonal tiles."""
    monkeypatch.setattr("limitformer.gp.hyper._LARGEST_TILE", 4)
    mask = np.arange(3) < rng.integers(1, 4, size=(9, 1))
    names, values, rebuild = _free(NET, ("*_std",))
    assert len(names) == 5  # b_std of the last layer is zero

    def value(values):
        K = getattr(rebuild(list(values)).kernel(X, x_mask=mask, kinds=(field,)), field)
        return _objective(K, 0.1, Y, objective)

    _, W, _ = value(values)
    slopes = GramGradient(rebuild, field)
    found = slopes(values, X, mask, W)
    compiled = slopes._tile._cache_size()
    slopes(np.array(values) * 1.1, X, mask, W)
    assert slopes._tile._cache_size() == compiled  # once, whatever the values
    step = 1e-5
    for i in range(len(values)):
        up, down = (np.array(values) for _ in range(2))
        up[i] += step
        down[i] -= step
        difference = (value(up)[0] - value(down)[0]) / (2 * step)
        np.testing.assert_allclose(found[i], difference, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_a_truth_is_found(key):
    """Targets from a known prior: the learned evidence beats the truth's, the noise is found."""
    x = rng.normal(size=(80, 2))
    truth = lf.Serial(lf.Dense(2.5, 0.5), lf.Erf(), lf.Dense(1.5))
    K = truth.kernel(x).nngp
    y = np.linalg.cholesky(K + 0.01 * np.eye(80)) @ rng.normal(size=(80, 10))
    start = lf.Serial(lf.Dense(1.0, 1.0), lf.Erf(), lf.Dense(1.0))
    seen = []
    best = lf.learn(start, x, y, noise=0.1, restarts=1, key=key, progress=lambda *p: seen.append(p))
    true = lf.condition(truth, x, y, noise=0.01).log_evidence
    assert best.value > true > best.start
    assert len(best.values) == 2
    assert 0.008 < best.noise < 0.0125
    again = lf.condition(best.net, x, y, noise=best.noise)
    np.testing.assert_allclose(again.log_evidence, best.value, rtol=1e-6)
    assert seen
    assert "noise" in str(best)
    loo = lf.learn(start, x, y, noise=0.1, objective="loo", free=("layers[0].w_std",), steps=5)
    assert list(loo.parameters) == [".layers[0].w_std"]
    assert loo.value > loo.start


def test_bad_input():
    with pytest.raises(ValueError, match=r"matches no hyper-parameter.*w_std"):
        lf.learn(NET, X, Y, free=("nothing",))
    with pytest.raises(ValueError, match="give key="):
        lf.learn(NET, X, Y, restarts=2)
    with pytest.raises(ValueError, match="needs a network with a readout"):
        lf.learn(lf.Dense(), X, Y)
    with pytest.raises(ValueError, match="positive noise"):
        lf.learn(NET, X, Y, noise=0.0)
    assert hyper_parameters(jax.tree.map(lambda v: np.float32(v), lf.Dense(2.0)))[".w_std"] == 2.0
