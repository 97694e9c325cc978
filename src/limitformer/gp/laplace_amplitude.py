"""Choose the amplitude of a Laplace classifier's kernel, and calibrate its probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Shaped
from scipy.optimize import minimize_scalar

from .class_integrals import integrate, true_log_loss
from .laplace import Laplace
from .laplace_mode import fit

AMPLITUDES = tuple(10.0 ** (k / 2) for k in range(-2, 7))


def calibrate(model: Laplace, K: Float[np.ndarray, "n n"]) -> Laplace:
    """The same fit with the latent deviations scaled so that left-out labels are most probable.

        calibration = argmin_g  - sum_i log p(label_i | left out, g deviation) + (log g)^2 / 2

    Laplace's Gaussian is too wide where the kernel's amplitude is large, and its probabilities too
    near to uniform; g corrects that with training labels only. The last term keeps g away from 0
    where every left-out prediction is right, and weighs less than one input.

    Args:
        model: the fit.
        K: the kernel that was fitted (before the amplitude).

    Returns:
        The fit with `calibration` set; its mode and evidence are unchanged.

    Example:
        >>> x = np.linspace(-2, 2, 8)
        >>> k = np.exp(-0.5 * (x[:, None] - x) ** 2)
        >>> model = fit(k, x > 0, amplitude=100.0)
        >>> better = calibrate(model, k)
        >>> better.leave_one_out(k).log_loss < model.leave_one_out(k).log_loss
        True
    """
    plain = dataclasses.replace(model, calibration=1.0)
    left = plain.leave_one_out(K)

    def objective(u: float) -> float:
        covariance = np.exp(2 * u) * left.covariance
        probabilities = integrate(left.mean, covariance, 128, 2, 0)[0]
        return float(true_log_loss(probabilities, model.index).sum()) + u**2 / 2

    found: Any = minimize_scalar(objective, bounds=(-6.0, 6.0), method="bounded")
    better = found.fun < objective(0.0)
    return dataclasses.replace(model, calibration=float(np.exp(found.x)) if better else 1.0)


def fit_amplitude(
    K: Float[np.ndarray, "n n"],
    labels: Shaped[np.ndarray, " n"],
    amplitudes: Sequence[float] = AMPLITUDES,
    *,
    criterion: Literal["evidence", "left_out", "calibrated"] = "evidence",
    classes: Any = None,
    tolerance: float = 1e-9,
    max_steps: int = 100,
) -> tuple[Laplace, Float[np.ndarray, " amplitudes"]]:
    """The best fit among factors on the kernel.

    Args:
        K: kernel of the training inputs.
        labels: the class of each.
        amplitudes: candidates, relative to the mean diagonal of K.
        criterion: `"evidence"`; `"left_out"`, the mean leave-one-out log probability of the true
            class, which looks at the predictions themselves; or `"calibrated"`, the same after
            `calibrate`, which the fit that comes back then carries.
        classes, tolerance, max_steps: of `fit`.

    Returns:
        The best fit (its `amplitude` is absolute, and twice that of `fit` for two classes, see
        there), and the criterion of every candidate, larger is better.

    Example:
        >>> x = np.linspace(-2, 2, 8)
        >>> k = np.exp(-0.5 * (x[:, None] - x) ** 2)
        >>> best, evidence = fit_amplitude(k, x > 0, [0.01, 1.0, 100.0])
        >>> bool(best.log_evidence == evidence.max() == evidence[2])
        True
    """
    if not len(amplitudes):
        raise ValueError("amplitudes is empty; give at least one candidate.")
    unit = np.trace(K) / len(K)
    scores: list[float] = []
    best: Any = None  # only one fit is kept: each holds a Gram per class
    for a in amplitudes:
        options = {"tolerance": tolerance, "max_steps": max_steps, "classes": classes}
        model = fit(K, labels, amplitude=float(a / unit), **options)
        if criterion == "calibrated":
            model = calibrate(model, K)
        by_evidence = criterion == "evidence"
        score = model.log_evidence if by_evidence else -model.leave_one_out(K).log_loss
        if not scores or score > max(scores):
            best = model
        scores.append(score)
    return best, np.array(scores)
