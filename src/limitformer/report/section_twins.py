"""The demo's section on finite twins: convergence in width."""

from __future__ import annotations

import numpy as np

from limitformer.plot import plot_convergence, plot_gram
from limitformer.report import html
from limitformer.report.convergence import KINDS, Width
from limitformer.report.demo import Demo
from limitformer.report.figures import drawing
from limitformer.report.numbers import KERNELS, with_error

_FULL_COLOUR = 0.4  # relative deviation of a twin that gets the last colour


def twins(demo: Demo) -> html.Markup:
    """Kernels of finite networks against the limit."""
    result, settings = demo.convergence, demo.settings
    chart = drawing(
        lambda ax: plot_convergence(result, ax),
        "convergence",
        "Relative error of finite networks' kernels against the width, on logarithmic axes, "
        "falling along the line 1 / square root of the width.",
        (5.0, 3.7),
    )
    labels = demo.softmax.labels
    limit = result.limit["nngp"]

    def panel(w: Width) -> html.Markup:
        error = 100 * np.linalg.norm(w.example["nngp"] - limit) / np.linalg.norm(limit)
        image = drawing(
            lambda ax: plot_gram(
                w.example["nngp"] / limit - 1,
                ax,
                labels=labels,
                limits=(-_FULL_COLOUR, _FULL_COLOUR),
                colours="RdBu_r",
            ),
            f"twin-{w.width}",
            f"Deviation of the NNGP of one network of width {w.width} from the limit, on "
            f"{len(labels)} images.",
            (2.5, 2.5),
        )
        return html.figure(image, f"width {w.width}: {error:.0f} % off")

    panels = [panel(w) for w in _spread(result.widths, 4)]
    rows = [
        (
            str(w.width),
            w.heads,
            len(w.errors["nngp"]),
            *(with_error(100 * w.mean(kind), 100 * w.sem(kind)) for kind in KINDS),
        )
        for w in result.widths
    ]
    slopes = " and ".join(
        f"{fit.slope:.2f} ± {fit.slope_sem:.2f} ({KERNELS[kind]})".replace("-", "−")
        for kind in KINDS
        for fit in (result.slope(kind),)
    )
    return html.section(
        "Finite twins",
        "The same description also gives finite networks. Each one has a kernel of its own, which "
        "depends on its random weights; as it gets wider it approaches the kernel above, with an "
        "error that falls as 1/√width, as a mean of many independent channels does.",
        html.equation(
            "‖*K*_{width} − *K*‖ / ‖*K*‖ ∝ 1/√width, \u2003"
            "*K*_{width}(*x*, *y*) = 1/width ∑_{c} *h*_{c}(*x*) *h*_{c}(*y*)"
        ),
        html.gallery(
            [
                html.figure(
                    chart,
                    f"Error of the kernels on {len(labels)} images, one per digit, in the "
                    "Frobenius norm. Faint points: single networks. Points with bars: their means "
                    f"with standard errors. Fitted slopes: {slopes}; theory: −0.5.",
                ),
                html.table(
                    ("width", "heads", "networks", "NNGP error, %", "NTK error, %"),
                    rows,
                    "Relative error of one network, mean ± standard error over independent "
                    f"networks (seeds 0, 1, … folded into key {settings.twin_seed}, the same at "
                    f"every width). A head has {settings.head_width} channels, so that heads × "
                    "channels = width, as in real transformers.",
                    "rrrrr",
                ),
            ],
            420,
        ),
        "How far the NNGP of one network is from the limit, image pair by image pair: the network "
        "with the median error of each width. Red entries are too large, blue ones too small, in "
        f"full colour at {100 * _FULL_COLOUR:.0f} %.",
        html.gallery(panels, 150),
    )


def _spread(items: tuple, count: int) -> list:
    """At most `count` items, evenly spread, the first and the last among them."""
    index = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[i] for i in index]
