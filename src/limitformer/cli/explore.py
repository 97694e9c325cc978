"""`limitformer explore`: a local page with sliders."""

from typing import Annotated

import typer

from limitformer.cli.command import command
from limitformer.cli.options import Net
from limitformer.cli.shell import Shell

Port = Annotated[
    int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: any that is free.")
]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")]


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "explore", "limitformer explore --no-browser --port 0")(explore)


def explore(
    shell: Shell, net: Net = None, port: Port = 8765, browser: Browser = True
) -> dict | None:
    """Explore a network in the browser: sliders, kernels, laws, depth. Ctrl-C ends it.

    The page is served on this machine only, and asks no other for anything.
    """
    from limitformer.cli.serve import serve

    toml = None
    if net is not None:
        from limitformer.cli.inputs import network

        toml = network(net).to_toml()
    shell.status = serve(port, browser, toml)
    return None
