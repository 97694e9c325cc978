"""Classes through networks: the same as the Gram functions, in blocks, with clear errors."""

import numpy as np
import pytest

import limitformer as lf
from limitformer.gp import one_vs_rest

rng = np.random.default_rng(11)
NET = lf.Serial(lf.Dense(1.2, 0.3), lf.Relu(), lf.MeanPool(), lf.Dense())
X = rng.normal(size=(30, 3, 2))
LABELS = np.where(X.mean(axis=(1, 2)) > 0, "up", "down")
NEW = rng.normal(size=(7, 3, 2))


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_regression(kind, monkeypatch):
    monkeypatch.setattr("limitformer.gp.classifier._AT_ONCE", 4)
    model = lf.classify(NET, X, LABELS, kind=kind, noise=0.1)
    K, new, own = (getattr(NET.kernel(*a), kind) for a in ((X,), (NEW, X), (NEW,)))
    want = one_vs_rest.fit(K, LABELS, 0.1).predict(new, np.diagonal(own))
    found = model.predict(NEW)
    np.testing.assert_allclose(found.probabilities, want.probabilities, atol=1e-10)
    assert found.labels.tolist() == want.labels.tolist()
    chosen = lf.classify(NET, X, LABELS, kind=kind)
    assert chosen.path.noise == pytest.approx(chosen.fit.noise[0])
    assert (chosen.predict(X).labels == LABELS).mean() > 0.9


def test_laplace():
    model = lf.classify(NET, X, LABELS, method="laplace")
    found = model.predict(NEW)
    np.testing.assert_allclose(found.probabilities.sum(1), 1)
    assert model.fit.converged
    assert model.classes.tolist() == ["down", "up"]


def test_bad_input():
    with pytest.raises(ValueError, match=r"class"):
        lf.classify(NET, X, ["same"] * 30)
    with pytest.raises(ValueError, match="30 inputs and 29 labels"):
        lf.classify(NET, X, LABELS[:29])
    with pytest.raises(ValueError, match="needs a network with a readout"):
        lf.classify(lf.Dense(), X, LABELS)
