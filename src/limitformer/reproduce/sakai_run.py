"""One call per figure of Sakai 2025."""

from __future__ import annotations

from collections.abc import Callable

from .sakai import FIGURES, RUNS, SEEDS, TOKENS, outputs_figure, scores_figure
from .sakai_tables import SakaiFigure
from .tables import machine

NAMES = ("1", "2a", "2b", "3", "5")

_NOTES = {
    "1": (
        "One sample of the limit serves all widths of a seed, as in the authors' code; its errors "
        "are therefore shared by the rows.",
        "x_i = W_i h share |h|^2, which is part of the law at finite width and counted in.",
        "The last width is not in the paper; it costs no more, and the second moment arrives.",
    ),
    "2a": ("Width 256, one head: the score is that of any head.",),
    "2b": ("Width 256. The paper prints no KL for this figure; the numbers are ours.",),
    "3": (
        "Heads are added without 1/sqrt(H), as in the authors' code: y has variance H times that "
        "of figure 1. KL and relative standard deviations do not depend on it.",
        "The paper's width is n = 64 H: 64, 256 and 1024. It prints curves, not numbers.",
    ),
    "5": (
        "The authors' code uses 100,000 networks here; the table says how many this run used.",
        "On these inputs the limit is close to Gaussian, and the second moment of finite layers "
        "still shows the fluctuation of |h|^2 and of the Gram matrix, which vanishes as 1/sqrt(n).",
    ),
}


def sakai(
    name: str, *, runs: int = RUNS, seeds: int = SEEDS, report: Callable | None = None
) -> SakaiFigure:
    """Figure 1, 2a, 2b, 3 or 5, at the paper's settings unless told otherwise.

    Args:
        name: of the figure.
        runs: networks of every point and seed.
        seeds: repetitions.
        report: called with a line of text now and then.

    Raises:
        ValueError: a figure that is not one of these; fewer than 100 runs, or no seeds.
    """
    if name not in NAMES:
        raise ValueError(f"figure {name!r} is not one of {', '.join(NAMES)}")
    if runs < 100 or seeds < 1:
        raise ValueError(f"runs={runs}, seeds={seeds}; use at least 100 runs and 1 seed")
    if name == "2a":
        title = "figure 2(a): scores at width 256"
        points, seconds = scores_figure(runs=runs, seeds=seeds)
    else:
        title = FIGURES[name][0]
        points, seconds = outputs_figure(name, runs=runs, seeds=seeds, report=report)
    settings = {
        "networks of every point and seed": f"{runs:,}",
        "seeds": seeds,
        "tokens": TOKENS,
        "sampler": "limitformer.heads.one_token, exact in law",
        "machine": machine(),
    }
    return SakaiFigure(name, title, points, settings, _NOTES[name], seconds)
