"""The demo's results as one HTML page."""

from __future__ import annotations

import datetime
from importlib import metadata

import numpy as np

from limitformer.plot import (
    plot_confusion,
    plot_convergence,
    plot_gram,
    plot_refusal,
    plot_reliability,
    plot_ridge_path,
)
from limitformer.report import html
from limitformer.report.convergence import KINDS, Width
from limitformer.report.demo import Demo
from limitformer.report.figures import drawing, pixels
from limitformer.report.layer_table import layer_rows
from limitformer.report.provenance import provenance

GENERATOR = "limitformer demo"
_NAMES = {"nngp": "NNGP", "ntk": "NTK"}
_PER_CLASS = 30  # images of each class in the picture of the kernel
_HARDEST = 12
_FULL_COLOUR = 0.4  # relative deviation of a twin that gets the last colour


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
            _twins(demo),
            _classification(demo),
            _doubt(demo),
            _softmax(demo),
            provenance(demo.settings, demo.seconds, command, date, str(demo.gram.nngp.dtype)),
        ],
        generator=GENERATOR,
        footer=f"Made by limitformer {metadata.version('limitformer')}, "
        f"{date:%d %B %Y, %H:%M}. The page stands alone: keep it, mail it, print it.",
    )


def accuracy(result) -> str:
    """An accuracy with its standard error, in per cent."""
    return f"{100 * result.accuracy:.1f} ± {100 * result.accuracy_sem:.1f}"


def with_error(value: float, error: float, digits: int = 2) -> str:
    """A value with its standard error, to so many digits of the error.

    Example:
        >>> with_error(0.12345, 0.0067)
        '0.1235 ± 0.0067'
    """
    places = max(0, digits - 1 - int(np.floor(np.log10(error)))) if error > 0 else 4
    return f"{value:.{places}f} ± {error:.{places}f}"


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
            f"Matrix of correlations between {len(shown)} images under the {_NAMES[kind]}, sorted "
            "by digit. Blocks of one digit on the diagonal are brighter than the rest.",
            (4.6, 3.9),
        )
        return html.figure(image, f"*{_NAMES[kind]}*")

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


def _twins(demo: Demo) -> html.Markup:
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
        f"{fit.slope:.2f} ± {fit.slope_sem:.2f} ({_NAMES[kind]})".replace("-", "−")
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


def _classification(demo: Demo) -> html.Markup:
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


def _doubt(demo: Demo) -> html.Markup:
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
        "mean and variance; one factor on the deviation is fitted to training labels that are left "
        "out in turn, which has a closed form.",
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


def _softmax(demo: Demo) -> html.Markup:
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
                _NAMES[kind],
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
