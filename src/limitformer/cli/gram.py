"""`limitformer gram`: look after a Gram matrix that `lf.gram(store=)` writes."""

import argparse
import sys


def add(commands) -> None:
    """Add the command to the parser's commands."""
    gram = commands.add_parser(
        "gram",
        help="progress, checks and the rest of the work of a stored Gram matrix",
        description="Look after a Gram matrix that lf.gram(net, x, store=...) writes.",
    )
    actions = gram.add_subparsers(dest="action", required=True, metavar="action")
    texts = {
        "status": "how many tiles are finished",
        "verify": "check every checksum, and compute a random sample of tiles again",
        "resume": "compute the tiles that are missing or damaged",
    }
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("store", help="path or address, such as K.zarr")
        action.set_defaults(run=run)
        if name != "status":
            action.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask scheduler")
        if name == "verify":
            action.add_argument(
                "--sample", type=int, default=8, metavar="N", help="tiles to compute again"
            )
            action.add_argument("--repair", action="store_true", help="compute bad tiles again")


def run(arguments: argparse.Namespace) -> int:
    """Do it; 0 if the store is sound (and, for status and resume, complete), else 1."""
    from limitformer import tiles

    try:
        if arguments.action == "status":
            found = tiles.status(arguments.store)
            print(found)
            return 0 if found.complete else 1
        if arguments.action == "verify":
            checked = tiles.verify(
                arguments.store,
                sample=arguments.sample,
                repair=arguments.repair,
                scheduler=arguments.scheduler,
            )
            print(checked)
            return 0 if checked.sound else 1
        tiles.resume(arguments.store, scheduler=arguments.scheduler, progress=True)
        print(tiles.status(arguments.store))
        return 0
    except (OSError, ValueError, RuntimeError, ModuleNotFoundError) as error:
        print(f"limitformer gram: {error}", file=sys.stderr)
        return 1
