"""Inference with kernels: conditioning, evidence, ridges, training dynamics, classification."""

from .calibration import (
    CalibrationError,
    Coverage,
    Reliability,
    Score,
    accuracy,
    brier,
    calibration_error,
    coverage,
    debiased_calibration_error,
    gaussian_log_loss,
    log_loss,
    reliability,
)
from .classifier import Classifier, classify
from .cross_entropy import flow as cross_entropy_flow
from .eigenlearning import population_error, subset_error
from .held_out import held_out_error
from .hyper import Learned, hyper_parameters, learn
from .learning_curve import learning_curve
from .noise import Relative, relative
from .posterior import Posterior, condition
from .prediction import Prediction
from .ridge import RidgePath, cross_validate, ridge_path
from .solve import PrecisionWarning
from .spectrum import spectrum
from .store import load_posterior

__all__ = [
    "CalibrationError",
    "Classifier",
    "Coverage",
    "Learned",
    "Posterior",
    "PrecisionWarning",
    "Prediction",
    "Relative",
    "Reliability",
    "RidgePath",
    "Score",
    "accuracy",
    "brier",
    "calibration_error",
    "classify",
    "condition",
    "coverage",
    "cross_entropy_flow",
    "cross_validate",
    "debiased_calibration_error",
    "gaussian_log_loss",
    "held_out_error",
    "hyper_parameters",
    "learn",
    "learning_curve",
    "load_posterior",
    "log_loss",
    "population_error",
    "relative",
    "reliability",
    "ridge_path",
    "spectrum",
    "subset_error",
]
