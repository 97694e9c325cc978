"""Classifiers: probabilities, both methods, and what is refused."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import limitformer as lf
from limitformer.sklearn import NNGPClassifier, NTKClassifier

X, LABELS = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"], object)[LABELS]
TRAIN, TEST = slice(0, None, 4), slice(1, None, 4)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (NNGPClassifier, "laplace"),
        (NTKClassifier, "regression"),
        pytest.param(NNGPClassifier, "regression", marks=pytest.mark.slow),
        pytest.param(NTKClassifier, "laplace", marks=pytest.mark.slow),
    ],
)
def test_iris(kind, method):
    model = kind(method=method).fit(X[TRAIN], NAMES[TRAIN])
    probabilities = model.predict_proba(X[TEST])
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert probabilities.shape == (38, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert (model.classes_[probabilities.argmax(axis=1)] == model.predict(X[TEST])).all()
    peer = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[TRAIN], NAMES[TRAIN])
    p = peer.score(X[TEST], NAMES[TEST])
    assert model.score(X[TEST], NAMES[TEST]) > p - 2 * np.sqrt(p * (1 - p) / 38)
    loss = log_loss(LABELS[TEST], probabilities)
    assert loss < 1.5 * log_loss(LABELS[TEST], peer.predict_proba(X[TEST]))
    assert hasattr(model, "log_marginal_likelihood_") == (method == "laplace")
    assert (model.noise_ == 0) == (method == "laplace")


def test_it_is_classify_on_standardised_inputs():
    model = NNGPClassifier(noise=0.1).fit(X[TRAIN], LABELS[TRAIN])
    x = (X - X[TRAIN].mean(axis=0)) / X[TRAIN].std(axis=0)
    direct = lf.gp.classify(model.network_, x[TRAIN], LABELS[TRAIN], noise=0.1)
    np.testing.assert_allclose(
        model.predict_proba(X[TEST]), direct.predict(x[TEST]).probabilities, rtol=1e-8, atol=1e-12
    )


@pytest.mark.slow
def test_a_fit_can_be_pickled_with_a_seed_and_random_scores():
    x = X[::10, :, None]
    net = lf.Serial(lf.Dense(), lf.Attention(), lf.MeanPool(), lf.Dense())
    model = NNGPClassifier(net, draws=64, random_state=3).fit(x, NAMES[::10])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    other = NNGPClassifier(net, draws=64, random_state=4).fit(x, NAMES[::10])
    assert not np.array_equal(other.predict_proba(x), model.predict_proba(x))


@pytest.mark.parametrize(
    ("parameters", "labels", "message"),
    [
        (
            {"method": "probit"},
            LABELS,
            "method='probit' is not known; choose one of regression, lap",
        ),
        ({"method": "laplace", "noise": 0.1}, LABELS, "whose likelihood has no noise; leave"),
        ({}, np.zeros(150), "a classifier needs at least two"),
        ({}, np.linspace(0, 1, 150), "Unknown label type: continuous"),
        ({}, np.eye(150)[:, :3], "y should be a 1d array"),
        ({}, np.where(LABELS == 0, np.nan, LABELS), "Input y contains NaN"),
    ],
)
def test_bad_parameters_and_labels(parameters, labels, message):
    with pytest.raises(ValueError, match=message):
        NNGPClassifier(**parameters).fit(X, labels)
