"""Plots: `plot_x(result, ax=None) -> Axes`, one function per kind of result.

matplotlib is imported by the first plot, and comes with `pip install "limitformer[plot]"`.
"""

from limitformer.plot.classification import plot_confusion, plot_refusal
from limitformer.plot.convergence import plot_convergence
from limitformer.plot.gram import plot_gram

__all__ = ["plot_confusion", "plot_convergence", "plot_gram", "plot_refusal"]
