"""The command `demo`: run the steps, print a table, write the report."""

import datetime
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from limitformer.cli.command import command
from limitformer.cli.progress import StepProgress
from limitformer.cli.shell import Shell
from limitformer.cli.table import text_table
from limitformer.extras import optional
from limitformer.report.files import check_target, write_report

FILE = "report.html"

Folder = Annotated[
    Path, typer.Option("--out", metavar="FOLDER", help="Of the report, made if it is not there.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer images, widths and networks.")]


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo", "limitformer demo --quick")(run_demo)


def run_demo(shell: Shell, out: Folder = Path("demo"), quick: Quick = False) -> dict:
    """Make a report on digits: kernels, classes, finite twins, heads, depth.

    A small vision transformer on scikit-learn's digits, in one self-contained HTML file; about
    two minutes on two cores.
    """
    return _demo(shell, out, quick)


def demo(out: Path, quick: bool = False, settings=None, run=None) -> int:
    """Run the demo.

    Args:
        out: folder of the report.
        quick: fewer images, widths and networks.
        settings: a `limitformer.report.demo.Settings` to use instead.
        run: does the work, `limitformer.report.demo.run` unless given.

    Returns:
        The exit status: 0, or 1 if the report could not be written or a package is missing.
    """
    try:
        _demo(Shell("demo"), out, quick, settings, run)
    except (OSError, ModuleNotFoundError) as error:
        print(f"limitformer demo: {error}", file=sys.stderr)
        return 1
    return 0


def _demo(shell: Shell, out: Path, quick: bool, settings=None, run=None) -> dict:
    start = time.perf_counter()
    path = out / FILE
    # What can fail without any work fails first.
    optional("matplotlib.figure")
    optional("sklearn.datasets")
    from limitformer.report import demo as steps
    from limitformer.report.demo_page import GENERATOR, demo_page

    check_target(path, GENERATOR)
    settings = settings or (steps.QUICK if quick else steps.Settings())
    progress = StepProgress(steps.STEPS)
    try:
        result = (run or steps.run)(settings, progress)
    finally:
        progress.close()
    page = demo_page(result, _command(out, quick), datetime.datetime.now().astimezone())
    write_report(path, page, GENERATOR)
    shell.print(_tables(result), f"\n{path.resolve().as_uri()}")
    shell.print(
        f"One page, {len(page.encode()) / 1e6:.1f} MB, {time.perf_counter() - start:.0f} s."
    )
    return _numbers(result) | {"out": str(path)}


def _numbers(result) -> dict:
    """The numbers of the tables."""
    from limitformer.report.convergence import KINDS

    return {
        "settings": result.settings,
        "seconds": result.seconds,
        "classes": {
            name: {
                "ridge": r.ridge,
                "loo_accuracy": r.loo_accuracy,
                "accuracy": r.accuracy,
                "accuracy_sem": r.accuracy_sem,
            }
            for name, r in result.classified.items()
        },
        "twins": [
            {
                "width": w.width,
                "networks": len(w.errors["nngp"]),
                **{k: {"error": w.mean(k), "error_sem": w.sem(k)} for k in KINDS},
            }
            for w in result.convergence.widths
        ],
        "slopes": {kind: result.convergence.slope(kind) for kind in KINDS},
    }


def _command(out: Path, quick: bool) -> str:
    options = ["--quick"] if quick else []
    if out != Path("demo"):
        options += ["--out", str(out)]
    return shlex.join(["python", "-m", "limitformer", "demo", *options])


def _tables(result) -> str:
    from limitformer.report.convergence import KINDS
    from limitformer.report.numbers import accuracy, with_error

    settings = result.settings
    classes = text_table(
        ("kernel", "ridge", "left out, %", "held out, %", "mistakes"),
        [
            (
                name,
                f"{r.ridge:.0e}",
                f"{100 * r.loo_accuracy:.1f}",
                accuracy(r),
                str(int((~r.correct).sum())),
            )
            for name, r in result.classified.items()
        ],
    )
    twins = text_table(
        ("width", "networks", "NNGP error, %", "NTK error, %"),
        [
            (
                str(w.width),
                str(len(w.errors["nngp"])),
                *(with_error(100 * w.mean(k), 100 * w.sem(k)) for k in KINDS),
            )
            for w in result.convergence.widths
        ],
    )
    fits = [result.convergence.slope(kind) for kind in KINDS]
    slopes = ", ".join(
        f"{kind.upper()} {fit.slope:.2f} ± {fit.slope_sem:.2f}"
        for kind, fit in zip(KINDS, fits, strict=True)
    )
    return (
        f"Digits: {settings.train} to learn from, {settings.test} held out\n{classes}\n\n"
        f"Finite networks against the limit (1/√width: slope -0.5)\n{twins}\n"
        f"slope in log width: {slopes}"
    )
