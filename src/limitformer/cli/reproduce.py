"""`limitformer reproduce`: published tables and figures, computed again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from limitformer.reproduce.tables import Reproduction

SHARED = Path("../shared/data")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a reproduction; results go to standard output, and into files with --out.

    Args:
        argv: the arguments after the program's name; None: those of the process.

    Returns:
        The exit status: 0, or 1 for an error that was explained.
    """
    arguments = _parser().parse_args(argv)
    try:
        result = arguments.run(arguments)
    except (FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if result is not None:
        print(result.markdown())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="limitformer reproduce", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    cifar = commands.add_parser(
        "hron-cifar", help="figure 4 of Hron 2020: CIFAR-10 by readout and number of convolutions"
    )
    cifar.add_argument("--size", type=int, default=8, help="pixels a side (default 8; paper 32)")
    cifar.add_argument("--depths", type=_numbers, default=(4, 8, 16, 32), metavar="4,8,16,32")
    cifar.add_argument("--qk", type=_floats, default=None, help="s_QK of vanilla attention")
    cifar.add_argument(
        "--pilot", type=int, default=600, help="training images that choose among --qk (600)"
    )
    cifar.add_argument("--readings", default="paper", choices=("paper", "all"))
    cifar.add_argument("--data", default=SHARED / "cifar10_10k_2k.npz", help="for lf.data.cifar10")
    _common(cifar, 2000, 4000)
    cifar.set_defaults(run=_cifar)
    imdb = commands.add_parser("hron-imdb", help="the IMDb table of Hron 2020")
    imdb.add_argument("--tokens", type=int, default=100, help="tokens kept of a review")
    imdb.add_argument("--data", default=SHARED / "imdb_5k_2k.parquet", help="for lf.data.imdb")
    imdb.add_argument("--activations", default="relu", help="relu, erf or both: relu,erf")
    imdb.add_argument("--vectors", default=SHARED / "glove6b_100d_top50k_f16.npz")
    _common(imdb, 3200, 1600)
    imdb.set_defaults(run=_imdb)
    merge = commands.add_parser("merge", help="one table of several runs of the same command")
    merge.add_argument("results", type=Path, nargs="+", help=".json files of earlier runs")
    merge.add_argument("--out", type=Path, required=True, help="folder for the .md and .json")
    merge.add_argument("--name", required=True, help="of the files in --out")
    merge.set_defaults(run=_merge)
    for name in ("1", "2a", "2b", "3", "5"):
        figure = commands.add_parser(f"sakai-{name}", help=f"figure {name} of Sakai 2025")
        figure.add_argument("--runs", type=int, default=50_000, help="networks a point (50,000)")
        figure.add_argument("--seeds", type=int, default=10, help="repetitions (default 10)")
        figure.add_argument("--out", type=Path, default=None, help="folder for .md, .json, .png")
        figure.set_defaults(run=_sakai, figure=name)
    _dong_parsers(commands)
    prepare = commands.add_parser(
        "prepare",
        help="the inputs in one small npz, for a machine without parquet",
    )
    prepare.add_argument("which", choices=("cifar", "imdb"))
    prepare.add_argument("out", type=Path)
    prepare.add_argument("--data", default=None)
    prepare.add_argument("--vectors", default=SHARED / "glove6b_100d_top50k_f16.npz")
    prepare.add_argument("--tokens", type=int, default=500)
    prepare.add_argument("--seed", type=int, default=0)
    prepare.set_defaults(run=_prepare)
    return parser


def _dong_parsers(commands) -> None:
    residual = commands.add_parser(
        "dong-residual", help="figure 2 of Dong 2021: residual per layer, parts removed"
    )
    residual.add_argument("--samples", type=int, default=32, help="texts (default 32)")
    residual.add_argument("--width", type=int, default=256, help="at random weights (paper 768)")
    residual.add_argument("--depth", type=int, default=12, help="at random weights (default 12)")
    paths = commands.add_parser("dong-paths", help="paths of a pretrained model, by length")
    paths.add_argument("--samples", type=int, default=4, help="texts (default 4)")
    paths.add_argument("--draws", type=int, default=16, help="paths per length and text (16)")
    for parser in (residual, paths):
        parser.add_argument("--tokens", type=int, default=128, help="of every text (default 128)")
        parser.add_argument("--data", default=SHARED / "imdb_5k_2k.parquet", help="the texts")
        parser.add_argument("--model", dest="folder", default=None, help="of a BERT; else MiniLM")
    circle = commands.add_parser("dong-circle", help="two points that should go round a circle")
    circle.add_argument("--widths", type=_numbers, default=(32, 64, 128), metavar="32,64,128")
    circle.add_argument("--steps", type=int, default=3000, help="of training (default 3000)")
    circle.add_argument("--seeds", type=int, default=3, help="networks of each kind (default 3)")
    tasks = commands.add_parser("dong-tasks", help="sorting, convex hull, memorisation, by path")
    tasks.add_argument("--steps", type=int, default=600, help="of training (default 600)")
    for name, parser in (
        ("residual", residual),
        ("paths", paths),
        ("circle", circle),
        ("tasks", tasks),
    ):
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--out", type=Path, default=None, help="folder for .md, .json, .png")
        parser.set_defaults(run=_dong, experiment=name)


def _common(parser: argparse.ArgumentParser, train: int, validation: int) -> None:
    parser.add_argument("--train", type=int, default=train)
    parser.add_argument("--validation", type=int, default=validation)
    parser.add_argument("--kinds", default="nngp,ntk", help="nngp, ntk or both (default both)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--band", type=int, default=1000, help="validation points between reports")
    parser.add_argument("--out", type=Path, default=None, help="folder for the .md and .json")
    parser.add_argument("--name", default=None, help="of the files in --out")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _reporter(arguments, name: str):
    name = arguments.name or name

    def report(result: Reproduction) -> None:
        rows = result.rows
        print(f"\n{result.seconds:.0f} s, {rows[0].n} validation points", file=sys.stderr)
        print(result.table(), file=sys.stderr, flush=True)
        if arguments.out is not None:
            result.write(arguments.out, name)

    return report


def _shared(arguments, name: str) -> dict:
    return {
        "train": arguments.train,
        "validation": arguments.validation,
        "kinds": tuple(arguments.kinds.split(",")),
        "dtype": arguments.dtype,
        "seed": arguments.seed,
        "band": arguments.band,
        "progress": True,
        "report": _reporter(arguments, name),
    }


def _cifar(arguments):
    from limitformer.reproduce.hron_cifar import QK, hron_cifar

    return hron_cifar(
        arguments.data,
        size=arguments.size,
        depths=arguments.depths,
        qk=arguments.qk or QK,
        pilot=arguments.pilot,
        readings=arguments.readings,
        **_shared(arguments, f"hron-cifar-{arguments.size}"),
    )


def _imdb(arguments):
    from limitformer.reproduce.hron_imdb import hron_imdb

    return hron_imdb(
        arguments.data,
        arguments.vectors,
        tokens=arguments.tokens,
        activations=tuple(arguments.activations.split(",")),
        **_shared(arguments, "hron-imdb"),
    )


def _merge(arguments):
    result = Reproduction.merge([Reproduction.read(path) for path in arguments.results])
    result.write(arguments.out, arguments.name)
    return result


def _sakai(arguments):
    from limitformer.reproduce.sakai_run import sakai

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    found = sakai(arguments.figure, runs=arguments.runs, seeds=arguments.seeds, report=report)
    if arguments.out is not None:
        found.write(arguments.out)
    return found


def _dong(arguments):
    from limitformer.reproduce.dong_run import dong

    shell = ("command", "run", "experiment", "out")
    given = {name: value for name, value in vars(arguments).items() if name not in shell}

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    found = dong(arguments.experiment, report=report, **given)
    if arguments.out is not None:
        found.write(arguments.out)
    return found


def _prepare(arguments):
    from limitformer.reproduce import prepare

    if arguments.which == "cifar":
        data = arguments.data or SHARED / "cifar10_10k_2k.npz"
        prepare.cifar(data, arguments.out, seed=arguments.seed)
    else:
        data = arguments.data or SHARED / "imdb_5k_2k.parquet"
        prepare.imdb(
            data, arguments.vectors, arguments.out, tokens=arguments.tokens, seed=arguments.seed
        )
    print(f"{arguments.out}: {arguments.out.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())
