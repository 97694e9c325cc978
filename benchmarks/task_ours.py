"""limitformer on the tasks: kernels, a ridge by leave-one-out, calibrated probabilities.

Classification takes the steps of `lf.classify` one by one, so that NNGP, NTK and Laplace share
one kernel computation; every row carries its whole time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import task_networks
from task_data import Inputs, Task, gp_rows
from task_scores import Clock, Row, class_row, real_row

import limitformer as lf
from limitformer.gp import laplace_amplitude, one_vs_rest
from limitformer.kernel.gram import diagonal

KINDS = ("nngp", "ntk")
COMPARED = 300  # training rows on which networks of a family are compared
AMPLITUDES = tuple(10.0**k for k in range(6))  # as lf.classify
LAPLACE = ("MLP", "conv + attention")  # families that are also fitted with a softmax likelihood
STEPS = 10  # of L-BFGS on the evidence


@dataclasses.dataclass(frozen=True, eq=False)
class Grams:
    """A kernel of one kind: training, test against training, test inputs with themselves."""

    K: np.ndarray
    K_test: np.ndarray
    K_diag: np.ndarray


def classes(task: Task) -> Iterator[Row]:
    """Rows of a classification task."""
    train, test = task.parts[0]
    families = {"MLP": task_networks.perceptrons()}
    families |= task_networks.images() if task.kind == "image" else task_networks.texts()
    for family, nets in families.items():
        flat = family == "MLP"
        inputs = [(p.flat, None) if flat else (p.tokens, p.mask) for p in (train, test)]
        yield from _family(family, nets, task, *inputs)
    if train.whole_flat is not None:
        inputs = [(p.whole_flat, None) for p in (train, test)]
        yield from _family("MLP, whole text", families["MLP"], task, *inputs)


def _family(family: str, nets: dict, task: Task, train, test) -> Iterator[Row]:
    y, y_test = (p.y for p in task.parts[0])
    clock = Clock()
    name = _best(nets, *train, y)
    grams = _grams(nets[name], train, test)
    before = clock.read()
    for kind in KINDS:
        clock = Clock(before)
        g = grams[kind]
        noise, path = _ridge(g.K, y)
        fit = one_vs_rest.fit(g.K, y, noise)
        P = fit.predict(g.K_test, g.K_diag).probabilities
        settings = f"{name}; ridge {path.chosen:.0e}"
        method = f"{family}, {kind.upper()}"
        yield class_row("ours", method, P, y_test, clock.read(), settings, fit.loo_log_loss)
    if family in LAPLACE:
        clock = Clock(before)
        g, rows = grams["nngp"], slice(0, gp_rows(task.classes))
        K, labels = g.K[rows, rows], y[rows]
        fit, _ = laplace_amplitude.fit_amplitude(K, labels, AMPLITUDES, criterion="calibrated")
        P = fit.predict(g.K_test[:, rows], g.K_diag).probabilities
        settings = f"{name}; the first {len(K)} training rows"
        seconds = clock.read()
        # no leave-one-out loss: it would be that of other rows, not comparable with the above
        yield class_row("ours", f"{family}, NNGP, Laplace", P, y_test, seconds, settings)


def _best(nets: dict, x, mask, y) -> str:
    """The network with the smallest leave-one-out loss of both kernels on some training rows."""
    rows = slice(0, min(COMPARED, len(y)))
    losses = {}
    for name, net in nets.items():
        k = net.kernel(x[rows], x_mask=None if mask is None else mask[rows])
        losses[name] = 0.0
        for kind in KINDS:
            K = np.asarray(getattr(k, kind), float)
            losses[name] += one_vs_rest.fit(K, y[rows], _ridge(K, y[rows])[0]).loo_log_loss
    return min(losses, key=losses.__getitem__)


def _ridge(K: np.ndarray, y: np.ndarray) -> tuple[float, lf.gp.RidgePath]:
    Y = np.eye(y.max() + 1)[y]
    path = lf.ridge_path(K, Y - Y.mean(axis=0))
    return path.noise, path


def _grams(net: lf.Layer, train, test) -> dict[str, Grams]:
    (x, mask), (x_test, mask_test) = train, test
    k = net.kernel(x, x_mask=mask)
    against = net.kernel(x_test, x, mask_test, mask)
    own = diagonal(net, x_test, mask_test)
    return {
        kind: Grams(*(np.asarray(getattr(source, kind), float) for source in (k, against, own)))
        for kind in KINDS
    }


def real(task: Task) -> Iterator[Row]:
    """Rows of a regression task."""
    families = {"MLP": task_networks.perceptrons(), "columns + attention": task_networks.columns()}
    for family, nets in families.items():
        for kind in ("nngp", "ntkgp"):
            fits, settings = [], []
            clock = Clock()
            for train, test in task.parts:
                as_tokens = family != "MLP"
                fits.append(_fold(nets, kind, train, test, as_tokens))
                settings.append(fits[-1][2])
            label = "NNGP" if kind == "nngp" else "NTK"
            mean, std = (np.concatenate([fit[i] for fit in fits]) for i in (0, 1))
            loo = float(np.mean([fit[3] for fit in fits]))
            about = _counted(settings)
            yield real_row("ours", f"{family}, {label}", mean, std, task, clock.read(), about, loo)
    clock = Clock()
    means, stds, losses = [], [], []
    net = families["MLP"]["2 hidden"]
    for train, test in task.parts:
        found = lf.learn(net, train.flat, train.y, noise=0.1, steps=STEPS)
        post = lf.condition(found.net, train.flat, train.y, noise=found.noise)
        prediction = post.predict(test.flat, cov="diag", observed=True)
        means.append(prediction.mean)
        stds.append(prediction.std)
        losses.append(-post.leave_one_out.log_density)
    about = f"2 hidden; 5 deviations and noise by {STEPS} steps on the evidence"
    mean, std = np.concatenate(means), np.concatenate(stds)
    loo = float(np.mean(losses))
    yield real_row("ours", "MLP, NNGP, evidence", mean, std, task, clock.read(), about, loo)


def _fold(nets: dict, kind: str, train: Inputs, test: Inputs, as_tokens: bool):
    """Mean, deviation, network and leave-one-out loss of one fold.

    The ridge is chosen by the leave-one-out error; then the deviation of the readout is that with
    which leave-one-out residuals have the variance they are given. It scales kernel and noise
    together, so that it changes variances and no mean.
    """
    x, x_test = (p.flat[..., None] if as_tokens else p.flat for p in (train, test))
    best = None
    for name, net in nets.items():
        K = getattr(net.kernel(x), "nngp" if kind == "nngp" else "ntk")
        noise = lf.ridge_path(K, train.y).noise
        post = lf.condition(net, x, train.y, noise=noise, kind=kind)
        loo = post.leave_one_out
        scale = float(np.mean(loo.residual[:, 0] ** 2 / loo.variance))
        v = scale * loo.variance
        loss = float(np.mean(0.5 * np.log(2 * np.pi * v) + loo.residual[:, 0] ** 2 / (2 * v)))
        if best is None or loss < best[0]:
            best = loss, name, post, scale
    assert best is not None
    loss, name, post, scale = best
    prediction = post.predict(x_test, cov="diag", observed=True)
    return prediction.mean, np.sqrt(scale) * prediction.std, name, loss


def _counted(names: list[str]) -> str:
    return ", ".join(f"{name} ({names.count(name)} folds)" for name in sorted(set(names)))
