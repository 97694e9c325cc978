"""The demo's section on softmax attention: kernels with standard errors."""

from __future__ import annotations

import numpy as np

from limitformer.plot import plot_gram
from limitformer.report import html
from limitformer.report.convergence import KINDS
from limitformer.report.demo import Demo
from limitformer.report.figures import drawing
from limitformer.report.numbers import KERNELS, with_error


def softmax(demo: Demo) -> html.Markup:
    """The kernel of softmax attention at scale "sqrt", with its errors."""
    block = demo.softmax
    labels, kernel = block.labels, block.kernel

    def picture(values: np.ndarray, name: str, label: str, caption: str, colours: str):
        image = drawing(
            lambda ax: plot_gram(values, ax, labels=labels, label=label, colours=colours),
            f"softmax-{name}",
            caption,
            (4.2, 3.5),
        )
        return html.figure(image, caption)

    rows = []
    for kind in KINDS:
        value, sem = (np.asarray(getattr(kernel, f"{kind}{end}"), float) for end in ("", "_sem"))
        relative = block.relative(kind)
        rows.append(
            (
                KERNELS[kind],
                with_error(value[0, 0], sem[0, 0]),
                with_error(value[0, 1], sem[0, 1]),
                f"{100 * np.median(relative):.2f} %",
                f"{100 * relative.max():.2f} %",
            )
        )
    a, b = labels[0], labels[1]
    return html.section(
        "Softmax attention",
        "Softmax of scores at the scale 1/√*d*, as in real transformers, keeps its scores random "
        "in the limit, and no closed form of the average over them is known. The kernel is then "
        f"an average over {kernel.draws} draws of the scores, and every entry comes with its "
        "standard error.",
        html.equation(
            "*K*′_{ab} = *s*² ∑_{cd} *K*_{cd} E[ *A*_{ac}(*x*) *A*_{bd}(*y*) ], \u2003 "
            "*A* = softmax(*G*), \u2003 Cov(*G*_{ac}, *G*_{bd}) = *s*_{QK}² *K*_{ab} *K*_{cd}"
        ),
        html.gallery(
            [
                picture(
                    np.asarray(kernel.nngp, float),
                    "value",
                    "NNGP",
                    f"NNGP of the same network with softmax attention, on {len(labels)} images.",
                    "viridis",
                ),
                picture(
                    100 * block.relative("nngp"),
                    "error",
                    "standard error (%)",
                    "Standard error of each entry, in per cent of its value.",
                    "magma",
                ),
            ],
            330,
        ),
        html.table(
            ("kernel", f"digits {a}, {a}", f"digits {a}, {b}", "median error", "largest error"),
            rows,
            f"Standard errors come from {kernel.replicates} independent replicates. The draws have "
            "a fixed key, so the kernel is the same every time.",
            "lrrrr",
        ),
    )
