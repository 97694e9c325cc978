"""Kernels on a GPU: microseconds a pair, what each GPU program takes, and ways to multiply.

    python benchmarks/gpu.py [--out benchmarks/results/gpu.md]

Needs a CUDA device. Results are shown with the device's own matrix product and copy rates, and
against the floor: what must be multiplied and moved at these rates. A kernel is written and read
where a convolution or a product comes after it, and nowhere else.
"""

from __future__ import annotations

import argparse
import collections
import glob
import math
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import limitformer as lf
from limitformer.kernel import fused
from limitformer.kernel.products import PRODUCTS

BOTH = ("nngp", "ntk")
rng = np.random.default_rng(0)


def conv() -> lf.Conv:
    return lf.Conv((3, 3), 1.7562**0.5, 0.1841**0.5)


def images(*ends, depth: int = 2):
    """Convolutions, then the layers that are given and a Dense layer."""
    layers = [layer for _ in range(depth) for layer in (conv(), lf.Relu())]
    return lf.Serial(*layers, *ends, lf.Dense())


def blocks():
    attention = lf.Residual(lf.LayerNorm(), lf.Attention(scale="linear"))
    mlp = lf.Residual(lf.LayerNorm(), lf.Dense(), lf.Relu(), lf.Dense())
    turns = lf.Repeat(lf.Serial(attention, mlp), 4)
    return lf.Serial(lf.Dense(), turns, lf.MeanPool(), lf.Dense())


class Case(NamedTuple):
    """A network, its inputs, and what a pair must move and multiply for each kernel.

    Attributes:
        net, shape: the network, and the inputs of one side.
        arrays: how often a token kernel is written and read.
        products: matrix products of all tokens.
    """

    net: Any
    shape: tuple[int, ...]
    arrays: int
    products: int = 0

    @property
    def tokens(self) -> int:
        return math.prod(self.shape[1:-1])

    def floor(self, kernels: int, product: float, copy: float) -> float:
        """Microseconds, at TFLOP/s and TB/s."""
        moved, multiplied = self.work(kernels)
        return max(moved / copy, multiplied / product) / 1e6

    def work(self, kernels: int) -> tuple[float, float]:
        """Bytes and operations of a pair."""
        S = self.tokens
        return kernels * self.arrays * 2 * 4 * S**2, kernels * self.products * 2 * S**3


ATTENTION = lf.Attention(scale="linear")
RESIDUAL = lf.ResidualAttention(lf.SquaredExponential(5.0, 0.5), 0.65)
CASES = {
    "32 x 32, two convolutions, attention, mean pool": Case(
        images(ATTENTION, lf.MeanPool()), (192, 32, 32, 3), 1
    ),
    "the same, flatten": Case(images(ATTENTION, lf.Flatten()), (96, 32, 32, 3), 2, 1),
    "32 x 32, eight convolutions, mean pool": Case(
        images(lf.MeanPool(), depth=8), (128, 32, 32, 3), 7
    ),
    "32 x 32, eight convolutions, residual attention, flatten": Case(
        images(RESIDUAL, lf.LayerNorm(), lf.Flatten(), depth=8), (128, 32, 32, 3), 7
    ),
    "8 x 8, two convolutions, attention, mean pool": Case(
        images(ATTENTION, lf.MeanPool()), (2048, 8, 8, 3), 1
    ),
    "64 tokens, four blocks, mean pool": Case(blocks(), (1024, 64, 16), 4),
}


def microseconds(net, shape, **options) -> float:
    """Of one pair, the best of three calls after one that compiles."""
    x, y = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    net.kernel(x, y, **options)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        net.kernel(x, y, **options)
        times.append(time.perf_counter() - start)
    return min(times) / shape[0] ** 2 * 1e6


def programs(net, shape, kinds) -> collections.Counter:
    """Microseconds a pair that each GPU program took, by name."""
    x, y = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    net.kernel(x, y, kinds=kinds)
    folder = tempfile.mkdtemp()
    with jax.profiler.trace(folder):
        net.kernel(x, y, kinds=kinds)
    (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    found: collections.Counter = collections.Counter()
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        if "GPU" in plane.name:
            for line in plane.lines:
                if line.name.startswith("Stream"):
                    for event in line.events:
                        found[event.name] += event.duration_ns / 1e3 / shape[0] ** 2
    return found


def rates() -> tuple[float, float]:
    """Float32 matrix products in TFLOP/s, and copies in TB/s."""

    def seconds(function, a):
        jax.block_until_ready(function(a))
        start = time.perf_counter()
        jax.block_until_ready([function(a) for _ in range(5)])
        return (time.perf_counter() - start) / 5

    a = jnp.asarray(rng.normal(size=(64, 1024, 1024)), jnp.float32)
    product = seconds(jax.jit(lambda a: jnp.matmul(a, a, precision="highest")), a)
    big = jnp.ones((2**30,), jnp.float32)
    copy = seconds(jax.jit(lambda b: b * 1.5), big)
    return 64 * 2 * 1024**3 / product / 1e12, 8 * 2**30 / copy / 1e12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    if jax.default_backend() != "gpu":
        raise SystemExit(f"this benchmark needs a GPU, and JAX computes on {jax.default_backend()}")
    product, copy = rates()
    lines = [
        "# Kernels on a GPU",
        "",
        f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, float32; its own rates here: "
        f"{product:.1f} TFLOP/s, {copy:.2f} TB/s.",
        "",
        "| network | NNGP, us a pair | NNGP and NTK | TB/s | TFLOP/s | times the floor "
        "| XLA alone |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, case in CASES.items():
        net, shape = case.net, case.shape
        one, both = microseconds(net, shape, kinds="nngp"), microseconds(net, shape)
        available, fused.available = fused.available, lambda: False
        jax.clear_caches()
        alone = microseconds(net, shape)
        fused.available = available
        jax.clear_caches()
        moved, multiplied = case.work(2)
        lines.append(
            f"| {name} | {one:.3g} | {both:.3g} | {moved / both / 1e6:.2g} "
            f"| {multiplied / both / 1e6:.2g} | {both / case.floor(2, product, copy):.2g} "
            f"| {alone:.3g} |"
        )
    lines += ["", "| products | us a pair, flatten, NNGP and NTK |", "|---|--:|"]
    net, shape = CASES["the same, flatten"][:2]
    lines += [f"| {p} | {microseconds(net, shape, products=p):.1f} |" for p in PRODUCTS]
    lines += ["", "| network | program | us a pair |", "|---|---|--:|"]
    for name, (net, shape, *_) in CASES.items():
        for program, time_of in programs(net, shape, BOTH).most_common(5):
            lines.append(f"| {name} | `{program[:60]}` | {time_of:.3g} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if out is not None:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
