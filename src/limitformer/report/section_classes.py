"""The demo's sections on reading digits, and on how sure the reading is."""

from __future__ import annotations

import numpy as np

from limitformer.plot import plot_confusion, plot_refusal, plot_reliability, plot_ridge_path
from limitformer.report import html
from limitformer.report.demo import Demo
from limitformer.report.figures import drawing, pixels
from limitformer.report.numbers import accuracy, with_error

_HARDEST = 12


def classification(demo: Demo) -> html.Markup:
    """Held-out digits by kernel regression."""
    digits, best = demo.digits, demo.classified["NNGP"]
    rows = [
        (
            name,
            f"{r.ridge:.0e}".replace("e-0", "e−").replace("e+00", ""),
            f"{100 * r.loo_accuracy:.1f}",
            accuracy(r),
            int((~r.correct).sum()),
        )
        for name, r in demo.classified.items()
    ]
    confusion = drawing(
        lambda ax: plot_confusion(best, ax),
        "confusion",
        "Confusion matrix of the NNGP on held-out digits.",
        (4.2, 4.0),
    )
    refusal = drawing(
        lambda ax: plot_refusal(best, ax),
        "refusal",
        "Mistakes among the remaining digits as the least confident ones are refused.",
        (4.4, 3.9),
    )
    order = np.argsort(best.confidence, kind="stable")
    mistakes = np.flatnonzero(~best.correct[order])
    wrong = len(mistakes)
    last = int(mistakes.max()) + 1 if wrong else 0
    found = (
        f"All {wrong} mistakes are among the {last} least confident of {len(order)} digits "
        f"({100 * last / len(order):.1f} %): the process knows what it does not know."
        if 0 < last <= len(order) / 5
        else f"Of {len(order)} digits, {wrong} are wrong."
    )
    return html.section(
        "Reading digits",
        f"Regression with the kernel on {digits.train} labelled images classifies "
        f"{len(best.labels)} others. This is the exact posterior mean of the infinite network, or, "
        "with the NTK, the end of its training by gradient descent on the squared error.",
        html.equation(
            "scores(*x*) = *k*(*x*) (*K* + *λ* *I*)^{−1} *Y*, \u2003 class = the largest score"
        ),
        html.table(
            ("kernel", "ridge", "left out, %", "held out, %", "mistakes"),
            rows,
            "*Y* are centred one-hot labels. The ridge *λ*, relative to the kernel's mean "
            "diagonal, has the smallest leave-one-out error on the training images (*left out* is "
            "the accuracy there); held-out labels choose nothing. Standard errors are binomial. "
            "These digits are easy: two kernels of the bare pixels stand beside for comparison.",
            "lrrrr",
        ),
        html.gallery(
            [
                html.figure(
                    confusion,
                    "NNGP on held-out digits. Blue: right; red: mistakes.",
                ),
                html.figure(
                    refusal,
                    "Mistakes that are left when the digits with the smallest confidence are "
                    f"refused. {found}",
                ),
            ],
            330,
        ),
    )


def doubt(demo: Demo) -> html.Markup:
    """Confidence, the ridge path and the digits it is least sure of."""
    best = demo.classified["NNGP"]
    order = np.argsort(best.confidence, kind="stable")
    cards = [_card(demo, int(i)) for i in order[:_HARDEST]]
    ridge = drawing(
        lambda ax: plot_ridge_path(best.path, ax),
        "ridge-path",
        "Leave-one-out error and log evidence of the NNGP against the ridge.",
        (4.8, 3.7),
    )
    found = best.calibration_error
    sure = drawing(
        lambda ax: plot_reliability(found.table, ax),
        "reliability",
        "Accuracy of held-out digits against the confidence of the prediction, near the diagonal.",
        (4.0, 3.7),
    )
    rows = [
        (
            name,
            with_error(r.log_loss.value, r.log_loss.sem),
            with_error(100 * r.calibration_error.value, 100 * r.calibration_error.sem),
            f"{100 * float(r.confidence.mean()):.1f}",
            f"{100 * r.accuracy:.1f}",
        )
        for name, r in demo.classified.items()
    ]
    return html.section(
        "How sure is it?",
        "A Gaussian process gives its doubt with its answer. Confidence is the probability that "
        "the predicted class has the largest score, when scores are Gaussian with the posterior's "
        "mean and variance. A factor on the deviation, and the share of images of which the scores "
        "say nothing, are fitted to training labels that are left out in turn, which has a closed "
        "form.",
        html.equation("var(*x*) ∝ *K*(*x*, *x*) − *k*(*x*) (*K* + *λ* *I*)^{−1} *k*(*x*)ᵀ + *λ*"),
        html.gallery(
            [
                html.figure(
                    ridge,
                    "One eigendecomposition gives every ridge: leave-one-out error (left axis) and "
                    "log evidence at the best amplitude (right). The circle is the ridge that was "
                    "used.",
                ),
                html.figure(
                    sure,
                    "Held-out digits grouped by confidence: the part that is right, with its "
                    "standard error. Larger points are more digits. On the line, confidence means "
                    "what it says.",
                ),
            ],
            330,
        ),
        html.table(
            ("kernel", "log loss", "calibration error, %", "mean confidence, %", "right, %"),
            rows,
            "On held-out digits, mean ± standard error. The calibration error is the mean distance "
            "of the points from the line.",
            "lrrrr",
        ),
        f"The {len(cards)} held-out digits that the NNGP is least sure of:",
        html.gallery(cards, 215),
    )


def _card(demo: Demo, index: int) -> html.Markup:
    result = demo.classified["NNGP"]
    image = demo.digits.images[demo.digits.train + index, :, :, 0]
    true, said = int(result.labels[index]), int(result.predicted[index])
    right = true == said
    first, second = np.argsort(-result.probability[index])[:2]
    share = result.probability[index]
    # Ink is dark on paper.
    picture = pixels(-image, f"handwritten {true}", -0.5, 0.5)
    return html.card(
        picture,
        f"{'✓' if right else '✗'} says {said}" + ("" if right else f", is {true}"),
        f"{first}: {100 * share[first]:.0f} %, {second}: {100 * share[second]:.0f} %",
        right,
    )
