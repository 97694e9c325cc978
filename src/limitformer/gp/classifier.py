"""Classify with an infinite network: regression on classes, or a softmax Gaussian process."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..kernel.gram import DRAWS
from ..layers.base import Layer, choice
from . import one_vs_rest
from .laplace_amplitude import fit_amplitude
from .noise import variances
from .ridge import RIDGES, RidgePath, ridge_path
from .training import KernelOptions, count, kernels, own_kernels, rows

_AT_ONCE = 512  # new inputs at a time
_AMPLITUDES = tuple(10.0**k for k in range(6))


@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A network conditioned on classes; made by `classify`.

    Attributes:
        net, x, x_mask: what was given.
        kind: "nngp" or "ntk", the kernel that is read.
        method: "regression" or "laplace".
        fit: the fit itself (`one_vs_rest.OneVsRest` or `laplace.Laplace`), with its leave-one-out
            scores.
        path: the ridges that were compared, None if the noise was given.
        options: how kernels are computed.
    """

    net: Layer
    x: Any
    x_mask: Any
    kind: str
    method: str
    fit: Any
    path: RidgePath | None
    options: KernelOptions

    @property
    def classes(self) -> np.ndarray:
        """The labels that columns of probabilities stand for."""
        return self.fit.classes

    def predict(self, x, x_mask=None):
        """Probabilities, labels and scores of new inputs.

        Returns:
            `one_vs_rest.ClassScores` or `laplace.ClassPosterior`; both have `probabilities`
            `(m, classes)` and `labels`.
        """
        parts = []
        for start in range(0, count(x), _AT_ONCE):
            new, mask = rows(x, x_mask, slice(start, start + _AT_ONCE))
            K = kernels(self.net, new, mask, self.x, self.x_mask, (self.kind,), self.options)
            own = own_kernels(self.net, new, mask, (self.kind,), self.options)
            parts.append(
                self.fit.predict(
                    np.asarray(K[self.kind].value, float), np.asarray(own[self.kind], float)
                )
            )
        return _joined(parts)


def classify(
    net: Layer,
    x,
    labels,
    *,
    method: str = "regression",
    kind: str = "nngp",
    noise: Any = "loo",
    x_mask=None,
    dtype=None,
    key=None,
    draws: int = DRAWS,
    memory=None,
    progress=False,
) -> Classifier:
    """Condition a network on classes.

    method="regression": one-vs-rest regression on centred one-hot targets, the literature's way,
    with probabilities calibrated by leave-one-out. method="laplace": a softmax Gaussian process by
    Laplace's approximation, its amplitude chosen by calibrated leave-one-out loss (the evidence of
    this approximation is badly under-confident: docs/results/classification.md).

    Args:
        net, x, x_mask: a network with a readout and training inputs, as for `net.kernel`.
        labels: `(n,)` of any type.
        kind: "nngp" or "ntk".
        noise: for the regression: "loo" (the ridge with the smallest leave-one-out error of
            `ridge.RIDGES`), a variance, one per input, or `lf.relative(...)`.
        dtype, key, draws, memory, progress: as for `net.kernel`.

    Example:
        >>> import limitformer as lf
        >>> x = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
        >>> net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
        >>> lf.classify(net, x, ["up", "up", "right", "right"]).predict(x[:1]).labels.tolist()
        ['up']
    """
    choice("method", method, ("regression", "laplace"))
    choice("kind", kind, ("nngp", "ntk"))
    options = KernelOptions(dtype, key, draws, memory)
    names, index = one_vs_rest.encode(labels)
    if len(index) != count(x):
        raise ValueError(f"there are {count(x)} inputs and {len(index)} labels; give one each")
    K = kernels(net, x, x_mask, None, None, (kind,), options, progress)[kind].value
    K = np.asarray(K, dtype=float)
    if len(K) != len(index):
        raise ValueError("classify needs a network with a readout, such as lf.MeanPool()")
    path = None
    if method == "laplace":
        fit: Any = fit_amplitude(K, np.asarray(labels), _AMPLITUDES, criterion="calibrated")[0]
    else:
        if isinstance(noise, str):
            choice("noise", noise, ("loo",))
            centred = np.eye(len(names))[index]
            path = ridge_path(K, centred - centred.mean(axis=0), RIDGES)
            added: Any = path.noise
        else:
            added = variances(noise, np.diagonal(K))
        fit = one_vs_rest.fit(K, np.asarray(labels), added)
    return Classifier(net, x, x_mask, kind, method, fit, path, options)


def _joined(parts):
    """Predictions of several blocks of inputs as one."""
    first = parts[0]
    if len(parts) == 1:
        return first

    def join(name: str):
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], np.ndarray) and name != "classes":
            return np.concatenate(values)
        return sum(values) if isinstance(values[0], int) else values[0]

    return type(first)(**{f.name: join(f.name) for f in dataclasses.fields(first)})
