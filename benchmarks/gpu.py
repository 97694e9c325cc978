"""Kernels on a GPU: microseconds a pair, what each GPU program takes, and ways to multiply.

    python benchmarks/gpu.py [--out benchmarks/results/gpu.md]

Needs a CUDA device. Results are shown with the device's own matrix product and copy rates.
"""

from __future__ import annotations

import argparse
import collections
import glob
import tempfile
import time
from pathlib import Path

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


def images(readout, depth: int = 2, attention: bool = True):
    layers = [layer for _ in range(depth) for layer in (conv(), lf.Relu())]
    if depth > 2:
        layers = [lf.Repeat(lf.Serial(conv(), lf.Relu()), depth)]
    middle = [lf.Attention(scale="linear")] if attention else []
    return lf.Serial(*layers, *middle, readout, lf.Dense())


def blocks():
    attention = lf.Residual(lf.LayerNorm(), lf.Attention(scale="linear"))
    mlp = lf.Residual(lf.LayerNorm(), lf.Dense(), lf.Relu(), lf.Dense())
    turns = lf.Repeat(lf.Serial(attention, mlp), 4)
    return lf.Serial(lf.Dense(), turns, lf.MeanPool(), lf.Dense())


CASES = {
    "32 x 32, two convolutions, attention, mean pool": (images(lf.MeanPool()), (192, 32, 32, 3)),
    "the same, flatten": (images(lf.Flatten()), (96, 32, 32, 3)),
    "32 x 32, eight convolutions, mean pool": (images(lf.MeanPool(), 8, False), (64, 32, 32, 3)),
    "8 x 8, two convolutions, attention, mean pool": (images(lf.MeanPool()), (2048, 8, 8, 3)),
    "64 tokens, four blocks, mean pool": (blocks(), (1024, 64, 16)),
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
        "| network | NNGP, us a pair | NNGP and NTK | with XLA alone |",
        "|---|--:|--:|--:|",
    ]
    for name, (net, shape) in CASES.items():
        one, both = microseconds(net, shape, kinds="nngp"), microseconds(net, shape)
        available, fused.available = fused.available, lambda: False
        jax.clear_caches()
        alone = microseconds(net, shape)
        fused.available = available
        jax.clear_caches()
        lines.append(f"| {name} | {one:.3g} | {both:.3g} | {alone:.3g} |")
    lines += ["", "| products | us a pair, flatten, NNGP and NTK |", "|---|--:|"]
    net, shape = CASES["the same, flatten"]
    lines += [f"| {p} | {microseconds(net, shape, products=p):.1f} |" for p in PRODUCTS]
    lines += ["", "| network | program | us a pair |", "|---|---|--:|"]
    for name, (net, shape) in CASES.items():
        for program, time_of in programs(net, shape, BOTH).most_common(5):
            lines.append(f"| {name} | `{program[:60]}` | {time_of:.3g} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if out is not None:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
