"""The command line: a thin shell that parses, calls the library and prints.

Nothing heavy is imported before a command runs, so that help is instant.
"""

import io
import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended

__all__ = ["INTERRUPTED", "main", "reader_gone"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status of the process.

    Args:
        argv: the arguments after the program's name; None: those of the process.

    Returns:
        0, or 1 for an error that was explained on standard error, 2 for arguments that make no
        sense, 130 after Ctrl-C.
    """
    from limitformer.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± or √ is no reason to stop
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        app(args=given or ["--help"], prog_name="limitformer")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = reader_gone()
    return status


def reader_gone() -> int:
    """The exit status after `limitformer ... | head`: no message, nobody is there to read it."""
    # Python flushes again when it ends, and must find somewhere to write to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
