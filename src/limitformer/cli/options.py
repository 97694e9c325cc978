"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Net = Annotated[
    str | None,
    typer.Argument(
        metavar="NET", help="Network: a TOML file, or mlp, attention, transformer, vit."
    ),
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="NAME", help="digits, wine, breast_cancer or diabetes."),
]
Rows = Annotated[
    int | None, typer.Option("--rows", metavar="N", min=1, help="Use the first N inputs.")
]
X = Annotated[
    str | None,
    typer.Option("--x", metavar="FILE[:NAME]", help="Inputs: npy, npz, csv, parquet or zarr."),
]
Y = Annotated[str | None, typer.Option("--y", metavar="FILE[:NAME]", help="Targets or labels.")]
Mask = Annotated[
    str | None, typer.Option("--mask", metavar="FILE[:NAME]", help="True where a token is valid.")
]
Kinds = Annotated[Literal["nngp", "ntk", "both"], typer.Option("--kinds", help="Which kernels.")]
Draws = Annotated[
    int | None,
    typer.Option("--draws", metavar="N", min=1, help="Score draws of softmax attention."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of everything random.")]
Dtype = Annotated[
    Literal["float32", "float64"], typer.Option("--dtype", help="Type of the kernels.")
]
Memory = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Budget, such as 2GiB.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write npy, npz, csv, parquet or zarr."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
