"""`limitformer fit`: condition a network on data and keep the posterior."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from limitformer.cli.command import Usage, command
from limitformer.cli.experiments import TRAINING
from limitformer.cli.options import Data, Draws, Dtype, Force, Mask, Memory, Net, Rows, Seed, X, Y
from limitformer.cli.shell import Shell

if TYPE_CHECKING:
    from limitformer.cli.saved import Fit

Kind = Annotated[
    Literal["nngp", "ntk", "ntkgp"],
    typer.Option("--kind", help="Posterior, trained ensemble, or tangent kernel as prior."),
]
Noise = Annotated[
    str, typer.Option("--noise", metavar="auto|VARIANCE", help="Added to the kernel's diagonal.")
]
By = Annotated[Literal["loo", "evidence"], typer.Option("--by", help="What --noise auto minds.")]
Classes = Annotated[bool, typer.Option("--classes", help="Numbers in --y are labels (text is).")]
Scale = Annotated[
    bool, typer.Option("--scale/--no-scale", help="Standardise inputs and targets, and remember.")
]
Folder = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Keep the fit there.")]


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer fit mlp --data wine --rows 60 --out wine.fit --force"
    command(app, "fit", example, data=TRAINING)(fit)


def fit(
    shell: Shell,
    net: Net = None,
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    y: Y = None,
    mask: Mask = None,
    classes: Classes = False,
    kind: Kind = "nngp",
    noise: Noise = "auto",
    by: By = "loo",
    scale: Scale = True,
    draws: Draws = None,
    seed: Seed = 0,
    dtype: Dtype = "float64",
    memory: Memory = None,
    out: Folder = None,
    force: Force = False,
) -> dict:
    """Condition a network on data: evidence, leave-one-out, a posterior to predict with."""
    from limitformer.cli.inputs import finite_heads, inputs, network
    from limitformer.cli.numbers import draw_options
    from limitformer.cli.saved import Fit, Scaling, check_folder, save

    if out is not None:
        check_folder(out, force)
    added = _noise(noise)
    layers = network(net)
    if finite_heads(layers):
        raise NotImplementedError(
            "this network has finitely many heads, and its posterior is a mixture over their "
            'scores, which no fit file holds; set heads = "inf", or use lf.condition in Python'
        )
    given = inputs(data, rows, x, y, mask, classes=classes)
    if given.y is None:
        raise Usage("which targets? Give --y FILE, or FILE:name for a column or one array.")
    if given.labels and kind == "ntkgp":
        raise Usage("--kind ntkgp with classes is --kind ntk: the same regression on labels.")
    ids = given.x.dtype.kind in "iu" and given.x.ndim == 2 and _takes_ids(layers)
    x_scaling = None if ids else Scaling.of(given.x, given.mask) if scale else Scaling.none()
    values = given.x if x_scaling is None else x_scaling.scaled(given.x, given.mask)
    names, targets, y_scaling = _targets(given, scale)
    with shell.progress("kernel") as progress:
        post, path = _condition(
            layers,
            values,
            targets,
            added,
            by,
            kind="ntkgp" if given.labels and kind == "ntk" else kind,
            x_mask=given.mask,
            dtype=dtype,
            memory=memory,
            progress=progress,
            **draw_options(draws, seed),
        )
    if scale and not given.labels and kind != "ntk":
        post, y_scaling = _calibrated(post, y_scaling)
    found = Fit(post, x_scaling, y_scaling, names, given.names)
    result = _report(shell, found, given.text, path, by)
    if out is not None:
        save(found, out, force)
        shell.print(f"written to {out}; next: limitformer predict {out} --x FILE")
        result["out"] = str(out)
    return result


def _noise(text: str) -> float | None:
    """A variance, None for "auto"."""
    if text == "auto":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise Usage(f"--noise {text}: expected auto, or a variance such as 0.01.")
    return value


def _takes_ids(layers: Any) -> bool:
    from limitformer.layers.base import leaves

    return any(type(leaf).__name__ == "Embed" for _, leaf in leaves(layers))


def _targets(given: Any, scale: bool) -> Any:
    """Names of classes (or None), what is regressed on, and its scaling."""
    import numpy as np

    from limitformer.cli.saved import Scaling

    if given.labels:
        names, index = np.unique(given.y, return_inverse=True)
        if len(names) < 2:
            raise ValueError(f"every label is {names[0]!r}; classes need at least two of them")
        one_hot = np.eye(len(names))[index]
        return tuple(map(str, names)), one_hot - one_hot.mean(axis=0), Scaling.none()
    y = np.asarray(given.y, float)
    if y.ndim > 1 and y.shape[-1] == 1 and y.ndim == 2:
        y = y[:, 0]
    scaling = Scaling.of(y) if scale and y.ndim <= 2 else Scaling.none()
    return None, scaling.scaled(y), scaling


def _condition(layers, x, targets, noise: float | None, by: str, *, kind: str, **options) -> Any:
    """The posterior and the ridges that were compared (None if the noise was given)."""
    import numpy as np

    import limitformer as lf
    from limitformer.gp.solve import warn_if_imprecise

    start = lf.relative(1.0) if noise is None else noise
    post = lf.condition(layers, x, targets, noise=start, kind=kind, **options)
    if noise is not None:
        return post, None
    if by == "evidence" and kind == "ntk":
        raise Usage("--by evidence: a trained ensemble has none; use --by loo or --kind ntkgp.")
    path = lf.ridge_path(post.gram.value, post.y, by=by, amplitude=None)
    post = dataclasses.replace(post, noise=np.full(len(post.noise), path.noise))
    warn_if_imprecise(post.gram.value, post.noise)
    return post, path


def _calibrated(post, scaling) -> Any:
    """Targets in units in which squared leave-one-out z-scores are 1 on average."""
    import numpy as np

    from limitformer.cli.saved import Scaling

    loo = post.leave_one_out
    z = np.sqrt(np.mean(loo.residual**2 / loo.variance[:, None], axis=0))
    z = np.where(z > 0, z, 1.0).reshape(post.targets.shape[1:] if post.targets.ndim < 3 else (-1,))
    scaling = Scaling(scaling.mean, np.asarray(scaling.scale * z))
    return dataclasses.replace(post, targets=post.targets / z), scaling


def _report(shell: Shell, fit: "Fit", inputs: str, path: Any, by: str) -> dict:
    """Print the table and return the result."""
    from limitformer import plot
    from limitformer.cli.numbers import rounded, with_error

    post = fit.posterior
    ridge = None if path is None else path.chosen
    result: dict[str, Any] = {
        "network": repr(post.net),
        "inputs": inputs,
        "kind": post.kind,
        "noise": float(post.noise[0]),
        "ridge": ridge,
    }
    chosen = "given" if path is None else f"{ridge:.0e} of the diagonal, by {by}"
    rows = [("noise (variance)", f"{rounded(post.noise[0])}  ({chosen})")]
    if path is not None and path.at_the_edge:
        end = "smallest" if path.index == 0 else "largest"
        shell.note(
            f"warning: the best ridge, {ridge:.0e}, is the {end} that was tried; choose one "
            f"yourself with --noise VARIANCE (here it is {rounded(post.noise[0], 2)})"
        )
    if fit.classes is not None:
        fitted = fit.classifier().fit
        result |= {
            "classes": fit.classes,
            "loo_accuracy": fitted.loo_accuracy,
            "loo_accuracy_sem": fitted.loo_accuracy_sem,
            "loo_log_loss": fitted.loo_log_loss,
            "loo_log_loss_sem": fitted.loo_log_loss_sem,
        }
        rows += [
            ("classes", ", ".join(fit.classes)),
            ("left out: accuracy", with_error(fitted.loo_accuracy, fitted.loo_accuracy_sem)),
            ("left out: log loss", with_error(fitted.loo_log_loss, fitted.loo_log_loss_sem)),
        ]
    else:
        scores = _left_out(fit)
        result |= scores
        if scores["log_evidence"] is not None:
            evidence = with_error(scores["log_evidence"], scores["log_evidence_sem"])
            rows.append(("log evidence", evidence))
        rows += [
            ("left out: RMSE", with_error(scores["loo_rmse"], scores["loo_rmse_sem"])),
            ("left out: share of variance explained", rounded(scores["loo_r2"], 4)),
        ]
    if path is not None:
        result["path"] = {
            "ridges": path.ridges,
            "loo_error": path.error,
            "loo_error_sem": path.error_sem,
            "log_evidence": path.log_evidence,
        }
    shell.print(f"{post.net!r}", f"{post.kind} on {inputs}")
    shell.table((), rows)
    if path is not None:
        shell.draw(lambda ax: plot.plot_ridge_path(path, ax), "What each ridge would give.")
    return result


def _left_out(fit: "Fit") -> dict[str, Any]:
    """Evidence and leave-one-out scores in the units of the targets."""
    import numpy as np

    post, loo = fit.posterior, fit.posterior.leave_one_out
    scale = np.broadcast_to(fit.y.scale, (post.y.shape[1],))
    squared = ((loo.residual * scale) ** 2).mean(axis=1)
    rmse = float(np.sqrt(squared.mean()))
    spread = np.mean(((post.y - post.y.mean(axis=0)) * scale) ** 2)
    evidence, sem = None, None
    if post.kind != "ntk":
        evidence = post.log_evidence - len(post.y) * float(np.log(scale).sum())
        sem = post.log_evidence_sem
    return {
        "log_evidence": evidence,
        "log_evidence_sem": sem,
        "loo_rmse": rmse,
        "loo_rmse_sem": float(squared.std(ddof=1) / np.sqrt(len(squared)) / (2 * rmse or 1.0)),
        "loo_r2": float(1 - squared.mean() / spread) if spread > 0 else None,
        "loo_log_density": loo.log_density - float(np.log(scale).mean()),
    }
