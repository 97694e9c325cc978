"""scikit-learn estimators: fit and predict with infinitely wide networks.

`from limitformer.sklearn import NNGPClassifier`. They hold no mathematics: inputs are checked and
scaled, a default network is chosen by the kind of input, and `lf.condition` and `lf.classify` do
the rest.
"""

from ..extras import optional

optional("sklearn", "sklearn")

from .classifier import NNGPClassifier, NTKClassifier  # noqa: E402
from .defaults import default_network  # noqa: E402
from .regressor import NNGPRegressor, NTKRegressor  # noqa: E402

__all__ = [
    "NNGPClassifier",
    "NNGPRegressor",
    "NTKClassifier",
    "NTKRegressor",
    "default_network",
]
