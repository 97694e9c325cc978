"""`limitformer kernel`: NNGP and NTK of a network on some inputs."""

from typing import Annotated

import typer

from limitformer.cli.command import command
from limitformer.cli.experiments import INPUTS
from limitformer.cli.options import (
    Data,
    Draws,
    Dtype,
    Force,
    Kinds,
    Mask,
    Memory,
    Net,
    Out,
    Rows,
    Seed,
    X,
)
from limitformer.cli.shell import Shell

_PRINTED = 10**6  # numbers in a JSON document, at most
_CORNER = 6  # inputs of the printed corner

Against = Annotated[
    str | None,
    typer.Option("--against", metavar="FILE[:NAME]", help="Other inputs: K(against, x)."),
]


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer kernel vit --data digits --rows 4"
    command(app, "kernel", example, data=INPUTS)(kernel)


def kernel(
    shell: Shell,
    net: Net = None,
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    mask: Mask = None,
    against: Against = None,
    kinds: Kinds = "both",
    draws: Draws = None,
    seed: Seed = 0,
    dtype: Dtype = "float64",
    memory: Memory = None,
    out: Out = None,
    force: Force = False,
) -> dict:
    """Compute the kernels (NNGP, NTK) of a network on inputs."""
    import numpy as np

    from limitformer import plot
    from limitformer.cli.inputs import inputs, network
    from limitformer.cli.numbers import draw_options, rounded
    from limitformer.cli.read import read
    from limitformer.cli.write import check_out, write

    if out is not None:
        check_out(out, force)
    layers = network(net)
    given = inputs(data, rows, x, mask=mask)
    left, left_mask = given.x, given.mask
    right, right_mask = None, None
    if against is not None:
        left, left_mask = read(against, "--against"), None
        right, right_mask = given.x, given.mask
    names = ("nngp", "ntk") if kinds == "both" else (kinds,)
    with shell.progress("kernel") as progress:
        found = layers.kernel(
            left,
            right,
            left_mask,
            right_mask,
            kinds=names,
            dtype=dtype,
            memory=memory,
            progress=progress,
            **draw_options(draws, seed),
        )
    values = {kind: np.asarray(getattr(found, kind)) for kind in names}
    errors = {
        kind: None
        if getattr(found, f"{kind}_sem") is None
        else np.asarray(getattr(found, f"{kind}_sem"))
        for kind in names
    }
    summary = {kind: _summary(values[kind], errors[kind], against is None) for kind in names}
    shape = next(iter(values.values())).shape
    shell.print(f"{layers!r}", f"on {given.text}: {' × '.join(map(str, shape))} {dtype}")
    shell.table(
        ("kernel", "mean of diagonal", "smallest", "largest", "largest standard error"),
        [
            (
                kind.upper(),
                rounded(s["mean_of_diagonal"]),
                rounded(s["smallest"]),
                rounded(s["largest"]),
                "exact" if s["largest_sem"] is None else rounded(s["largest_sem"]),
            )
            for kind, s in summary.items()
        ],
    )
    for kind in names if len(shape) == 2 else ():
        shell.draw(
            lambda ax, kind=kind: plot.plot_gram(values[kind], ax, label=kind.upper()),
            f"{kind.upper()} of the inputs.",
        )
        corner = values[kind][:_CORNER, :_CORNER]
        shell.print(f"{kind.upper()}{'' if shape == corner.shape else ', first rows and columns'}")
        shell.print(np.array2string(corner, precision=4, suppress_small=True))
    result: dict = {"network": repr(layers), "shape": shape, "draws": found.draws, **summary}
    written = {name: values[name] for name in names}
    written |= {f"{name}_sem": errors[name] for name in names if errors[name] is not None}
    if out is not None:
        path = write(out, written, force)
        shell.print(f"written to {path}: {', '.join(written)}")
        return result | {"out": str(path)}
    if shell.json:
        if sum(v.size for v in written.values()) > _PRINTED:
            raise ValueError(f"{shape} numbers are too many for JSON; write them with --out K.npz")
        result |= {name: result.get(name, {}) for name in names}
        for name in names:
            result[name] |= {"values": values[name], "sem": errors[name]}
    return result


def _summary(values, sem, symmetric: bool) -> dict:
    import numpy as np

    own = None
    if symmetric:
        own = np.diagonal(values, axis1=0, axis2=1)
        own = np.diagonal(own, axis1=0, axis2=1) if values.ndim == 4 else own
    return {
        "mean_of_diagonal": None if own is None else float(own.mean()),
        "smallest": float(values.min()),
        "largest": float(values.max()),
        "largest_sem": None if sem is None else float(sem.max()),
    }
