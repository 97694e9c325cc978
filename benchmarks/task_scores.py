"""Rows of the task benchmark: scores with standard errors, times, and paired differences."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
from task_data import Task

from limitformer.gp import calibration

LEVELS = (0.5, 0.9)


class Clock:
    """Wall and CPU seconds since it was made, on top of those given."""

    def __init__(self, before: tuple[float, float] = (0.0, 0.0)):
        """Starts."""
        self.before = before
        self.start = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Wall and CPU seconds so far."""
        now = time.perf_counter(), time.process_time()
        return tuple(b + t - s for b, t, s in zip(self.before, now, self.start, strict=True))  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One method on one task.

    Attributes:
        group: "ours" or "peer".
        method: its name.
        scores: name -> (value, standard error over test rows).
        seconds: wall and CPU, of choosing, fitting and predicting.
        settings: what was chosen on the training rows.
        loo: leave-one-out loss on all training rows, by which one of our rows is picked; None for
            peers, and where the fit had fewer rows.
        gain: per test row, what the first score averages (right, or minus the squared error).
        loss: per test row, the negative log-likelihood.
    """

    group: str
    method: str
    scores: dict[str, tuple[float, float]]
    seconds: tuple[float, float]
    settings: str
    loo: float | None
    gain: np.ndarray
    loss: np.ndarray

    def as_dict(self) -> dict:
        """What is written to JSON."""
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in kept.items() if name not in ("gain", "loss")}


def class_row(group, method, P, y, seconds, settings, loo=None) -> Row:
    """Accuracy, negative log-likelihood and expected calibration error of probabilities."""
    P = np.asarray(P, float)
    found = {
        "accuracy": calibration.accuracy(P, y),
        "nll": calibration.log_loss(P, y),
        "ece": calibration.calibration_error(P, y),
    }
    scores = {name: (float(s.value), float(s.sem)) for name, s in found.items()}
    gain = (P.argmax(axis=1) == y).astype(float)
    with np.errstate(divide="ignore"):
        loss = -np.log(P[np.arange(len(y)), y])
    return Row(group, method, scores, seconds, settings, _number(loo), gain, loss)


def real_row(group, method, mean, std, task: Task, seconds, settings, loo=None) -> Row:
    """R2, negative log-likelihood and coverage of Gaussian predictions, folds pooled.

    R2 = 1 - mean squared error / mean square of the target, both in units of the training fold;
    its standard error takes the denominator as known.
    """
    y = np.concatenate([test.y for _, test in task.parts])
    squares = (mean - y) ** 2
    total = float(np.mean(y**2))
    n = len(y)
    error = float(squares.std(ddof=1) / np.sqrt(n))
    nll = calibration.gaussian_log_loss(mean, std, y)
    covered = calibration.coverage(mean, std, y, LEVELS)
    rmse = float(np.sqrt(squares.mean()))
    scores = {
        "r2": (1 - float(squares.mean()) / total, error / total),
        "rmse": (rmse, error / (2 * rmse)),
        "nll": (nll.value, nll.sem),
        **{
            f"cover{100 * level:.0f}": (float(covered.observed[i]), float(covered.sem[i]))
            for i, level in enumerate(LEVELS)
        },
    }
    loss = np.log(std) + 0.5 * np.log(2 * np.pi) + 0.5 * squares / std**2
    return Row(group, method, scores, seconds, settings, _number(loo), -squares / total, loss)


def _number(value) -> float | None:
    return None if value is None else float(value)


def picked(rows: list[Row]) -> Row:
    """Our row with the smallest leave-one-out loss on the training rows."""
    return min((r for r in rows if r.loo is not None), key=lambda r: r.loo or 0.0)


def comparison(rows: list[Row]) -> dict:
    """Our picked row against the peer that is best on the test rows, by accuracy and by NLL.

    Differences are paired over test rows, positive where ours is better.
    """
    if not {"ours", "peer"} <= {r.group for r in rows}:
        return {}
    ours = picked(rows)
    peers = [r for r in rows if r.group == "peer"]
    first = next(iter(ours.scores))
    by = {
        first: (max(peers, key=lambda r: r.gain.mean()), lambda r: r.gain),
        "nll": (min(peers, key=lambda r: r.loss.mean()), lambda r: -r.loss),
    }
    out: dict = {"picked": ours.method}
    for score, (peer, value) in by.items():
        gap = value(ours) - value(peer)
        sem = float(gap.std(ddof=1) / np.sqrt(len(gap)))
        out[score] = {"peer": peer.method, "difference": float(gap.mean()), "sem": sem}
    return out
