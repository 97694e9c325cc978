"""`limitformer compare`: a network against its finite twins."""

from typing import Annotated

import typer

from limitformer.cli.command import command
from limitformer.cli.experiments import INPUTS
from limitformer.cli.options import Data, Mask, Net, Rows, Seed, X
from limitformer.cli.shell import Shell

DRAWS = 4096  # of the limit, where it is an estimate
AGREE = 5.0  # standard errors

Widths = Annotated[str, typer.Option("--widths", metavar="W,W", help="Of the twins, at least two.")]
Networks = Annotated[
    int, typer.Option("--networks", metavar="N", min=2, help="Twins of each width.")
]
TwinHeads = Annotated[
    int, typer.Option("--heads", metavar="H", min=1, help="Of the narrowest; they grow alike.")
]


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer compare mlp --data wine --rows 3 --networks 16"
    command(app, "compare", example, data=INPUTS)(compare)


def compare(
    shell: Shell,
    net: Net = None,
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    mask: Mask = None,
    widths: Widths = "64,128",
    networks: Networks = 50,
    heads: TwinHeads = 4,
    seed: Seed = 0,
) -> dict:
    """Compare the kernels of a network with those of finite networks of growing width.

    The last row is the line through the widths, in 1/width, at infinite width: its z-scores
    against the limit should look like those of a standard normal.
    """
    import jax
    import numpy as np

    from limitformer.cli import twins
    from limitformer.cli.inputs import inputs, network
    from limitformer.cli.numbers import numbers

    sizes = numbers(widths, "--widths")
    layers = network(net)
    given = inputs(data, rows, x, mask=mask, default=4)
    with shell.progress("widths") as progress:
        found = twins.compare(
            layers,
            given.x,
            given.mask,
            key=jax.random.key(seed),
            widths=sizes,
            networks=networks,
            heads=heads,
            draws=DRAWS,
            progress=progress,
        )
    summary = [
        {
            "width": c.width,
            "heads": c.heads,
            "networks": c.networks,
            **{
                kind: {
                    "relative_error": c.error[kind],
                    "rms_z": float(np.sqrt(np.mean(c.z[kind] ** 2))),
                    "largest_z": float(np.abs(c.z[kind]).max()),
                }
                for kind in c.z
            },
        }
        for c in found
    ]
    shell.print(f"{layers!r}", f"on {given.text}, {len(found[0].z['nngp'])} entries of each kernel")
    shell.table(
        ("width", "networks", "NNGP error", "rms z", "max |z|", "NTK error", "rms z", "max |z|"),
        [
            (
                "∞ (line in 1/width)" if s["width"] is None else s["width"],
                "" if s["networks"] is None else s["networks"],
                *(
                    text
                    for kind in ("nngp", "ntk")
                    for text in (
                        f"{100 * s[kind]['relative_error']:.2f} %",
                        f"{s[kind]['rms_z']:.1f}",
                        f"{s[kind]['largest_z']:.1f}",
                    )
                ),
            )
            for s in summary
        ],
    )
    shell.draw(
        lambda ax: _errors(ax, summary), "Relative error of the twins' kernels against their width."
    )
    largest = max(summary[-1][kind]["largest_z"] for kind in ("nngp", "ntk"))
    agree = largest < AGREE
    shell.print(
        f"The twins agree with the limit: no entry is more than {largest:.1f} standard errors away."
        if agree
        else f"An entry is {largest:.1f} standard errors away from the limit; try wider twins, for "
        "which a line in 1/width is closer."
    )
    return {
        "network": repr(layers),
        "inputs": given.text,
        "rows": summary,
        "agree": agree,
        "extrapolated": {
            kind: {"value": found[-1].value[kind], "sem": found[-1].sem[kind]}
            for kind in found[-1].value
        },
    }


def _errors(ax, summary: list[dict]) -> None:
    """Errors by width, on logarithmic axes."""
    finite = [row for row in summary if row["width"] is not None]
    for kind in ("nngp", "ntk"):
        errors = [row[kind]["relative_error"] for row in finite]
        ax.loglog([row["width"] for row in finite], errors, "o-", label=kind.upper())
    ax.set_xlabel("width")
    ax.set_ylabel("relative error")
    ax.grid(axis="y")
    ax.legend()
