"""scikit-learn's own checks of an estimator, all of them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from limitformer.sklearn import NNGPClassifier, NNGPRegressor, NTKClassifier, NTKRegressor


# One of each kernel and of each task; kernels are compiled for every new shape of the checks.
@parametrize_with_checks([NNGPClassifier(), NTKRegressor()])
def test_check(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        NNGPRegressor(),
        NTKClassifier(),
        NNGPClassifier(method="laplace"),
        NNGPRegressor(reshape="columns", noise=0.1),
        NTKRegressor(kind="ntkgp"),
        NNGPRegressor(scale=False, noise=1.0),
    ]
)
def test_check_of_others(estimator, check):
    check(estimator)
