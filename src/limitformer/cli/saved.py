"""A fit in a folder: the posterior as `Posterior.save` writes it, and how to read its data."""

import dataclasses
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from limitformer.gp import Posterior, load_posterior, one_vs_rest
from limitformer.gp.classifier import Classifier

_ABOUT = "fit.json"
FORMAT = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Scaling:
    """values = mean + scale * scaled, over the last axis.

    Attributes:
        mean, scale: `(columns,)`, or `()` for targets `(n,)`.
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, mask: np.ndarray | None = None) -> "Scaling":
        """Mean and standard deviation of every column, feature or channel."""
        rows = values[mask] if mask is not None else values
        rows = rows.reshape(-1, rows.shape[-1]) if rows.ndim > 1 else rows
        spread = rows.std(axis=0)
        return cls(np.asarray(rows.mean(axis=0)), np.where(spread > 0, spread, 1.0))

    @classmethod
    def none(cls) -> "Scaling":
        """Values as they are."""
        return cls(np.zeros(()), np.ones(()))

    def scaled(self, values: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Values in units of the scale; padding is zero."""
        found = (values - self.mean) / self.scale
        return found if mask is None else np.where(mask[..., None], found, 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """A posterior with the way from files to its inputs and targets.

    Attributes:
        posterior: of the scaled data; of centred one-hot targets if there are classes.
        x: scaling of the inputs, None for token ids.
        y: scaling of the targets.
        classes: names of the labels, None for regression.
        columns: names of the columns of a table, empty otherwise.
    """

    posterior: Posterior
    x: Scaling | None
    y: Scaling
    classes: tuple[str, ...] | None
    columns: tuple[str, ...]

    @property
    def labels(self) -> np.ndarray:
        """The training labels."""
        return np.array(self.classes)[self.posterior.targets.argmax(axis=1)]

    def classifier(self) -> Classifier:
        """One-vs-rest regression with calibrated probabilities, from the stored kernel."""
        post = self.posterior
        K = np.asarray(post.gram.value, float)
        kind = "ntk" if post.kind == "ntkgp" else post.kind
        fitted = one_vs_rest.fit(K, self.labels, post.noise)
        return Classifier(
            post.net, post.x, post.x_mask, kind, "regression", fitted, None, post.options
        )


def check_folder(path: Path, force: bool) -> Path:
    """Raise unless a fit may be written to `path`. Only another fit is ever replaced."""
    path = path.expanduser()
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; choose another name, or replace it with --force")
    if path.exists() and not (path / "posterior.toml").is_file():
        raise FileExistsError(f"{path} is no fit, so it is left alone; choose another name")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"--out {path}: there is no folder {path.absolute().parent}")
    return path


def save(fit: Fit, path: Path, force: bool = False) -> Path:
    """Write a fit, whole or not at all."""
    path = check_folder(path, force).absolute()
    part = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    old = path.with_name(f"{part.name}-old")
    about = {
        "format": FORMAT,
        "x": None if fit.x is None else _lists(fit.x),
        "y": _lists(fit.y),
        "classes": fit.classes,
        "columns": fit.columns,
    }
    try:
        fit.posterior.save(part)
        (part / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
        check_folder(path, force)
        if path.exists():
            os.rename(path, old)
        os.rename(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
    return path


def read_fit(path: Path) -> Fit:
    """Read a fit that `save` or `Posterior.save` wrote.

    Raises:
        FileNotFoundError: there is none.
        ValueError: damaged files.
    """
    path = path.expanduser()
    if not path.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.absolute()}; limitformer fit ... --out {path} writes one"
        )
    posterior = load_posterior(path)
    if not (path / _ABOUT).is_file():
        return Fit(posterior, Scaling.none(), Scaling.none(), None, ())
    try:
        about: dict[str, Any] = json.loads((path / _ABOUT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']!r}, this version reads {FORMAT}")
        classes = about["classes"]
        return Fit(
            posterior,
            None if about["x"] is None else _scaling(about["x"]),
            _scaling(about["y"]),
            None if classes is None else tuple(classes),
            tuple(about["columns"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path / _ABOUT} is damaged ({error}); fit again") from None


def _lists(scaling: Scaling) -> dict[str, Any]:
    return {"mean": scaling.mean.tolist(), "scale": scaling.scale.tolist()}


def _scaling(table: dict[str, Any]) -> Scaling:
    return Scaling(np.asarray(table["mean"], float), np.asarray(table["scale"], float))
