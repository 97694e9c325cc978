"""The commands of `limitformer`, in the order of its help."""

from importlib import metadata
from typing import Annotated

import typer

from limitformer.cli import (
    bench,
    compare,
    critical,
    demo,
    doctor,
    explore,
    fit,
    gram,
    kernel,
    law,
    predict,
    rank,
    reproduce,
    show,
)

app = typer.Typer(
    epilog="Example:  limitformer kernel vit --data digits --rows 4",
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> bool:
    if asked:
        print(f"limitformer {metadata.version('limitformer')}")
        raise typer.Exit
    return asked


@app.callback()
def limitformer(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    """What attention networks become as heads, width and depth go to infinity."""


for module in (
    demo,
    explore,
    show,
    kernel,
    fit,
    predict,
    law,
    compare,
    critical,
    rank,
    gram,
    reproduce,
    bench,
    doctor,
):
    module.add(app)
