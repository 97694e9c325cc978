"""Functions as commands: options, experiments, errors without tracebacks, exit codes."""

import contextlib
import functools
import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from limitformer.cli import INTERRUPTED, experiments, reader_gone
from limitformer.cli.page import check_page, write_page
from limitformer.cli.shell import Shell, document

# What the library raises for what a user can mend; anything else is a defect and shows where.
EXPLAINED = (OSError, ValueError, TypeError, NotImplementedError, ImportError, RuntimeError)


class Usage(Exception):
    """Arguments that make no sense together: exit status 2."""


Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write an HTML page about it.")
]
ExperimentFile = Annotated[
    Path | None,
    typer.Option("--experiment", metavar="FILE", help="TOML with network, data and options."),
]


def command(
    app: typer.Typer,
    name: str,
    example: str,
    *,
    data: Mapping[str, str] | None = None,
    kept: str = "nothing was written",
    prefix: str = "",
    section: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a command; its docstring is the help, its result the JSON.

    The function takes a `Shell` and the options, which an `--experiment` file can give as well.

    Args:
        app: where it belongs.
        name: of the command.
        example: of its use, at the end of its help; it works when it is pasted.
        data: for experiments: which keys of [data] give which options; None: no experiments.
        kept: what is true of files after Ctrl-C.
        prefix: of messages, by default the command.
        section: of experiments, by default the command.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(function)
        options = [p for p in own.parameters.values() if p.name != "shell"]
        if data is not None:
            experiments.declare(section or name, options, data)

        @functools.wraps(function)
        def run(ctx: Any, **given: Any) -> None:
            shell = Shell(prefix or name, given.pop("json"))
            debug, file = given.pop("debug"), given.pop("experiment", None)
            shell.report = given.pop("report", None)
            with _explained(shell, ctx.command_path.partition(" ")[2], debug, kept):
                start = time.perf_counter()
                if file is not None:
                    assert data is not None
                    chosen = {k for k in given if _on_command_line(ctx, k)}
                    given |= experiments.settings(section or name, file, data, chosen)
                shell.settings = {k: v for k, v in given.items() if v is not None}
                if shell.report is not None:
                    check_page(shell)
                result = function(shell, **given)
                if shell.report is not None:
                    write_page(shell, time.perf_counter() - start)
                if shell.json:
                    print(document(shell, result, time.perf_counter() - start))
                sys.stdout.flush()
            if shell.status:
                raise typer.Exit(shell.status)

        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = {"json": Json, "debug": Debug}
        if data is not None:
            shared = {"report": ReportFile, "experiment": ExperimentFile, **shared}
        added = [
            inspect.Parameter(
                k, keyword, default=False if k in ("json", "debug") else None, annotation=v
            )
            for k, v in shared.items()
        ]
        context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
        parameters = [p.replace(kind=keyword) for p in options]
        whole = own.replace(parameters=[context, *parameters, *added], return_annotation=None)
        setattr(run, "__signature__", whole)  # noqa: B010
        run.__annotations__ = {p.name: p.annotation for p in (context, *parameters, *added)}
        app.command(name, epilog=f"Example:  {example}")(run)
        return function

    return register


def _on_command_line(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@contextlib.contextmanager
def _explained(shell: Shell, name: str, debug: bool, kept: str) -> Iterator[None]:
    """Errors and warnings as one line on standard error, and the exit status."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: shell.note(f"warning: {message}")
            yield
    except KeyboardInterrupt:
        print(f"\nInterrupted: {kept}.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(reader_gone()) from None
    except Usage as error:
        shell.note(f"{error} See: limitformer {name} --help")
        raise typer.Exit(2) from None
    except EXPLAINED as error:
        if debug:
            raise
        notes = (note for note in getattr(error, "__notes__", ()) if "JAX" not in note)
        shell.note(" ".join(str(part) for part in (error, *notes)) or type(error).__name__)
        raise typer.Exit(1) from None
