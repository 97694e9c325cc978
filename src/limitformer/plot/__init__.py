"""Plots: `plot_x(result, ax=None) -> Axes`, one function per kind of result.

matplotlib is imported by the first plot, and comes with `pip install "limitformer[plot]"`.
"""

from limitformer.plot.architecture import plot_architecture
from limitformer.plot.calibration import plot_reliability
from limitformer.plot.classification import plot_confusion, plot_refusal
from limitformer.plot.convergence import plot_convergence
from limitformer.plot.density import plot_density
from limitformer.plot.depth import (
    plot_correlation_map,
    plot_decay,
    plot_depth_profile,
    plot_phase_diagram,
)
from limitformer.plot.gram import plot_gram
from limitformer.plot.learning_curve import plot_learning_curve
from limitformer.plot.ridge import plot_ridge_path
from limitformer.plot.spectrum import plot_spectrum
from limitformer.plot.sweep import plot_phase_map, plot_sweep
from limitformer.plot.to_limit import plot_distance_to_limit, plot_second_moment

__all__ = [
    "plot_architecture",
    "plot_confusion",
    "plot_convergence",
    "plot_correlation_map",
    "plot_decay",
    "plot_density",
    "plot_depth_profile",
    "plot_distance_to_limit",
    "plot_gram",
    "plot_learning_curve",
    "plot_phase_diagram",
    "plot_phase_map",
    "plot_refusal",
    "plot_reliability",
    "plot_ridge_path",
    "plot_second_moment",
    "plot_spectrum",
    "plot_sweep",
]
