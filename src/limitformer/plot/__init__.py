"""Plots: `plot_x(result, ax=None) -> Axes`, one function per kind of result.

matplotlib is imported by the first plot, and comes with `pip install "limitformer[plot]"`.
"""

from limitformer.plot.calibration import plot_reliability
from limitformer.plot.classification import plot_confusion, plot_refusal
from limitformer.plot.convergence import plot_convergence
from limitformer.plot.gram import plot_gram
from limitformer.plot.learning_curve import plot_learning_curve
from limitformer.plot.ridge import plot_ridge_path
from limitformer.plot.spectrum import plot_spectrum

__all__ = [
    "plot_confusion",
    "plot_convergence",
    "plot_gram",
    "plot_learning_curve",
    "plot_refusal",
    "plot_reliability",
    "plot_ridge_path",
    "plot_spectrum",
]
