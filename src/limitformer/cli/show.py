"""`limitformer show`: a network on one line, as a table with costs, and as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limitformer.cli.command import Usage, command
from limitformer.cli.experiments import INPUTS
from limitformer.cli.options import Data, Dtype, Force, Kinds, Mask, Net, Rows, X
from limitformer.cli.shell import Shell

if TYPE_CHECKING:
    from limitformer.files import Description

Shape = Annotated[
    str | None,
    typer.Option("--shape", metavar="N,N", help="Of an input, instead: tokens,features."),
]
Picture = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="Draw it: svg, png or pdf.")
]
Toml = Annotated[Path | None, typer.Option("--toml", metavar="FILE", help="Write it as TOML.")]


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer show vit --data digits --picture vit.svg --force"
    command(app, "show", example, data=INPUTS)(show)


def show(
    shell: Shell,
    net: Net = None,
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    mask: Mask = None,
    shape: Shape = None,
    kinds: Kinds = "both",
    dtype: Dtype = "float64",
    picture: Picture = None,
    toml: Toml = None,
    force: Force = False,
) -> dict:
    """Show a network as a line, a table and a picture, with the kernel's cost per layer.

    Costs need inputs: --data, --x or --shape.
    """
    import limitformer as lf
    from limitformer.cli.inputs import network
    from limitformer.cli.write import check_out, write_bytes
    from limitformer.plot.architecture import depths

    if picture is not None:
        check_out(picture, force, (".svg", ".png", ".pdf"))
    if toml is not None:
        check_out(toml, force, (".toml",))
    layers = network(net)
    sample, valid = _inputs(layers, data, rows, x, mask, shape)
    names = ("nngp", "ntk") if kinds == "both" else (kinds,)
    options = {} if sample is None else {"x_mask": valid, "kinds": names, "dtype": dtype}
    found = lf.files.describe(layers, sample, **options)
    shapes = {} if sample is None else _shapes(layers, sample, valid)
    shell.print(repr(layers))
    levels = depths([row.path for row in found.rows])
    table = [_row(row, n, found, shapes) for row, n in zip(found.rows, levels, strict=True)]
    head = ["layer", "hyper-parameters"]
    if found.plan is not None:
        head += ["kernel", "flops", "elements", "bytes", "time"]
    shell.table(head, [list(row.values())[: len(head)] for row in table], left=2)
    if found.plan is not None:
        p = found.plan
        drawn = f", {p.draws} score draws" if p.draws else ""
        shell.print(
            f"Shapes and costs are those of one pair of inputs. All {p.pairs} pairs: about "
            f"{p.seconds:.2g} s, {p.memory / 2**20:.0f} MiB{drawn}."
        )
    if toml is not None:
        write_bytes(toml, layers.to_toml().encode(), force)
        shell.print(f"written to {toml}")
    if picture is not None:
        write_bytes(picture, _draw(found, picture.suffix[1:]), force)
        shell.print(f"written to {picture}")
    return {
        "network": repr(layers),
        "toml": layers.to_toml(),
        "layers": [
            {
                "path": row.path,
                "layer": row.layer,
                "hyper_parameters": row.hyper_parameters,
                "kernel": shapes.get(row.path),
                "work": row.work,
                "share": row.share,
            }
            for row in found.rows
        ],
        "pairs": None if found.plan is None else found.plan.pairs,
        "seconds_planned": None if found.plan is None else found.plan.seconds,
        "memory": None if found.plan is None else found.plan.memory,
    }


def _inputs(layers, data, rows, x, mask, shape: str | None) -> tuple[Any, Any]:
    import numpy as np

    from limitformer.cli.inputs import inputs
    from limitformer.cli.numbers import numbers

    if shape is not None:
        if data is not None or x is not None:
            raise Usage("--shape stands for inputs; leave out --data and --x.")
        sizes = numbers(shape, "--shape")
        if min(sizes) < 1:
            raise Usage(f"--shape {shape}: expected sizes of at least 1, such as 16,8.")
        ids = len(sizes) == 1 and any("Embed" in row for row in repr(layers).split("("))
        return np.zeros((rows or 2, *sizes), int if ids else float), None
    if data is None and x is None:
        return None, None
    given = inputs(data, rows, x, mask=mask)
    return given.x, given.mask


def _row(row, level: int, found: "Description", shapes: dict) -> dict[str, str]:
    work = row.work
    size = found.plan.dtype.itemsize if found.plan is not None else 0
    tokens = shapes.get(row.path)
    return {
        "layer": "  " * level + row.layer,
        "hyper_parameters": row.hyper_parameters,
        "kernel": "" if tokens is None else f"{tokens[0]} × {tokens[1]}" if tokens else "number",
        "flops": f"{work.flops:.2g}" if work and work.flops else "",
        "elements": f"{work.elements:.2g}" if work else "",
        "bytes": f"{size * work.moved:.2g}" if work else "",
        "time": "" if row.share is None else f"{100 * row.share:.0f} %",
    }


def _shapes(layers, x, mask) -> dict[str, tuple[int, ...]]:
    """Shapes of a pair's kernel after every layer, by path, from a twin without numbers."""
    import re

    import jax
    import numpy as np

    from limitformer.kernel.inputs import as_arrays, streams_of

    array = as_arrays(x, "x")[0][:1]
    valid = None if mask is None else mask[:1]
    first = streams_of(layers, array, valid, "x", dtype=np.dtype(np.float32))[0]
    size: dict[str, Any] = (
        {"vocabulary": int(array.max()) + 1} if first.ids else {"features": array.shape[-1]}
    )

    def run(x):
        twin = layers.twin(key=jax.random.key(0), width=4, heads=2, tokens=first.grid, **size)
        return dict(twin.activations(x, key=jax.random.key(1)))

    try:
        kind = np.int32 if first.ids else np.float32
        seen = jax.eval_shape(run, jax.ShapeDtypeStruct(array.shape, kind))
    except (TypeError, ValueError, NotImplementedError):  # a network that has no twin
        return {}
    shapes = {}
    for name, value in seen.items():
        if hasattr(value, "shape"):
            path = re.sub(r"\[\d+\]", "/loop", name)
            shapes[path] = (value.shape[1],) * 2 if len(value.shape) == 3 else ()
    return shapes


def _draw(found: "Description", kind: str) -> bytes:
    import io

    from limitformer.extras import optional
    from limitformer.plot.architecture import figure_size, plot_architecture

    figure = optional("matplotlib.figure", "plot").Figure(
        figsize=figure_size(found), layout="constrained"
    )
    plot_architecture(found, figure.add_subplot())
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=150)
    return stream.getvalue()
