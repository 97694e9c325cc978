"""Regression: the posterior of an infinitely wide network, or the trained network's law."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..gp import condition, relative, ridge_path
from ..gp.solve import warn_if_imprecise
from ..kernel.gram import DRAWS
from ..layers.base import choice
from .shared import Estimator


class _Regressor(MultiOutputMixin, RegressorMixin, Estimator):
    """Fit and predict for both kernels."""

    kind = "nngp"
    t: Any = None

    def fit(self, X: Any, y: Any):
        """Condition the network on training data.

        Args:
            X: table, sequences, images or token ids; see the class.
            y: `(n,)` or `(n, outputs)`.

        Returns:
            The estimator.
        """
        y = validate_data(self, "no_validation", y, multi_output=True, y_numeric=True)
        x, mask = self._training(X, y)
        y = np.asarray(y, float)
        self.target_mean_ = y.mean(axis=0) if self.scale else np.zeros(y.shape[1:])
        self.target_scale_ = _spread(y.std(axis=0)) if self.scale else np.ones(y.shape[1:])
        targets = (y - self.target_mean_) / self.target_scale_
        choosing = isinstance(self.noise, str)
        post = condition(
            self.network_,
            x,
            targets,
            noise=relative(1.0) if choosing else self.noise,
            kind=self.kind,
            x_mask=mask,
            **self._options(),
        )
        self.ridge_path_ = ridge_path(post.gram.value, targets) if choosing else None
        if self.ridge_path_ is not None:
            post = dataclasses.replace(post, noise=np.full(len(y), self.ridge_path_.noise))
            warn_if_imprecise(post.gram.value, post.noise)
        if self.scale and self.kind != "ntk":
            loo = post.leave_one_out
            z2 = np.mean(loo.residual**2 / loo.variance[:, None], axis=0)
            amplitude = _spread(np.sqrt(z2)).reshape(y.shape[1:])
            self.target_scale_ = self.target_scale_ * amplitude
            post = dataclasses.replace(post, targets=targets / amplitude)
        self.posterior_ = post
        self.noise_ = float(post.noise[0])
        return self

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        observed: bool = False,
    ) -> Any:
        """Mean of the outputs, and how sure it is.

        Args:
            X: new inputs.
            return_std: also the standard deviation, in the shape of the mean.
            return_cov: also the covariance, `(m, m)` or `(m, m, outputs)`.
            observed: deviations of a new observation, noise included, not of the function alone.

        Returns:
            The mean, or the mean and its deviation or covariance, in the units of `y`.
        """
        if return_std and return_cov:
            raise ValueError("choose one of return_std=True and return_cov=True")
        if observed and self.kind == "ntk":
            raise ValueError(
                "observed=True: the noise of a trained ensemble is weight decay, not a variance "
                'of observations; use kind="ntkgp", or an NNGPRegressor'
            )
        x, mask = self._new(X)
        cov = "full" if return_cov else "diag" if return_std else None
        found = self.posterior_.predict(x, t=self.t, cov=cov, observed=observed, x_mask=mask)
        mean = self.target_mean_ + self.target_scale_ * found.mean
        if return_cov:
            return mean, _times(found.cov, np.square(self.target_scale_))
        if return_std:
            return mean, _times(found.std, self.target_scale_)
        return mean

    @property
    def log_marginal_likelihood_(self) -> float:
        """Log marginal likelihood of the training targets, in their own units."""
        check_is_fitted(self)
        if self.kind == "ntk":
            raise AttributeError(
                'a trained ensemble has no marginal likelihood; use kind="ntkgp", or an '
                "NNGPRegressor"
            )
        n = len(self.posterior_.targets)
        outputs = self.posterior_.y.shape[1]
        change = n * np.log(np.broadcast_to(self.target_scale_, (outputs,))).sum()
        return float(self.posterior_.log_evidence - change)


class NNGPRegressor(_Regressor):
    """The posterior of an infinitely wide Bayesian network.

        y = mean + scale (f(x) + noise),    f ~ GP(0, K),    K the network's NNGP kernel

    Inputs are standardised and targets centred; `scale` makes the squared leave-one-out z-scores 1
    on average, so that the deviations fit the training data.

    Args:
        network: a `limitformer` network with a readout; None is `default_network` of the kind of
            input.
        noise: variance added to the kernel's diagonal: "loo" takes, of
            `limitformer.gp.ridge.RIDGES`, that with the smallest leave-one-out error; or a number,
            or `lf.relative(...)` of the mean diagonal.
        reshape: tables only: None (rows), "columns" (each column a token), (tokens, features), or
            (height, width, channels).
        scale: False takes inputs and targets as they are.
        dtype: of the kernels; "float32" is faster and less exact.
        draws, random_state: of softmax attention at scale "sqrt", which is averaged over draws;
            None is the library's fixed key.
        memory: budget of kernel computations, in bytes or as "2GiB".
        verbose: show progress with the time left.

    Attributes:
        network_, posterior_ (`lf.Posterior` of the scaled data), noise_, ridge_path_ (None unless
        noise="loo"), log_marginal_likelihood_, target_mean_, target_scale_, reading_ (how inputs
        are scaled), n_features_in_, feature_names_in_.

    Example:
        >>> x = np.linspace(-2, 2, 20)[:, None]
        >>> model = NNGPRegressor().fit(x, np.sin(2 * x[:, 0]))
        >>> mean, std = model.predict([[0.5], [9.0]], return_std=True)
        >>> round(float(mean[0]), 1), bool(std[1] > 10 * std[0])
        (0.8, True)
    """

    def __init__(
        self,
        network=None,
        *,
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
        self.noise = noise
        self.reshape = reshape
        self.scale = scale
        self.dtype = dtype
        self.draws = draws
        self.random_state = random_state
        self.memory = memory
        self.verbose = verbose


class NTKRegressor(_Regressor):
    """An infinitely wide network trained by gradient flow on the squared loss.

    Mean and covariance over initialisations; targets are standardised. The noise is the pull of
    weight decay towards the start.

    Args:
        network, noise, reshape, scale, dtype, draws, random_state, memory, verbose: as for
            `NNGPRegressor`.
        kind: "ntk", the trained ensemble, or "ntkgp", the tangent kernel as a prior, whose
            deviations are scaled as those of `NNGPRegressor` and which has a marginal likelihood.
        t: training time; None is the end. kind="ntk" only.

    Attributes: as of `NNGPRegressor`.

    Example:
        >>> x = np.linspace(-2, 2, 20)[:, None]
        >>> early, late = (NTKRegressor(t=t).fit(x, x[:, 0] ** 2) for t in (0.01, None))
        >>> early.score(x, x[:, 0] ** 2) < late.score(x, x[:, 0] ** 2)
        True
    """

    def __init__(
        self,
        network=None,
        *,
        noise="loo",
        kind="ntk",
        t=None,
        reshape=None,
        scale=True,
        dtype="float64",
        draws=DRAWS,
        random_state=None,
        memory=None,
        verbose=False,
    ):
        self.network = network
        self.noise = noise
        self.kind = kind
        self.t = t
        self.reshape = reshape
        self.scale = scale
        self.dtype = dtype
        self.draws = draws
        self.random_state = random_state
        self.memory = memory
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        choice("kind", self.kind, ("ntk", "ntkgp"))
        if self.t is not None and (np.ndim(self.t) or self.kind != "ntk"):
            raise ValueError(f't={self.t!r}: give one training time, with kind="ntk"')


def _times(values: Any, scale: Any) -> np.ndarray:
    """Values that all outputs share, in the units of each (the last axis, if there are several)."""
    return values[..., None] * scale if np.ndim(scale) else values * scale


def _spread(scale: Any) -> Any:
    """Scales to divide by; what is constant is left as it is."""
    return np.where(scale > 0, scale, 1.0)
