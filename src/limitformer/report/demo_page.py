"""The demo's results as one HTML page."""

from __future__ import annotations

import datetime
from importlib import metadata

import numpy as np

from limitformer.plot import plot_gram
from limitformer.report import html
from limitformer.report.convergence import KINDS
from limitformer.report.demo import Demo
from limitformer.report.figures import drawing
from limitformer.report.layer_table import layer_rows
from limitformer.report.numbers import KERNELS
from limitformer.report.provenance import provenance
from limitformer.report.section_classes import classification, doubt
from limitformer.report.section_depth import depth
from limitformer.report.section_heads import heads
from limitformer.report.section_model import real_model
from limitformer.report.section_softmax import softmax
from limitformer.report.section_twins import twins

GENERATOR = "limitformer demo"
_PER_CLASS = 30  # images of each class in the picture of the kernel


def demo_page(demo: Demo, command: str, date: datetime.datetime) -> str:
    """The report.

    Args:
        demo: the results.
        command: what to run to make the page again.
        date: of the run.
    """
    return html.page(
        "An infinitely wide vision transformer reads digits",
        html.Markup(_lead(demo)),
        [
            _network(demo),
            _kernel(demo),
            twins(demo),
            classification(demo),
            doubt(demo),
            softmax(demo),
            heads(demo),
            depth(demo),
            *([real_model(demo)] if demo.settings.model else []),
            provenance(demo.settings, demo.seconds, command, date, str(demo.gram.nngp.dtype)),
        ],
        generator=GENERATOR,
        footer=f"Made by limitformer {metadata.version('limitformer')}, "
        f"{date:%d %B %Y, %H:%M}. The page stands alone: keep it, mail it, print it.",
    )


def _lead(demo: Demo) -> str:
    lead = (
        "A transformer with infinitely many channels and heads is a Gaussian process: everything "
        "there is to know about it at initialisation is one kernel (NNGP), and everything there is "
        "to know about its training by gradient descent is a second one (NTK). This page computes "
        "both for a small vision transformer, checks them against finite networks, and uses them "
        "to read handwritten digits. No network is trained."
    )
    fit = demo.convergence.slope("nngp")
    numbers = {
        "held-out digits right, NNGP": f"{100 * demo.classified['NNGP'].accuracy:.1f} %",
        "held-out digits right, NTK": f"{100 * demo.classified['NTK'].accuracy:.1f} %",
        f"slope of the error in the width; theory: −½ (± {fit.slope_sem:.2f})": f"{fit.slope:.2f}",
        "seconds for everything": f"{sum(demo.seconds.values()):.0f}",
    }
    return f'<p class="lead">{html.prose(lead)}</p>\n{html.facts(numbers)}'.replace("-0.", "−0.")


def _network(demo: Demo) -> html.Markup:
    settings = demo.settings
    side = 8 // settings.patch
    source = (
        "import limitformer as lf\n\n"
        f'attention = lf.Attention(weights="identity", qk_std={settings.qk_std}, per_key=True)\n'
        f"net = lf.VisionTransformer(depth={settings.depth}, patch={settings.patch}, "
        "block=lf.Block(attention, lf.Relu()))\n"
        "k = net.kernel(images)   # k.nngp, k.ntk: one number per pair of images"
    )
    return html.section(
        "The network",
        f"Images of 8 × 8 pixels are cut into {side} × {side} patches, which become {side**2} "
        f"tokens. Then come {settings.depth} transformer blocks, with normalisation before each "
        "part and a skip around it; the mean over the tokens is read out. Attention takes the "
        "scores themselves as weights, at the scale 1/√*d* of real transformers: there the kernel "
        "has a closed form. Softmax at the same scale comes further down.",
        html.code(source),
        html.table(
            ("layer", "what it does", "what that does to the kernel"),
            layer_rows(demo.net),
            "Tokens *a*, *c* belong to one image and *b*, *d* to the other; cos *θ* = *K*_{ab} / "
            "√(*K*_{aa} *K*_{bb}), where *K*_{aa} and *K*_{bb} are variances within each image.",
            "lle",
        ),
    )


def _kernel(demo: Demo) -> html.Markup:
    n = demo.digits.train
    labels = demo.digits.labels[:n]
    shown = np.concatenate([np.flatnonzero(labels == c)[:_PER_CLASS] for c in range(10)])

    def picture(kind: str) -> html.Markup:
        K = getattr(demo.gram, kind)[np.ix_(shown, shown)].astype(float)
        scale = np.sqrt(np.diagonal(K))
        correlation = K / scale / scale[:, None]
        low, high = np.quantile(correlation, [0.02, 0.97])
        image = drawing(
            lambda ax: plot_gram(
                correlation, ax, labels=labels[shown], limits=(low, high), label="correlation"
            ),
            f"gram-{kind}",
            f"Matrix of correlations between {len(shown)} images under the {KERNELS[kind]}, sorted "
            "by digit. Blocks of one digit on the diagonal are brighter than the rest.",
            (4.6, 3.9),
        )
        return html.figure(image, f"*{KERNELS[kind]}*")

    odd = _least_alike(demo.gram.nngp[:n, :n], labels)
    return html.section(
        "The kernel",
        "The kernel of two images says how similar the network finds them before it has learned "
        "anything: the NNGP compares outputs, the NTK compares gradients, over all weights that "
        "the network could start with.",
        html.equation(
            "*K*(*x*, *y*) = E[ *f*(*x*) *f*(*y*) ], &emsp; "
            "*T*(*x*, *y*) = ⟨ d*f*(*x*)/d*w*, d*f*(*y*)/d*w* ⟩".replace("&emsp;", "\u2003")
        ),
        html.gallery([picture(kind) for kind in KINDS], 330),
        f"{len(shown)} training images, sorted by digit, as correlations "
        "*K*(*x*, *y*) / √(*K*(*x*, *x*) *K*(*y*, *y*)). The bright squares on the diagonal are "
        "images of the same digit: the infinite network tells digits apart without a label. "
        f"The least alike among themselves are the {odd[0]}s and the {odd[1]}s.",
    )


def _least_alike(K: np.ndarray, labels: np.ndarray) -> list[int]:
    """Classes in the order of the mean correlation among their own images, smallest first."""
    scale = np.sqrt(np.diagonal(K))
    correlation = K / scale / scale[:, None]
    own = [correlation[np.ix_(labels == c, labels == c)].mean() for c in range(10)]
    return np.argsort(own).tolist()
