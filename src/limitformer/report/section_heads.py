"""The demo's section on heads: the law of finitely many, and what they predict."""

from __future__ import annotations

import numpy as np

from limitformer.plot import plot_density
from limitformer.report import html
from limitformer.report.demo import Demo
from limitformer.report.figures import drawing
from limitformer.report.heads import NOISE, PAIR, Heads
from limitformer.report.numbers import with_error

_COLOURS = ("#c23b22", "#d9822b", "#3a7d44", "#2b6cb0")
_SHOWN = 4


def heads(demo: Demo) -> html.Markup:
    """Densities, a table and predictive densities by number of heads."""
    found = demo.heads
    densities = drawing(
        lambda ax: _densities(found, ax),
        "heads-density",
        "Density of the network's output on a logarithmic scale: fewer heads have heavier tails.",
        (4.6, 3.6),
    )
    base = found.log_density
    rows = [
        (
            str(few.heads),
            with_error(few.patch.kurtosis.value[0], few.patch.kurtosis.sem[0]),
            f"{few.distance.kl.value:.1e}".replace("e-0", "e−"),
            with_error(few.law.kurtosis.value[0], few.law.kurtosis.sem[0], 1),
            with_error(few.posterior.log_evidence.value, few.posterior.log_evidence.sem, 1).replace(
                "-", "−"
            ),
            f"{100 * np.mean(np.sign(few.prediction.mean) == found.targets):.0f}",
            _paired(few.log_density(found.targets) - base),
        )
        for few in found.few
    ]
    right = f"{100 * np.mean(np.sign(found.mean) == found.targets):.0f}"
    rows.append(("∞", "0", "0", "0", f"{found.log_evidence:.1f}".replace("-", "−"), right, "0"))
    order = np.argsort(np.abs(found.mean) / np.sqrt(found.variance), kind="stable")[:_SHOWN]
    panels = [_panel(found, int(i)) for i in order]
    a, b = PAIR
    return html.section(
        "How many heads?",
        "Real transformers have eight heads or so, not infinitely many, and then the output is not "
        "Gaussian however wide the network is: its attention scores stay random, and all outputs "
        "share them. Given the scores the network is a Gaussian process with a kernel of its own; "
        "inference weighs those kernels by their evidence, exactly.",
        html.equation(
            "*K*′ | scores = *s*² / *H* ∑_{h} *A*_{h}(*x*) *K* *A*_{h}(*y*)ᵀ, \u2003 "
            "*p*(*f* | data) ∝ ∑_{scores} *p*(data | *K*′) *p*(*f* | data, *K*′)"
        ),
        html.gallery(
            [
                html.figure(
                    densities,
                    "One patch of an image after attention alone, in standard deviations: exact "
                    "mixtures over draws of the scores, with bands of two standard errors. Few "
                    "heads have heavy tails; the Gaussian is the limit.",
                ),
                html.figure(
                    drawing(
                        lambda ax: plot_density(
                            found.few[0].law, ax, label="1 head", colour=_COLOURS[0]
                        ),
                        "heads-network",
                        "Density of the whole network's output with one head: the Gaussian's.",
                        (4.6, 3.6),
                    ),
                    "The whole network's output at the same image, with one head.",
                ),
            ],
            330,
        ),
        html.table(
            (
                "heads",
                "kurtosis, patch",
                "KL, patch",
                "kurtosis, network",
                "log evidence",
                "right, %",
                "log density",
            ),
            rows,
            "Excess kurtosis and the distance from a Gaussian (in nats) of one patch after "
            "attention, and of the whole network's output: its skips, norms and mean pool hide "
            f"most of what few heads do. Then one block learns {a}s from {b}s with {found.train} "
            f"images and noise {NOISE}, and is asked about {len(found.targets)} others. Log "
            "density: of their targets, as a difference from infinitely many heads, ± its "
            "standard error.",
            "rrrrrrr",
        ),
        f"What the posterior says of the {len(panels)} held-out images that the limit is least "
        f"sure of (+1: {a}, −1: {b}); the dashed line is the truth.",
        html.gallery(panels, 170),
    )


def _densities(found: Heads, ax) -> None:
    for few, colour in zip(found.few, _COLOURS, strict=False):
        name = f"{few.heads} head{'s' if few.heads > 1 else ''}"
        last = few is found.few[-1]
        plot_density(few.patch, ax, label=name, colour=colour, gaussian=last)


def _panel(found: Heads, index: int) -> html.Markup:
    truth = found.targets[index]
    digit = PAIR[0] if truth > 0 else PAIR[1]
    y = np.linspace(-3, 3, 241)

    def plot(ax) -> None:
        for few, colour in zip(found.few, _COLOURS, strict=False):
            label = f"{few.heads}"
            ax.plot(y, few.prediction.at(index).density(y).value, color=colour, label=label, lw=1.1)
        v = found.variance[index]
        limit = np.exp(-0.5 * (y - found.mean[index]) ** 2 / v) / np.sqrt(2 * np.pi * v)
        ax.plot(y, limit, color=_COLOURS[3], label="∞", lw=1.1)
        ax.axvline(truth, linestyle="--", linewidth=0.9, color=ax.xaxis.label.get_color())
        ax.set_yticks([])
        ax.set_xlim(-3, 3)
        ax.legend(title="heads", fontsize="x-small", title_fontsize="x-small")

    picture = drawing(
        plot,
        f"heads-predict-{index}",
        f"Predictive densities of a held-out {digit} for several numbers of heads.",
        (2.4, 1.9),
    )
    return html.figure(picture, f"a handwritten {digit}")


def _paired(difference: np.ndarray) -> str:
    sem = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    return with_error(float(difference.mean()), sem).replace("-", "−")
