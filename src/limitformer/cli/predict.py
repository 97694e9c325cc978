"""`limitformer predict`: what a kept fit says of new inputs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limitformer.cli.command import Usage, command
from limitformer.cli.experiments import TESTING
from limitformer.cli.options import Data, Force, Mask, Out, Rows, X, Y
from limitformer.cli.shell import Shell

if TYPE_CHECKING:
    from limitformer.cli.saved import Fit

_SHOWN = 8  # rows that are printed
FitFolder = Annotated[
    Path | None, typer.Argument(metavar="FIT", help="Folder that limitformer fit wrote.")
]
Observed = Annotated[
    bool, typer.Option("--observed", help="Deviations of new observations, noise included.")
]


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer predict wine.fit --data wine --rows 20 --out wine.csv --force"
    command(app, "predict", example, data=TESTING)(predict)


def predict(
    shell: Shell,
    fit: FitFolder = None,
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    y: Y = None,
    mask: Mask = None,
    observed: Observed = False,
    out: Out = None,
    force: Force = False,
) -> dict:
    """Predict new inputs with a fit: means and deviations, or classes.

    With --y it also says how good that was. Of built-in data it takes rows that no fit has seen.
    """
    from limitformer.cli.inputs import inputs
    from limitformer.cli.saved import read_fit
    from limitformer.cli.write import check_out, write

    if fit is None:
        raise Usage("which fit? Give the folder that limitformer fit --out wrote.")
    if out is not None:
        check_out(out, force)
    found = read_fit(fit)
    given = inputs(data, rows, x, y, mask, classes=found.classes is not None, part="test")
    _check_columns(found, given.names)
    values = given.x if found.x is None else found.x.scaled(_checked(given.x, found), given.mask)
    if found.classes is not None:
        columns, scores = _classes(found, values, given.mask, given.y)
    else:
        columns, scores = _numbers(found, values, given.mask, given.y, observed)
    shell.print(f"{found.posterior!r}", f"on {given.text}")
    _show(shell, columns, scores)
    result: dict[str, Any] = {"inputs": given.text, "scores": scores}
    if out is not None:
        write(out, columns, force)
        shell.print(f"written to {out}: {', '.join(columns)}")
        return result | {"out": str(out)}
    return result | columns


def _check_columns(fit: "Fit", names: tuple[str, ...]) -> None:
    if fit.columns and names and names != fit.columns:
        raise ValueError(
            f"--x has the columns {', '.join(names)}, and the fit was made of "
            f"{', '.join(fit.columns)}; name them in that order, FILE:{','.join(fit.columns)}"
        )


def _checked(x, fit: "Fit"):
    trained = fit.posterior.x
    if x.ndim != trained.ndim or x.shape[-1] != trained.shape[-1]:
        raise ValueError(
            f"the inputs have shape {x.shape}, and the fit was made of {trained.shape}; give the "
            "same features in the same order"
        )
    return x


def _numbers(fit: "Fit", x, mask, y, observed: bool) -> tuple[dict, dict]:
    """Means and deviations in the units of the targets, and scores if there are targets."""
    import numpy as np

    post = fit.posterior
    if observed and post.kind == "ntk":
        raise Usage("--observed: the noise of a trained ensemble is weight decay, no variance.")
    found = post.predict(x, cov="diag", observed=observed, x_mask=mask)
    mean = fit.y.mean + fit.y.scale * found.mean
    std = found.std.reshape((*mean.shape[:-1], 1)) if mean.ndim > 1 else found.std
    columns = {"mean": mean, "std": np.broadcast_to(fit.y.scale * std, mean.shape)}
    if found.mean_sem is not None:
        columns["mean_sem"] = fit.y.scale * found.mean_sem
    if y is None:
        return columns, {}
    y = np.asarray(y, float).reshape(mean.shape) if np.size(y) == mean.size else y
    if np.shape(y) != mean.shape:
        raise ValueError(f"--y has shape {np.shape(y)}, and the predictions {mean.shape}")
    squared = (y - mean) ** 2
    rmse, n = float(np.sqrt(squared.mean())), squared.size
    scores = {
        "rmse": rmse,
        "rmse_sem": float(squared.std(ddof=1) / np.sqrt(n) / (2 * rmse))
        if n > 1 and rmse
        else None,
    }
    if post.kind != "ntk":
        noise = float(np.mean(post.noise)) if not observed else 0.0
        variance = columns["std"] ** 2 + noise * np.square(fit.y.scale)
        log = -0.5 * (np.log(2 * np.pi * variance) + squared / variance)
        inside = squared <= 1.6448536**2 * variance
        scores |= {
            "log_density": float(log.mean()),
            "log_density_sem": float(log.std(ddof=1) / np.sqrt(n)) if n > 1 else None,
            "inside_90": float(inside.mean()),
            "inside_90_sem": float(np.sqrt(inside.mean() * (1 - inside.mean()) / n)),
        }
    return columns, scores


def _classes(fit: "Fit", x, mask, y) -> tuple[dict, dict]:
    """Labels and probabilities, and scores if there are labels."""
    import numpy as np

    assert fit.classes is not None
    found = fit.classifier().predict(x, mask)
    names = [str(name) for name in found.classes]
    columns: dict[str, Any] = {"label": np.array(found.labels, str)}
    columns |= {f"p_{name}": found.probabilities[:, i] for i, name in enumerate(names)}
    if y is None:
        return columns, {}
    new = sorted(set(y.tolist()) - set(names))
    if new:
        raise ValueError(f"--y has the label {new[0]!r}, and the fit knows {', '.join(names)}")
    index = np.array([names.index(label) for label in y])
    loss = -np.log(np.maximum(found.probabilities[np.arange(len(index)), index], 1e-300))
    right, n = columns["label"] == y, len(y)
    return columns, {
        "accuracy": float(right.mean()),
        "accuracy_sem": float(np.sqrt(right.mean() * (1 - right.mean()) / n)),
        "log_loss": float(loss.mean()),
        "log_loss_sem": float(loss.std(ddof=1) / np.sqrt(n)) if n > 1 else None,
    }


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.4f}" if name.startswith("p_") else f"{value:.4g}"


_WORDS = {
    "rmse": "RMSE",
    "log_density": "mean log density",
    "inside_90": "inside the 90 % interval",
    "accuracy": "accuracy",
    "log_loss": "log loss",
}


def _show(shell: Shell, columns: dict, scores: dict) -> None:
    from limitformer.cli.numbers import with_error

    flat = {name: column for name, column in columns.items() if column.ndim == 1}
    rows = [
        (i, *(_cell(name, column[i]) for name, column in flat.items()))
        for i in range(min(_SHOWN, len(next(iter(columns.values())))))
    ]
    if flat:
        shell.table(("row", *flat), rows)
    shown = [
        (text, with_error(scores[k], scores[f"{k}_sem"]))
        for k, text in _WORDS.items()
        if k in scores
    ]
    if shown:
        shell.table(("score", "value"), shown)
