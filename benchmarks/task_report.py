"""The task benchmark's report in Markdown."""

from __future__ import annotations

TITLES = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "ece": "ECE",
    "r2": "R2",
    "rmse": "RMSE",
    "cover50": "in the 50% interval",
    "cover90": "in the 90% interval",
}
INTRODUCTION = """\
# Real tasks: limitformer beside the methods a user would pick

Written by `python benchmarks/tasks.py`. Every method of a dataset sees the same training and test
rows and the same preprocessing; everything that is chosen is chosen on training rows. `±` is one
standard error over test rows, with the fitted model fixed.

- **Ours.** In each family of networks (`benchmarks/task_networks.py`; its few candidates were drawn
  up by leave-one-out on 400 of these training rows) the one with the smallest leave-one-out loss
  on 300 training rows is taken; kernels of all rows; a ridge by closed-form leave-one-out; class
  probabilities calibrated by leave-one-out (the steps of `lf.classify`). Laplace is the softmax
  Gaussian process; to stay within minutes it gets as few training rows as scikit-learn's Gaussian
  process classifier, 500 for two classes and 300 for more. The row in **bold** is the one that
  leave-one-out on the training rows picks among ours: what a user would have reported. Laplace
  rows do not take part, as their losses are averages over other rows.
  For tables the losses of the five folds are averaged, so that the pick, though no fit, has seen
  every target.
- **Peers.** scikit-learn {sklearn}: grids by 5-fold cross-validation, SVC calibrated by Platt or
  temperature scaling, whichever cross-validates better, boosting with early stopping. Compare its
  Gaussian process classifier, which has fewer rows than the others, with our Laplace rows.
  A pretrained transformer takes part as its last states, which every method of the sets named
  `-minilm` gets in place of word vectors; none was tuned further, which is not cheap on two cores.
- NLL is in nats. ECE has 15 bins of equal width; where gaps are small against their errors it is
  biased upwards. For regression, targets are in units of their training deviation.
- CPU seconds of all threads, for choosing, fitting and predicting, compilation included ({cores}
  cores of {cpu}). The machine was shared with other work, so they are rough, and so are wall
  times (in `benchmarks/results/tasks.json`).
  NNGP, NTK and Laplace of a family share one kernel computation, and each row carries all of it.
"""


def markdown(report: dict, conclusions: str) -> str:
    """The whole report."""
    machine = report["machine"]
    lines = [INTRODUCTION.format(**machine)]
    if conclusions:
        lines += ["## Conclusions", "", conclusions]
    lines += ["## Against the best peer", "", *_verdicts(report["tasks"]), ""]
    for name, task in report["tasks"].items():
        lines += [f"## {name}", "", task["about"][0].upper() + task["about"][1:] + ".", ""]
        lines += [*_table(task), ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(task: dict) -> list[str]:
    scores = list(task["rows"][0]["scores"])
    header = ["", "method", *(TITLES[s] for s in scores), "CPU seconds", "chosen"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    best = {s: _best(s, task["rows"]) for s in scores}
    for row in task["rows"]:
        method = row["method"]
        if method == task["comparison"].get("picked") and row["group"] == "ours":
            method = f"**{method}**"
        cells = [row["group"], method]
        for s in scores:
            value, sem = row["scores"][s]
            mark = " *" if value == best[s] else ""
            cells.append(f"{value:.3f} ± {sem:.3f}{mark}")
        cells += [_seconds(row["seconds"][1]), row["settings"]]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", "`*`: best value of the column on the test rows."]


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _best(score: str, rows: list[dict]) -> float:
    values = [row["scores"][score][0] for row in rows]
    if score.startswith("cover"):
        return min(values, key=lambda v: abs(v - float(score[5:]) / 100))
    return max(values) if score in ("accuracy", "r2") else min(values)


def _verdicts(tasks: dict) -> list[str]:
    lines = [
        "Our bold row against the peer with the best test score (a choice that favours the peer), "
        "paired over test rows; a difference counts beyond two standard errors.",
        "",
        "| dataset | ours | accuracy or R2: best peer | difference | | NLL: best peer "
        "| difference | |",
        "|" + "---|" * 8,
    ]
    for name, task in tasks.items():
        found = task["comparison"]
        if not found:
            continue
        cells = [name, found["picked"]]
        for score in (next(iter(task["rows"][0]["scores"])), "nll"):
            gap = found[score]
            cells += [
                gap["peer"],
                f"{gap['difference']:+.3f} ± {gap['sem']:.3f}",
                verdict(gap["difference"], gap["sem"]),
            ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Positive: ours is better (for the NLL, lower)."]
    return lines


def verdict(difference: float, sem: float) -> str:
    """Whether ours is ahead, behind, or neither."""
    if abs(difference) <= 2 * sem:
        return "even"
    return "ahead" if difference > 0 else "**loses**"
