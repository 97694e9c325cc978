"""`limitformer reproduce`: published tables and figures, computed again."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from limitformer.cli.command import Usage, command
from limitformer.cli.options import Force
from limitformer.cli.shell import Shell

SHARED = Path("../shared/data")
_CIFAR = SHARED / "cifar10_10k_2k.npz"
_IMDB = SHARED / "imdb_5k_2k.parquet"
_GLOVE = SHARED / "glove6b_100d_top50k_f16.npz"

Folder = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="For the files of the result.")
]
Name = Annotated[str | None, typer.Option("--name", help="Of the files in --out.")]
Train = Annotated[int, typer.Option("--train", metavar="N", help="Training inputs.")]
Validation = Annotated[int, typer.Option("--validation", metavar="N", help="Validation inputs.")]
Kinds = Annotated[str, typer.Option("--kinds", help="nngp, ntk or both.")]
Dtype = Annotated[Literal["float32", "float64"], typer.Option("--dtype")]
Seed = Annotated[int, typer.Option("--seed", metavar="N")]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="FOLDER", help="Keep kernels here; the same command goes on."),
]
Band = Annotated[int, typer.Option("--band", metavar="N", help="Inputs between reports.")]
Tokens = Annotated[int, typer.Option("--tokens", metavar="N", help="Of every text.")]
Samples = Annotated[int, typer.Option("--samples", metavar="N", help="Texts.")]
Texts = Annotated[str, typer.Option("--data", metavar="PATH", help="The texts, for lf.data.imdb.")]
Bert = Annotated[
    str | None, typer.Option("--model", metavar="FOLDER", help="Of a BERT; else MiniLM.")
]
Steps = Annotated[int, typer.Option("--steps", metavar="N", help="Of training.")]


def main(argv: Sequence[str]) -> int:
    """Run a reproduction: `limitformer reproduce` with these arguments."""
    from limitformer import cli

    return cli.main(["reproduce", *argv])


def add(app: typer.Typer) -> None:
    """Add the commands."""
    example = "limitformer reproduce sakai-5 --runs 200 --seeds 2"
    group = typer.Typer(
        help="Published tables and figures, computed again.",
        epilog=f"Example:  {example}",
        no_args_is_help=True,
    )

    def add_one(name: str, options: str, function: Callable[..., Any]) -> None:
        text = f"limitformer reproduce {name} {options}".rstrip()
        command(group, name, text, prefix="reproduce: error")(function)

    few = "--train 20 --validation 20"
    add_one("hron-cifar", f"--data cifar.npz --size 4 --depths 1 --qk 1 {few}", hron_cifar)
    add_one("hron-imdb", f"--data imdb.npz --tokens 5 {few}", hron_imdb)
    for figure in ("1", "2a", "2b", "3", "5"):
        add_one(f"sakai-{figure}", "--runs 200 --seeds 2", _sakai(figure))
    texts = "--data aclImdb --samples 2 --tokens 8"
    add_one("dong-residual", f"{texts} --width 64 --depth 2", dong_residual)
    add_one("dong-paths", f"{texts} --draws 2", dong_paths)
    add_one("dong-circle", "--widths 16 --steps 20 --seeds 1", dong_circle)
    add_one("dong-tasks", "--steps 600", dong_tasks)
    add_one("merge", "found/*.json --out merged --name table", merge)
    add_one("prepare", "cifar small.npz --data cifar.npz --force", prepare)
    app.add_typer(group, name="reproduce")


def hron_cifar(
    shell: Shell,
    size: Annotated[int, typer.Option("--size", metavar="N", help="Pixels a side (paper 32).")] = 8,
    depths: Annotated[str, typer.Option("--depths", metavar="N,N")] = "4,8,16,32",
    qk: Annotated[
        str | None, typer.Option("--qk", metavar="V,V", help="s_QK of vanilla attention.")
    ] = None,
    pilot: Annotated[
        int, typer.Option("--pilot", metavar="N", help="Images that choose among --qk.")
    ] = 600,
    readings: Annotated[Literal["paper", "all"], typer.Option("--readings")] = "paper",
    data: Annotated[str, typer.Option("--data", help="For lf.data.cifar10.")] = str(_CIFAR),
    train: Train = 2000,
    validation: Validation = 4000,
    kinds: Kinds = "nngp,ntk",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    band: Band = 1000,
    keep: Keep = None,
    out: Folder = None,
    name: Name = None,
) -> dict:
    """Figure 4 of Hron 2020: CIFAR-10 by readout and number of convolutions."""
    from limitformer.cli.numbers import numbers
    from limitformer.reproduce.hron_cifar import QK, hron_cifar

    return _shown(
        shell,
        hron_cifar(
            data,
            size=size,
            depths=numbers(depths, "--depths"),
            qk=QK if qk is None else numbers(qk, "--qk", float),
            pilot=pilot,
            readings=readings,
            train=train,
            validation=validation,
            kinds=tuple(kinds.split(",")),
            dtype=dtype,
            seed=seed,
            band=band,
            keep=keep,
            progress=sys.stderr.isatty(),
            report=_reporter(out, name or f"hron-cifar-{size}"),
        ),
    )


def hron_imdb(
    shell: Shell,
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", help="Tokens kept of a review.")
    ] = 100,
    data: Annotated[str, typer.Option("--data", help="For lf.data.imdb.")] = str(_IMDB),
    activations: Annotated[
        str, typer.Option("--activations", help="relu, erf, relu,erf.")
    ] = "relu",
    vectors: Annotated[str, typer.Option("--vectors", help="For lf.data.glove.")] = str(_GLOVE),
    train: Train = 3200,
    validation: Validation = 1600,
    kinds: Kinds = "nngp,ntk",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    band: Band = 1000,
    keep: Keep = None,
    out: Folder = None,
    name: Name = None,
) -> dict:
    """The IMDb table of Hron 2020."""
    from limitformer.reproduce.hron_imdb import hron_imdb

    return _shown(
        shell,
        hron_imdb(
            data,
            vectors,
            tokens=tokens,
            activations=tuple(activations.split(",")),
            train=train,
            validation=validation,
            kinds=tuple(kinds.split(",")),
            dtype=dtype,
            seed=seed,
            band=band,
            keep=keep,
            progress=sys.stderr.isatty(),
            report=_reporter(out, name or "hron-imdb"),
        ),
    )


def merge(
    shell: Shell,
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT...", help=".json files of earlier runs.")
    ],
    out: Folder = None,
    name: Name = None,
) -> dict:
    """One table of several runs of the same command."""
    from limitformer.reproduce.tables import Reproduction

    if out is None or name is None:
        raise Usage("where to? Give --out FOLDER and --name NAME.")
    result = Reproduction.merge([Reproduction.read(path) for path in results])
    result.write(out, name)
    return _shown(shell, result)


def _sakai(figure: str) -> Callable[..., Any]:
    def sakai(
        shell: Shell,
        runs: Annotated[
            int, typer.Option("--runs", metavar="N", help="Networks a point.")
        ] = 50_000,
        seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Repetitions.")] = 10,
        out: Folder = None,
    ) -> dict:
        from limitformer.reproduce.sakai_run import sakai

        found = sakai(figure, runs=runs, seeds=seeds, report=_line)
        return _kept(shell, found, out)

    sakai.__doc__ = f"Figure {figure} of Sakai 2025."
    return sakai


def dong_residual(
    shell: Shell,
    samples: Samples = 32,
    width: Annotated[
        int, typer.Option("--width", metavar="N", help="At random weights (paper 768).")
    ] = 256,
    depth: Annotated[int, typer.Option("--depth", metavar="N", help="At random weights.")] = 12,
    tokens: Tokens = 128,
    data: Texts = str(_IMDB),
    model: Bert = None,
    seed: Seed = 0,
    out: Folder = None,
) -> dict:
    """Figure 2 of Dong 2021: residual per layer, parts removed."""
    given = {"samples": samples, "width": width, "depth": depth}
    return _dong(shell, "residual", out, **given, tokens=tokens, data=data, folder=model, seed=seed)


def dong_paths(
    shell: Shell,
    samples: Samples = 4,
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", help="Paths per length and text.")
    ] = 16,
    tokens: Tokens = 128,
    data: Texts = str(_IMDB),
    model: Bert = None,
    seed: Seed = 0,
    out: Folder = None,
) -> dict:
    """Paths of a pretrained model, by length."""
    given = {"samples": samples, "draws": draws}
    return _dong(shell, "paths", out, **given, tokens=tokens, data=data, folder=model, seed=seed)


def dong_circle(
    shell: Shell,
    widths: Annotated[str, typer.Option("--widths", metavar="N,N")] = "32,64,128",
    steps: Steps = 3000,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Networks of each kind.")] = 3,
    seed: Seed = 0,
    out: Folder = None,
) -> dict:
    """Two points that should go round a circle."""
    from limitformer.cli.numbers import numbers

    sizes = numbers(widths, "--widths")
    return _dong(shell, "circle", out, widths=sizes, steps=steps, seeds=seeds, seed=seed)


def dong_tasks(shell: Shell, steps: Steps = 600, seed: Seed = 0, out: Folder = None) -> dict:
    """Sorting, convex hull, memorisation, by path."""
    return _dong(shell, "tasks", out, steps=steps, seed=seed)


def prepare(
    shell: Shell,
    which: Annotated[Literal["cifar", "imdb"], typer.Argument()],
    out: Annotated[Path, typer.Argument(metavar="FILE")],
    data: Annotated[str | None, typer.Option("--data", help="The published files.")] = None,
    vectors: Annotated[str, typer.Option("--vectors", help="For lf.data.glove.")] = str(_GLOVE),
    tokens: Tokens = 500,
    seed: Seed = 0,
    force: Force = False,
) -> dict:
    """The inputs in one small npz, for a machine without parquet."""
    from limitformer.cli.write import check_out
    from limitformer.reproduce import prepare

    check_out(out, force, (".npz",))

    if which == "cifar":
        prepare.cifar(data or _CIFAR, out, seed=seed)
    else:
        prepare.imdb(data or _IMDB, vectors, out, tokens=tokens, seed=seed)
    size = out.stat().st_size
    shell.print(f"{out}: {size / 2**20:.1f} MiB")
    return {"out": str(out), "bytes": size}


def _dong(shell: Shell, experiment: str, out: Path | None, **given: Any) -> dict:
    from limitformer.reproduce.dong_run import dong

    return _kept(shell, dong(experiment, report=_line, **given), out)


def _kept(shell: Shell, found: Any, out: Path | None) -> dict:
    if out is not None:
        found.write(out)
    return _shown(shell, found)


def _shown(shell: Shell, found: Any) -> dict:
    shell.print(found.markdown())
    return json.loads(found.to_json())


def _line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _reporter(out: Path | None, name: str) -> Callable[[Any], None]:
    def report(result: Any) -> None:
        rows = result.rows
        _line(f"\n{result.seconds:.0f} s, {rows[0].n} validation points")
        _line(result.table())
        if out is not None:
            result.write(out, name)

    return report
