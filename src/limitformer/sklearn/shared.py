"""What all four estimators share: parameters, inputs, the network."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from ..layers.base import Layer
from .defaults import default_network
from .inputs import Reading, read


class Estimator(BaseEstimator):
    """Reads inputs, chooses the network; subclasses fit and predict."""

    network: Any
    noise: Any
    reshape: Any
    scale: bool
    dtype: Any
    draws: int
    random_state: Any
    memory: Any
    verbose: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _training(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Training inputs as the network sees them; sets `reading_` and `network_`."""
        self._check_parameters()
        values, mask, kind = read(self, X, self.reshape, self.network, reset=True)
        check_consistent_length(values, y)
        self.reading_ = Reading.of(values, mask, kind, self.scale)
        self.network_ = (
            default_network(kind, values.shape[1:]) if self.network is None else self.network
        )
        return self.reading_.scaled(values, mask), mask

    def _new(self, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """New inputs as the network sees them."""
        check_is_fitted(self)
        values, mask, kind = read(self, X, self.reshape, self.network, reset=False)
        self.reading_.check(values, kind, type(self).__name__)
        return self.reading_.scaled(values, mask), mask

    def _options(self) -> dict[str, Any]:
        """How kernels are computed."""
        key = None
        if self.random_state is not None:
            seed = self.random_state
            if not isinstance(seed, int | np.integer):
                seed = check_random_state(seed).randint(2**31 - 1)
            key = jax.random.key(int(seed))
        return {
            "dtype": self.dtype,
            "key": key,
            "draws": self.draws,
            "memory": self.memory,
            "progress": self.verbose,
        }

    def _check_parameters(self) -> None:
        if self.network is not None and not isinstance(self.network, Layer):
            raise TypeError(
                f"network={self.network!r} is not a network; give layers such as "
                "lf.Serial(lf.Dense(), lf.Relu(), lf.Dense()), or None for the default"
            )
        if isinstance(self.noise, str) and self.noise != "loo":
            raise ValueError(
                f'noise={self.noise!r}; choose "loo", a variance such as 0.1, or lf.relative(1e-3)'
            )
        if not isinstance(self.noise, str) and np.ndim(self.noise):
            raise ValueError(
                f"noise has shape {np.shape(self.noise)}; an estimator takes one number (for one "
                "variance per point use lf.condition)"
            )
