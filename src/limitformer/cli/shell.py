"""What a running command has: results as text or JSON, notes, progress."""

import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("limitformer", "jax", "jaxlib", "numpy", "scipy", "equinox")


@dataclasses.dataclass(frozen=True)
class Shown:
    """A table that was shown; see `Shell.table`."""

    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    left: int


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A drawing for the page; see `Shell.draw`."""

    plot: Callable[[Any], Any]
    caption: str


@dataclasses.dataclass
class Shell:
    """A command that runs.

    Attributes:
        command: its name.
        json: whether the result goes to standard output as JSON instead of text.
        settings: what it was asked, for the JSON.
        status: the exit status at the end.
        report: page to write about the run, None for none.
        shown: what was shown so far, for the page: lines, tables and drawings.
        below_table: whether the last thing printed was a table; a line is left free below it.
    """

    command: str
    json: bool = False
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    status: int = 0
    report: Path | None = None
    shown: list[Any] = dataclasses.field(default_factory=list)
    below_table: bool = False

    def print(self, *lines: Any) -> None:
        """Text of the result on standard output; nothing with --json."""
        self.shown += lines
        if not self.json:
            print(*([""] if self.below_table else []), *lines, sep="\n")
            self.below_table = False

    def note(self, text: str) -> None:
        """Something that the reader should know, on standard error."""
        print(f"limitformer {self.command}: {text}", file=sys.stderr)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 1) -> None:
        """A table of the result, its first columns aligned left, the others right.

        Args:
            head: names of the columns; empty: two columns, a name and its value.
            rows: cells.
            left: how many columns are aligned left.
        """
        self.shown.append(Shown(tuple(head), tuple(tuple(row) for row in rows), left))
        if self.json:
            return
        from rich import box
        from rich.console import Console
        from rich.measure import Measurement
        from rich.table import Table

        console = Console(highlight=False, markup=False, emoji=False)
        table = Table(box=box.SIMPLE_HEAD, show_header=bool(head), show_edge=False, pad_edge=False)
        for i, name in enumerate(head or ("", "")):
            side = "left" if i < left or not head else "right"
            # on a narrow terminal the last column of text gives way, or else all do
            kept = left > 1 and i != left - 1
            table.add_column(name, justify=side, no_wrap=kept, overflow="fold")
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        if not console.is_terminal:  # a file has no width
            wide = console.options.update(max_width=10_000)
            console.width = Measurement.get(console, wide, table).maximum
        with console.capture() as text:
            console.print(table)
        print("", *(line.rstrip() for line in text.get().splitlines()), sep="\n")
        self.below_table = True

    def draw(self, plot: Callable[[Any], Any], caption: str) -> None:
        """A drawing on the page of the run, if there will be one.

        Args:
            plot: draws on the matplotlib Axes that it is given.
            caption: what it shows.
        """
        if self.report is not None:
            self.shown.append(Drawing(plot, caption))

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int, float], None] | bool]:
        """A bar with the time left on a terminal; nothing elsewhere.

        Yields:
            What the library takes as `progress=`: a function `(done, total, seconds left)`.
        """
        if not sys.stderr.isatty():
            yield False
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(24),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None, left="")

            def report(done: int, total: int, left: float) -> None:
                bar.update(task, completed=done, total=total, left=f"{left:.0f} s left")

            yield report


def versions() -> dict[str, str]:
    """Versions of what numbers depend on."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def document(shell: Shell, result: Any, seconds: float) -> str:
    """The JSON of a result, with what it depends on."""
    document = {
        "command": shell.command,
        "result": result,
        "settings": shell.settings,
        "versions": versions(),
        "seconds": round(seconds, 3),
    }
    return json.dumps(plain(document), allow_nan=False)


def plain(value: Any) -> Any:
    """Arrays as lists, dataclasses as tables, numbers that JSON has not as null or "inf".

    >>> plain({"a": float("nan"), "b": (1, float("inf"))})
    {'a': None, 'b': [1, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    as_list = getattr(value, "tolist", None)
    if as_list is not None:
        return plain(as_list())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
