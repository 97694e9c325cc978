"""Path decomposition of a large model against the floor of its flops.

    python benchmarks/paths.py                       # a few minutes; writes results/paths.md
    python benchmarks/paths.py --layers 6 --tokens 128

On one thread and in processor time, so that other work on the machine changes little: the same
thread's rate at one large matrix product, in the same run, is the floor. Counted are matrix
products only: those of the forward pass, and for every path length so far in a layer the value,
map and output products. Softmax, norms, activations and copies are overhead. Needs Linux.
"""

import argparse
import gc
import os
import platform
import time
from pathlib import Path

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # before NumPy is imported

import numpy as np

from limitformer.depth.paths import path_decomposition
from limitformer.models import from_spec

RESULT = Path(__file__).parent / "results" / "paths.md"


def model_of(layers: int, heads: int, width: int):
    """A random pre-norm transformer in float32, N(0, 1 / fan-in)."""
    rng = np.random.default_rng(0)
    dk, hidden = width // heads, 4 * width

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) / np.float32(shape[-2] ** 0.5)

    norm = {"gain": np.ones(width), "bias": np.zeros(width)}
    made = [
        {
            "attention": {
                **{name: draw(heads, width, dk) for name in ("W_Q", "W_K", "W_V")},
                "W_O": draw(heads, dk, width) / np.float32(heads**0.5),
            },
            "mlp": {"W_in": draw(width, hidden), "W_out": draw(hidden, width)},
            "attention_norm": norm,
            "mlp_norm": norm,
        }
        for _ in range(layers)
    ]
    return from_spec({"layers": made, "final": norm}, dtype=np.float32)


def flops(layers: int, width: int, tokens: int) -> tuple[float, float]:
    """Of the forward pass, and of the recursion over path lengths."""
    product = 2.0 * tokens * width**2
    maps = 2.0 * tokens**2 * width
    forward = layers * ((4 + 8) * product + 2 * maps)
    return forward, layers * (layers + 1) / 2 * (2 * product + maps)


def rate(size: int = 2048, repeats: int = 5) -> float:
    """Flops a second of one thread at one large product."""
    a = np.random.default_rng(0).standard_normal((size, size), np.float32)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        a @ a
        times.append(time.process_time() - start)
    return 2.0 * size**3 / min(times)


def peak(reset: bool = False) -> float:
    """MiB that the process has held at most, since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(s for s in lines if s.startswith("VmHWM")).split()[1]) / 1024


def processor() -> str:
    lines = Path("/proc/cpuinfo")
    if lines.exists():
        names = [s for s in lines.read_text().splitlines() if s.startswith("model name")]
        return names[0].split(":")[1].strip() if names else platform.machine()
    return platform.processor()


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("layers", 24), ("heads", 16), ("width", 1024), ("tokens", 512)):
        parse.add_argument(f"--{name}", type=int, default=value)
    parse.add_argument("--out", type=Path, default=RESULT)
    o = parse.parse_args()
    model = model_of(o.layers, o.heads, o.width)
    x = np.random.default_rng(1).standard_normal((o.tokens, o.width), np.float32)
    speed = rate()
    gc.collect()
    before = peak(reset=True)
    start, wall = time.process_time(), time.perf_counter()
    paths = path_decomposition(model, x)
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    forward, recursion = flops(o.layers, o.width, o.tokens)
    floor = (forward + recursion) / max(speed, rate())
    stack = 4 * (o.layers + 1) * o.tokens * o.width / 2**20
    stored = 4 * o.layers * o.heads * o.tokens**2 / 2**20
    rows = (
        ("model", f"{o.layers} layers, {o.heads} heads, {o.width} channels, {o.tokens} tokens"),
        ("machine", f"{processor()}, one thread, NumPy {np.__version__}"),
        ("its rate at a 2048 x 2048 product", f"{speed / 1e9:.0f} GFlop/s"),
        ("products of the forward pass", f"{forward / 1e9:.0f} GFlop"),
        ("products of the recursion", f"{recursion / 1e9:.0f} GFlop"),
        ("floor", f"{floor:.1f} s"),
        ("path decomposition", f"{seconds:.1f} s of processor time ({wall:.1f} s on the clock)"),
        ("ratio to the floor", f"{seconds / floor:.2f}"),
        ("sum of parts - model", f"{paths.gap:.1e} relative"),
        ("memory before", f"{before:.0f} MiB (the weights, mostly)"),
        ("peak above it", f"{peak() - before:.0f} MiB"),
        ("the parts S^(0..L) alone", f"{stack:.0f} MiB"),
        ("maps of all layers, not stored", f"{stored:.0f} MiB"),
    )
    text = "# Path decomposition against the floor of its flops\n\n"
    text += "`python benchmarks/paths.py`, float32.\n\n| | |\n| :-- | :-- |\n"
    text += "".join(f"| {a} | {b} |\n" for a, b in rows)
    o.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
