"""Classification: regression on classes with calibrated probabilities, or a softmax GP."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..gp import classify
from ..kernel.gram import DRAWS
from ..layers.base import choice
from .shared import Estimator


class _Classifier(ClassifierMixin, Estimator):
    """Fit and predict for both kernels."""

    kernel_kind = "nngp"
    method: str

    def fit(self, X: Any, y: Any):
        """Condition the network on training data.

        Args:
            X: table, sequences, images or token ids; see the class.
            y: `(n,)` classes of any type.

        Returns:
            The estimator.
        """
        y = validate_data(self, "no_validation", y)
        check_classification_targets(y)
        x, mask = self._training(X, y)
        self.posterior_ = classify(
            self.network_,
            x,
            y,
            method=self.method,
            kind=self.kernel_kind,
            noise=self.noise,
            x_mask=mask,
            **self._options(),
        )
        self.classes_ = self.posterior_.classes
        self.ridge_path_ = self.posterior_.path
        fit = self.posterior_.fit
        self.noise_ = 0.0 if self.method == "laplace" else float(fit.noise[0])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of new inputs, `(m,)`."""
        return self._predict(X).labels

    def predict_proba(self, X: Any) -> Float[np.ndarray, "m classes"]:
        """Probabilities of the classes in the order of `classes_`."""
        return self._predict(X).probabilities

    def _predict(self, X: Any) -> Any:
        x, mask = self._new(X)
        return self.posterior_.predict(x, mask)

    @property
    def log_marginal_likelihood_(self) -> float:
        """Laplace's approximation of the log marginal likelihood of the classes."""
        check_is_fitted(self)
        if self.method != "laplace":
            raise AttributeError(
                'regression on classes has no likelihood of the classes; use method="laplace", or '
                "posterior_.fit.loo_log_loss"
            )
        return float(self.posterior_.fit.log_evidence)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        choice("method", self.method, ("regression", "laplace"))
        if self.method == "laplace" and not isinstance(self.noise, str):
            raise ValueError(
                f'noise={self.noise!r} with method="laplace", whose likelihood has no noise; leave '
                'noise="loo", or use method="regression"'
            )


class NNGPClassifier(_Classifier):
    """Classes by an infinitely wide Bayesian network.

    Args:
        network: a `limitformer` network with a readout; None is `default_network` of the kind of
            input.
        method: "regression" on centred one-hot targets with probabilities calibrated by
            leave-one-out, or "laplace", a softmax Gaussian process whose amplitude is chosen by
            the calibrated leave-one-out loss (slower).
        noise: of the regression; see `NNGPRegressor`.
        reshape, scale, dtype, draws, random_state, memory, verbose: see `NNGPRegressor`.

    Attributes:
        classes_, network_, posterior_ (`lf.gp.Classifier`; its `fit` has leave-one-out scores),
        noise_, ridge_path_, log_marginal_likelihood_ (method="laplace"), reading_ (how inputs are
        scaled), n_features_in_, feature_names_in_.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = NNGPClassifier().fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.9, model.predict_proba(X[:1]).shape
        (True, (1, 3))
    """

    def __init__(
        self,
        network=None,
        *,
        method="regression",
        noise="loo",
        reshape=None,
        scale=True,
        dtype="float64",
        draws=DRAWS,
        random_state=None,
        memory=None,
        verbose=False,
    ):
        self.network = network
        self.method = method
        self.noise = noise
        self.reshape = reshape
        self.scale = scale
        self.dtype = dtype
        self.draws = draws
        self.random_state = random_state
        self.memory = memory
        self.verbose = verbose


class NTKClassifier(_Classifier):
    """Classes by the tangent kernel of an infinitely wide network, used as a prior covariance.

    The scores of method="regression" are those of the network trained by gradient flow on the
    squared loss, averaged over initialisations.

    Args, Attributes: as of `NNGPClassifier`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> NTKClassifier().fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
        True
    """

    kernel_kind = "ntk"

    def __init__(
        self,
        network=None,
        *,
        method="regression",
        noise="loo",
        reshape=None,
        scale=True,
        dtype="float64",
        draws=DRAWS,
        random_state=None,
        memory=None,
        verbose=False,
    ):
        self.network = network
        self.method = method
        self.noise = noise
        self.reshape = reshape
        self.scale = scale
        self.dtype = dtype
        self.draws = draws
        self.random_state = random_state
        self.memory = memory
        self.verbose = verbose
