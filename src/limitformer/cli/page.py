"""`--report`: one self-contained HTML page about the run of a command."""

import datetime
import shlex
import sys
from typing import Any

from limitformer.cli.shell import Drawing, Shell, Shown


def check_page(shell: Shell) -> None:
    """Refuse a page that would replace something else, before any work."""
    from limitformer.extras import optional
    from limitformer.report.files import check_target

    optional("matplotlib.figure", "plot")
    assert shell.report is not None
    check_target(shell.report, _generator(shell))


def write_page(shell: Shell, seconds: float) -> None:
    """Write what was shown, with what it depends on."""
    from limitformer.report import html
    from limitformer.report.files import write_report
    from limitformer.report.provenance import provenance

    assert shell.report is not None
    command = shlex.join(["limitformer", *sys.argv[1:]])
    date = datetime.datetime.now().astimezone()
    first, *rest = [_block(part, i) for i, part in enumerate(shell.shown)]
    page = html.page(
        f"limitformer {shell.command}",
        first,
        [
            html.section("Result", *rest),
            provenance(shell.settings, {"all": seconds}, command, date),
        ],
        generator=_generator(shell),
        footer=f"{date:%d %B %Y, %H:%M}. The page stands alone: keep it, mail it, print it.",
    )
    write_report(shell.report, page, _generator(shell))
    shell.print(f"report: {shell.report.resolve().as_uri()}")


def _generator(shell: Shell) -> str:
    return f"limitformer {shell.command}"


def _block(part: Any, i: int) -> Any:
    """A paragraph, a table or a figure."""
    from limitformer.report import html
    from limitformer.report.figures import drawing

    if isinstance(part, Drawing):
        return html.figure(
            drawing(part.plot, f"figure-{i}", part.caption), part.caption, narrow=True
        )
    if isinstance(part, Shown):
        head = part.head or ("", "")
        sides = "l" * (part.left if part.head else 2) + "r" * len(head)
        rows = [[html.escape(str(cell)) for cell in row] for row in part.rows]
        return html.table(head, rows, "", sides[: len(head)])
    return html.Markup(f"<p>{html.escape(str(part))}</p>")
