"""Each GPU program of limitformer beside XLA on the same GPU: time and error, to decide its use.

    python benchmarks/gpu_programs.py [--only tokens|positions] [--quick]

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


CASES = (
    *(("identity, sqrt", identity, S) for S in SIDES),
    *(("softmax, linear", lambda _: gpu.blocks(), S) for S in (16, 32)),
)


def microseconds(net, x, y) -> float:
    """Of one pair, NNGP and NTK: the best of three calls after one that compiles."""
    jax.clear_caches()
    times = []
    for _ in range(4):
        start = time.perf_counter()
        net.kernel(x, y)
        times.append(time.perf_counter() - start)
    return min(times[1:]) / (len(x) * len(y)) * 1e6


def error(net, x, y) -> float:
    """Of the first four inputs on both sides, relative to float64."""
    jax.clear_caches()
    x, y = x[:4], y[:4]
    found, exact = net.kernel(x, y), net.kernel(x.astype(float), y.astype(float))
    return max(
        float(np.abs(getattr(found, k) / getattr(exact, k) - 1).max()) for k in ("nngp", "ntk")
    )


def line(name, *rest) -> None:
    print(f"| {name} | " + " | ".join(rest) + " |", flush=True)


def small_networks(cases, sides) -> None:
    """XLA, then the program."""
    print("\n| network | tokens | XLA, us a pair | one program | error |")
    print("|---|--:|--:|--:|--:|", flush=True)
    for name, build, S in cases:
        net, n = build(S), sides[S]
        x, y = (rng.normal(size=(n, S, 16)).astype(np.float32) for _ in range(2))
        tokens, whole.TOKENS = whole.TOKENS, ()
        alone = microseconds(net, x, y)
        whole.TOKENS = tokens
        line(
            name,
            str(S),
            f"{alone:.3g}",
            f"{microseconds(net, x, y):.3g}",
            f"{error(net, x, y):.1e}",
        )


def positions(side: int, n: int, depth: int) -> None:
    """The diagonal after attention to positions, without and with the program."""
    net = gpu.images(gpu.RESIDUAL, lf.LayerNorm(), lf.Flatten(), depth=depth)
    x, y = (rng.normal(size=(n, side, side, 3)).astype(np.float32) for _ in range(2))
    print(f"\n| {depth} convolutions, {side} x {side}, residual attention | us a pair | error |")
    print("|---|--:|--:|", flush=True)
    for name, use in (("axis by axis after the program", False), ("in the program", True)):
        fused.AXES = use
        line(name, f"{microseconds(net, x, y):.3g}", f"{error(net, x, y):.1e}")
    pool = gpu.images(lf.MeanPool(), depth=depth)
    line("mean pool, for comparison", f"{microseconds(pool, x, y):.3g}", "")


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
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, float32, NNGP and NTK")
    if args.quick:
        interpreted()
    if args.only != "tokens":
        positions(*((4, 2, 3) if args.quick else (32, 128, 8)))
    if args.only != "positions":
        small_networks(CASES[:1] if args.quick else CASES, {16: 3} if args.quick else SIDES)


if __name__ == "__main__":
    main()
