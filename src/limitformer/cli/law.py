"""`limitformer law`: the law of outputs with finitely many heads."""

from typing import Annotated

import typer

from limitformer.cli.command import command
from limitformer.cli.experiments import INPUTS
from limitformer.cli.options import Data, Force, Mask, Memory, Net, Out, Rows, Seed, X
from limitformer.cli.shell import Shell

GAUSSIAN_TAIL = 0.0026998  # P(|z| > 3)

Heads = Annotated[
    int | None, typer.Option("--heads", metavar="H", min=1, help="Heads; else those of the file.")
]
LawDraws = Annotated[int, typer.Option("--draws", metavar="N", min=2, help="Draws of the scores.")]


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer law attention --heads 1 --data digits --rows 2 --draws 200"
    command(app, "law", example, data=INPUTS)(law)


def law(
    shell: Shell,
    net: Net = None,
    heads: Heads = None,
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    mask: Mask = None,
    draws: LawDraws = 1000,
    seed: Seed = 0,
    memory: Memory = None,
    out: Out = None,
    force: Force = False,
) -> dict:
    """Show how far from Gaussian the outputs of a network with finitely many heads are.

    Given its attention scores an output is Gaussian; --out keeps the variances of all draws.
    """
    import jax

    from limitformer import plot
    from limitformer.cli.inputs import finite_heads, inputs, network
    from limitformer.cli.numbers import rounded, with_error
    from limitformer.cli.write import check_out, write
    from limitformer.heads.distance import distances

    if out is not None:
        check_out(out, force)
    layers = network(net)
    layers = layers if heads is None else layers.with_heads(heads)
    if not finite_heads(layers):
        raise ValueError(
            "this network has infinitely many heads (or none whose scores are random), so its "
            "outputs are Gaussian; say how many: --heads 4"
        )
    given = inputs(data, rows, x, mask=mask, default=4)
    with shell.progress("draws") as progress:
        found = layers.law(
            given.x,
            key=jax.random.key(seed),
            draws=draws,
            x_mask=given.mask,
            memory=memory,
            progress=progress,
        )
        points = found.variances.shape[1]
        kurtosis, spread, mean = found.kurtosis, found.second_moment_spread, found.variances.mean(0)
        sem = found.variances.std(0, ddof=1) / draws**0.5
        tails = [found.tail(3 * mean[i] ** 0.5, i) for i in range(points)]
        kl = [distances(found, i).kl for i in range(points)]
    shell.print(f"{layers!r}", f"on {given.text}, {draws} draws")
    shell.table(
        ("input", "variance", "its spread", "excess kurtosis", "P(|y| > 3 sd)", "KL from Gaussian"),
        [
            (
                i,
                with_error(mean[i], sem[i]),
                with_error(spread.value[i], spread.sem[i]),
                with_error(kurtosis.value[i], kurtosis.sem[i]),
                with_error(float(tails[i].value), float(tails[i].sem)),
                with_error(kl[i].value, kl[i].sem),
            )
            for i in range(min(points, 20))
        ],
    )
    shell.draw(
        lambda ax: plot.plot_density(found, ax, label="this network"),
        "Density of the first input's output, against the Gaussian of the same variance.",
    )
    shell.print(f"A Gaussian has spread 0, kurtosis 0, P = {rounded(GAUSSIAN_TAIL, 2)} and KL 0.")
    result = {
        "network": repr(layers),
        "inputs": given.text,
        "draws": draws,
        "variance": {"value": mean, "sem": sem},
        "spread": {"value": spread.value, "sem": spread.sem},
        "excess_kurtosis": {"value": kurtosis.value, "sem": kurtosis.sem},
        "tail": {
            "value": [float(t.value) for t in tails],
            "sem": [float(t.sem) for t in tails],
            "gaussian": GAUSSIAN_TAIL,
        },
        "kl": {
            "value": [d.value for d in kl],
            "sem": [d.sem for d in kl],
            "floor": [d.floor for d in kl],
        },
    }
    if out is not None:
        write(out, {"variance": found.variances}, force)
        shell.print(f"written to {out}: variance {found.variances.shape}, a row per draw")
        result["out"] = str(out)
    return result
