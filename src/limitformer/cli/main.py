"""Arguments to commands."""

import argparse
import io
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from limitformer.cli import gram, rank

INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended
_KEPT = {"gram": "finished tiles are kept"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status of the process.

    Args:
        argv: the arguments after the program's name; None: those of the process.

    Returns:
        0, or 1 for an error that was explained on standard error, or 130 after Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± or √ is no reason to stop
    parser = _parser()
    given = list(sys.argv[1:] if argv is None else argv)
    # a paper's own parser reads what follows, options too
    rest = given[1:] if given[:1] == ["reproduce"] else []
    arguments = parser.parse_args(given[: len(given) - len(rest)])
    arguments.rest = rest
    if arguments.command is None:
        parser.print_help()
        return 0
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted: {_KEPT.get(arguments.command, 'nothing was written')}.",
            file=sys.stderr,
        )
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="limitformer",
        description="What attention networks become as heads, width and depth go to infinity.",
    )
    parser.add_argument(
        "--version", action="version", version=f"limitformer {metadata.version('limitformer')}"
    )
    commands = parser.add_subparsers(dest="command", metavar="command")
    demo = commands.add_parser(
        "demo",
        help="kernel, finite twins and classification of digits, in one HTML report",
        description=(
            "Compute the kernel of a small vision transformer on scikit-learn's digits, compare it "
            "with finite networks of growing width, classify held-out digits, and write one "
            "self-contained HTML report. Takes about a minute on two cores."
        ),
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("demo"),
        metavar="FOLDER",
        help="folder of the report, made if it is not there (default: demo)",
    )
    demo.add_argument(
        "--quick", action="store_true", help="fewer images, widths and networks: a first look"
    )
    demo.set_defaults(run=_demo)
    gram.add(commands)
    rank.add(commands)
    reproduce = commands.add_parser(
        "reproduce",
        help="published tables and figures, computed again",
        description="Published tables and figures, computed again.",
    )
    reproduce.set_defaults(run=_reproduce)
    return parser


def _reproduce(arguments: argparse.Namespace) -> int:
    from limitformer.cli.reproduce import main

    return main(arguments.rest)


def _demo(arguments: argparse.Namespace) -> int:
    from limitformer.cli.demo import demo

    return demo(arguments.out, quick=arguments.quick)
