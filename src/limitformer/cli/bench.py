"""`limitformer bench`: how fast this machine computes a kernel, and how fast it could."""

import time
from typing import Annotated, Any

import typer

from limitformer.cli.command import command
from limitformer.cli.experiments import INPUTS
from limitformer.cli.options import Data, Dtype, Kinds, Mask, Net, Rows, X
from limitformer.cli.shell import Shell

_MEASURED = 3  # times that every rate is measured

Repeats = Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Best of N runs.")]


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer bench vit --data digits --rows 20"
    command(app, "bench", example, data=INPUTS)(bench)


def bench(
    shell: Shell,
    net: Net = "vit",
    data: Data = None,
    rows: Rows = None,
    x: X = None,
    mask: Mask = None,
    kinds: Kinds = "both",
    dtype: Dtype = "float64",
    repeats: Repeats = 3,
) -> dict:
    """Measure this machine and a kernel on it: time per pair, against what its rates allow."""
    import jax

    from limitformer.cli.inputs import inputs, network
    from limitformer.cli.numbers import rounded
    from limitformer.kernel.plan import _seconds

    layers = network(net)
    if data is None and x is None:
        data = "digits"
    given = inputs(data, rows, x, mask=mask)
    names = ("nngp", "ntk") if kinds == "both" else (kinds,)
    options = {"x_mask": given.mask, "kinds": names, "dtype": dtype}
    rates = {name: _rates(name) for name in ("float32", "float64")}
    plan = layers.plan(given.x, **options)
    times = []
    with shell.progress("runs") as progress:
        for turn in range(repeats + 1):
            start = time.perf_counter()
            k = layers.kernel(given.x, **options)
            jax.block_until_ready([v for v in (k.nngp, k.ntk) if v is not None])
            times.append(time.perf_counter() - start)
            if callable(progress):
                progress(turn + 1, repeats + 1, times[-1] * (repeats - turn))
    best = min(times[1:])
    us = 1e6 * best / plan.pairs
    floor = 1e6 * sum(_seconds(work, rates[dtype], plan.dtype) for work in plan.layers.values())
    device = jax.devices()[0]
    shell.print(f"{layers!r}", f"{'+'.join(names)} on {given.text}, in {dtype}, on {device}")
    shell.table(
        ("this machine", "products", "exponentials", "memory"),
        [
            (
                name,
                f"{1e-9 * r.flops:.0f} Gflop/s",
                f"{1e-6 * r.elements:.0f} M/s",
                f"{1e-9 * r.bytes:.1f} GB/s",
            )
            for name, r in rates.items()
        ],
    )
    shell.table(
        (),
        [
            ("pairs", plan.pairs),
            ("first run, compilation included", f"{times[0]:.2f} s"),
            (f"best of {repeats}", f"{best:.4f} s"),
            ("per pair", f"{rounded(us, 3)} µs"),
            ("per pair at this machine's rates", f"{rounded(floor, 3)} µs"),
            ("share of those rates", f"{100 * floor / us:.0f} %"),
        ],
    )
    return {
        "network": repr(layers),
        "inputs": given.text,
        "device": str(device),
        "rates": {
            name: {"flops": r.flops, "elements": r.elements, "bytes": r.bytes}
            for name, r in rates.items()
        },
        "pairs": plan.pairs,
        "seconds_first": times[0],
        "seconds": times[1:],
        "us_per_pair": us,
        "us_per_pair_at_rates": floor,
        "share_of_rates": floor / us,
    }


def _rates(dtype: str) -> Any:
    """The machine's rates, each the best of several measurements: others may use it too."""
    from limitformer.kernel.plan import Rates, machine_rates

    found = [machine_rates.__wrapped__(dtype) for _ in range(_MEASURED)]
    return Rates(*(max(getattr(r, name) for r in found) for name in ("flops", "elements", "bytes")))
