"""Each GPU program of limitformer beside XLA on the same GPU: time and error, to decide its use.

    python benchmarks/gpu_programs.py [--only tokens|positions] [--entries 512 1024] [--quick]

Whole networks of few tokens (`kernel.whole`), and the diagonal after attention to positions
(`kernel.fused.AXES`). Errors are relative to float64 on a few pairs. --quick takes one small case
of each, interpreted, to try the script on a CPU.
"""

from __future__ import annotations

import argparse
import functools
import time

import gpu
import jax
import jax.numpy as jnp
import numpy as np

import limitformer as lf
from limitformer.kernel import fused, programs, whole

rng = np.random.default_rng(0)
SIDES = {16: 4096, 32: 4096, 64: 2048, 128: 1024}  # inputs a side, by tokens


def identity(tokens: int):
    """Case c of the peer's table: identity attention at scale "sqrt"."""
    block = lf.Serial(
        lf.Residual(lf.Attention(scale="sqrt", weights="identity", qk_std=1 / tokens)),
        lf.LayerNorm(),
        lf.Residual(lf.Dense(1.3, 0.4), lf.Relu(), lf.Dense(1.3, 0.4)),
    )
    return lf.Serial(lf.Dense(), lf.Repeat(block, 4), lf.MeanPool(), lf.Dense())


CASES = (  # name, network, tokens, masks
    *(("identity, sqrt", identity, S, False) for S in SIDES),
    *(("identity, sqrt, masks", identity, S, True) for S in (64, 128)),
    *(("softmax, linear", lambda _: gpu.blocks(), S, False) for S in (16, 32)),
)


def inputs(n: int, *shape: int, masks: bool = False) -> dict:
    """Both sides; masked ones have half of their tokens or more."""
    found = {name: rng.normal(size=(n, *shape)).astype(np.float32) for name in "xy"}
    if masks:
        least = shape[0] // 2
        lengths = rng.integers(least, shape[0] + 1, size=(2, n, 1))
        found |= {f"{k}_mask": np.arange(shape[0]) < m for k, m in zip("xy", lengths, strict=True)}
    return found


def microseconds(net, given) -> float:
    """Of one pair, NNGP and NTK: the best of three calls after one that compiles."""
    jax.clear_caches()
    times = []
    for _ in range(4):
        start = time.perf_counter()
        net.kernel(**given)
        times.append(time.perf_counter() - start)
    return min(times[1:]) / (len(given["x"]) * len(given["y"])) * 1e6


def error(net, given) -> float:
    """Of the first four inputs on both sides, relative to float64."""
    jax.clear_caches()
    few = {name: a[:4] for name, a in given.items()}
    exact = {name: a if a.dtype == bool else a.astype(float) for name, a in few.items()}
    found, exact = net.kernel(**few), net.kernel(**exact)
    return max(
        float(np.abs(getattr(found, k) / getattr(exact, k) - 1).max()) for k in ("nngp", "ntk")
    )


def line(name, *rest) -> None:
    print(f"| {name} | " + " | ".join(rest) + " |", flush=True)


def small_networks(cases, sides, entries) -> None:
    """XLA, then programs with so many entries of a token kernel for each warp."""
    usual = whole._ENTRIES
    entries = [(e,) * len(usual) for e in entries] or [usual]
    names = [str(max(e)) if len({*e}) == 1 else "one program" for e in entries]
    print("\n| network | tokens | XLA, us a pair |", *(f"{name} |" for name in names), "error |")
    print("|---|--:|--:|" + "--:|" * (len(entries) + 1), flush=True)
    for name, build, S, masks in cases:
        net, given = build(S), inputs(sides[S], S, 16, masks=masks)
        tokens, whole.TOKENS = whole.TOKENS, ()
        times = [microseconds(net, given)]
        whole.TOKENS = tokens
        for whole._ENTRIES in entries:
            times.append(microseconds(net, given))
        whole._ENTRIES = usual
        line(name, str(S), *(f"{t:.3g}" for t in times), f"{error(net, given):.1e}")


def positions(side: int, n: int, depth: int) -> None:
    """The diagonal after attention to positions, without and with the program."""
    net = gpu.images(gpu.RESIDUAL, lf.LayerNorm(), lf.Flatten(), depth=depth)
    given = inputs(n, side, side, 3)
    print(f"\n| {depth} convolutions, {side} x {side}, residual attention | us a pair | error |")
    print("|---|--:|--:|", flush=True)
    for name, use in (("axis by axis after the program", False), ("in the program", True)):
        fused.AXES = use
        line(name, f"{microseconds(net, given):.3g}", f"{error(net, given):.1e}")
    pool = gpu.images(lf.MeanPool(), depth=depth)
    line("mean pool, for comparison", f"{microseconds(pool, given):.3g}", "")


def interpreted() -> None:
    """Make a CPU act as a GPU would, slowly."""
    fused.available = lambda: True
    fused._SIDES = range(2, 65)
    fused.TYPES = whole.fused.TYPES = (jnp.float32,)
    for module, name in ((programs, "convolved"), (programs, "from_features"), (whole, "cross")):
        setattr(module, name, functools.partial(getattr(module, name), interpret=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("tokens", "positions"))
    parser.add_argument("--entries", type=int, nargs="+", default=[])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, float32, NNGP and NTK")
    if args.quick:
        interpreted()
    if args.only != "tokens":
        positions(*((4, 2, 3) if args.quick else (32, 128, 8)))
    if args.only != "positions":
        cases, sides = (CASES[:1], {16: 3}) if args.quick else (CASES, SIDES)
        small_networks(cases, sides, args.entries)


if __name__ == "__main__":
    main()
