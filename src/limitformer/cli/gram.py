"""`limitformer gram`: Gram matrices in stores: compute, status, verify, resume."""

from typing import Annotated, Any

import typer

from limitformer.cli.command import Usage, command
from limitformer.cli.experiments import INPUTS
from limitformer.cli.options import Data, Draws, Dtype, Kinds, Mask, Memory, Net, Rows, Seed, X
from limitformer.cli.shell import Shell

_KEPT = "finished tiles are kept"

Store = Annotated[str, typer.Argument(metavar="STORE", help="Path or address, such as K.zarr.")]
NewStore = Annotated[
    str | None, typer.Option("--store", metavar="STORE", help="Path or address, such as K.zarr.")
]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Of a Dask scheduler.")
]
Tile = Annotated[
    int | None, typer.Option("--tile", metavar="N", min=1, help="Inputs on the side of a tile.")
]
Sample = Annotated[
    int, typer.Option("--sample", metavar="N", min=0, help="Tiles to compute again.")
]
Repair = Annotated[bool, typer.Option("--repair", help="Compute bad tiles again.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Gram matrices beyond memory: compute them into a store, look after it.",
        epilog="Example:  limitformer gram compute vit --data digits --rows 20 --store K.zarr",
        no_args_is_help=True,
    )
    common: dict[str, Any] = {"kept": _KEPT, "prefix": "gram"}
    example = "limitformer gram compute vit --data digits --rows 20 --store K.zarr"
    command(group, "compute", example, data=INPUTS, section="gram", **common)(compute)
    command(group, "status", "limitformer gram status K.zarr", **common)(status)
    command(group, "verify", "limitformer gram verify K.zarr --sample 2", **common)(verify)
    command(group, "resume", "limitformer gram resume K.zarr", **common)(resume)
    app.add_typer(group, name="gram")


def compute(
    shell: Shell,
    net: Net = None,
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    mask: Mask = None,
    store: NewStore = None,
    kinds: Kinds = "both",
    draws: Draws = None,
    seed: Seed = 0,
    dtype: Dtype = "float64",
    memory: Memory = None,
    tile: Tile = None,
    scheduler: Scheduler = None,
) -> dict:
    """Compute a Gram matrix tile by tile into a store; what a stopped run finished is kept."""
    import limitformer as lf
    from limitformer.cli.inputs import inputs, network
    from limitformer.cli.numbers import draw_options

    if store is None:
        raise Usage("where to? Give --store K.zarr.")
    layers = network(net)
    given = inputs(data, rows, x, mask=mask)
    with shell.progress("tiles") as progress:
        lf.gram(
            layers,
            given.x,
            x_mask=given.mask,
            kinds=("nngp", "ntk") if kinds == "both" else kinds,
            store=store,
            scheduler=scheduler,
            progress=progress,
            memory=memory,
            dtype=dtype,
            tile=tile,
            **draw_options(draws, seed),
        )
    return _status(shell, store)


def status(shell: Shell, store: Store) -> dict:
    """Show how many tiles are finished; exit status 1 if some are not."""
    found = _status(shell, store)
    shell.status = 0 if found["complete"] else 1
    return found


def verify(
    shell: Shell,
    store: Store,
    sample: Sample = 8,
    repair: Repair = False,
    scheduler: Scheduler = None,
) -> dict:
    """Check every checksum, and compute a random sample of tiles again."""
    import dataclasses

    from limitformer import tiles

    checked = tiles.verify(store, sample=sample, repair=repair, scheduler=scheduler)
    shell.print(checked)
    shell.status = 0 if checked.sound else 1
    return dataclasses.asdict(checked) | {"sound": checked.sound}


def resume(shell: Shell, store: Store, scheduler: Scheduler = None) -> dict:
    """Compute the tiles that are missing or damaged."""
    from limitformer import tiles

    with shell.progress("tiles") as progress:
        tiles.resume(store, scheduler=scheduler, progress=progress)
    return _status(shell, store)


def _status(shell: Shell, store: str) -> dict:
    import dataclasses

    from limitformer import tiles

    found = tiles.status(store)
    shell.print(found)
    return dataclasses.asdict(found) | {"complete": found.complete}
