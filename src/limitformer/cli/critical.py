"""`limitformer critical`: the value of a hyper-parameter at which tokens stop collapsing."""

from typing import Annotated

import typer

from limitformer.cli.command import Usage, command
from limitformer.cli.experiments import INPUTS
from limitformer.cli.options import Data, Draws, Mask, Net, Rows, Seed, X
from limitformer.cli.shell import Shell

Parameter = Annotated[
    str, typer.Option("--parameter", metavar="NAME", help="In every layer that has it: qk_std, ...")
]
Low = Annotated[float, typer.Option("--low", metavar="V", help="Smallest value.")]
High = Annotated[float, typer.Option("--high", metavar="V", help="Largest value.")]
Metric = Annotated[
    str, typer.Option("--metric", metavar="NAME", help="cosine, residual, effective_rank, ...")
]
Target = Annotated[float, typer.Option("--target", metavar="V", help="The metric's value.")]


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer critical vit --target 0.3 --data digits --rows 2"
    command(app, "critical", example, data=INPUTS)(critical)


def critical(
    shell: Shell,
    net: Net = None,
    parameter: Parameter = "branch",
    low: Low = 0.01,
    high: High = 10.0,
    metric: Metric = "cosine",
    target: Target = 0.9,
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    mask: Mask = None,
    draws: Draws = None,
    seed: Seed = 0,
) -> dict:
    """Find the value of a hyper-parameter at which tokens stop collapsing.

    That is where a collapse metric of the last layer meets its target.
    """
    import dataclasses

    import limitformer as lf
    from limitformer.cli.inputs import inputs, network
    from limitformer.cli.numbers import draw_options, rounded, with_error
    from limitformer.gp.hyper import hyper_parameters
    from limitformer.layers.base import replace_fields

    layers = network(net)
    names = sorted({path.rpartition(".")[2] for path in hyper_parameters(layers)})
    if parameter not in names:
        raise Usage(f"--parameter {parameter} is in no layer; this network has {', '.join(names)}.")
    given = inputs(data, rows, x, mask=mask, default=4)
    found = lf.critical(
        lambda value: replace_fields(layers, parameter, value),
        given.x,
        low,
        high,
        metric=metric,
        target=target,
        x_mask=given.mask,
        log=low > 0,
        **draw_options(draws, seed),
    )
    shell.print(f"{layers!r}", f"on {given.text}")
    shell.table(
        (),
        [
            (f"{parameter} where {metric} = {target:g}", with_error(found.value, found.value_sem)),
            (f"{metric} at {low:g}", rounded(found.at_low)),
            (f"{metric} at {high:g}", rounded(found.at_high)),
            ("networks tried", found.tried),
        ],
    )
    return {"network": repr(layers), "parameter": parameter, **dataclasses.asdict(found)}
