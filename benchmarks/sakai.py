"""Figure 1 of Sakai 2025 against a loop over networks, and score draws against their floor.

    python benchmarks/sakai.py

Figure 1: 50,000 networks of each width and their densities, against NumPy networks made one by
one of n x n matrices, on a subset whose time is scaled up; both in this run.
Scores: `net.law` of 64 tokens and 8 heads, against its normals, products and exponentials at the
machine's own rates, also in this run; the time of a million draws is that of a block, scaled up.
"""

import math
import os
import threading
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import machine
import numpy as np

import limitformer as lf
from limitformer.heads.two_sample import kde_kl
from limitformer.reproduce.sakai import FIGURES, RUNS, WIDTHS

HERE = Path(__file__).resolve().parent
TOKENS, HEADS, BLOCK = 64, 8, 512
SUBSET = {16: 400, 64: 200, 256: 20, 1024: 2}


def one_network(rng, n: int, heads: int, tokens: int = 4) -> float:
    """y_11 of one network, as matrices."""
    h = rng.standard_normal(n)
    X = np.stack([rng.standard_normal((n, n)) @ h for _ in range(tokens)]) / math.sqrt(n)
    total = 0.0
    for _ in range(heads):
        Q, K, V = (X @ rng.standard_normal((n, n)) / math.sqrt(n) for _ in range(3))
        G = np.exp(Q @ K.T / math.sqrt(n))
        A = G / G.sum(axis=1, keepdims=True)
        out = V @ (rng.standard_normal((n, n)) / math.sqrt(n))
        total = total + A @ out / math.sqrt(heads)
    return float(total[0, 0])


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def figure_1() -> list[list[str]]:
    """Rows: width, loop, ours, ratio; the densities of both are in neither but the last row."""
    settings = {s.n: s for s in FIGURES["1"][1]}
    settings[16].draw(0, 100)
    rows, total = [], [0.0, 0.0]
    rng = np.random.default_rng(0)
    outputs = {}
    for n in WIDTHS:
        loop = seconds(lambda n=n: [one_network(rng, n, 2) for _ in range(SUBSET[n])])
        loop *= RUNS / SUBSET[n]

        def draw(n=n):
            outputs[n] = settings[n].draw(0, RUNS).outputs

        ours = min(seconds(draw) for _ in range(3))
        total = [total[0] + loop, total[1] + ours]
        rows.append([f"n = {n}", f"{loop:,.0f} s", f"{ours:.3f} s", f"{loop / ours:,.0f}"])
    limit: list = []
    rest = seconds(lambda: limit.append(settings[16].limit(1, RUNS).outputs))
    grid = np.linspace(-8, 8, 500)
    rest += seconds(lambda: [kde_kl(y, limit[0], grid) for y in outputs.values()])
    rows.append(
        [
            "all, limit and densities",
            f"{total[0] + rest:,.0f} s",
            f"{total[1] + rest:.3f} s",
            f"{(total[0] + rest) / (total[1] + rest):,.0f}",
        ]
    )
    return rows


def numpy_normals(numbers: int = 1 << 22) -> float:
    """Millions of float32 normals a second of NumPy's generators, one thread a core."""
    rngs = np.random.default_rng(0).spawn(os.cpu_count() or 1)
    rates = []
    for _ in range(5):
        jobs = [partial(r.standard_normal, numbers, np.float32) for r in rngs]
        threads = [threading.Thread(target=job) for job in jobs]
        start = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        rates.append(1e-6 * numbers * len(rngs) / (time.perf_counter() - start))
    return max(rates)


def scores() -> list[list[str]]:
    """Rows: part of the work, rate, seconds for a million draws."""
    x = np.random.default_rng(0).normal(size=(1, TOKENS, TOKENS)).astype(np.float32)
    net = lf.Serial(lf.Attention(heads=HEADS), lf.MeanPool())
    key = jax.random.key(0)
    run = partial(net.law, x, key=key, draws=BLOCK)
    ours = min([seconds(lambda: run().mean) for _ in range(8)][1:]) / BLOCK * 1e6
    keys = jax.random.split(key, BLOCK)
    draw = jax.jit(jax.vmap(lambda k: jax.random.normal(k, (HEADS, TOKENS, TOKENS), jnp.float32)))
    numbers = BLOCK * HEADS * TOKENS**2
    jax_normals = 1e-6 * numbers / machine.best_seconds(draw, keys)
    fast_normals = numpy_normals()
    gflops = machine.matmul_gflops("float32", 1, 2048)
    exps = machine.per_second(machine.FUNCTIONS["exp"], "float32")
    each = HEADS * TOKENS**2
    parts = {
        "products F Z F^T": (each * 4 * TOKENS / gflops / 1e3, f"{gflops:.0f} GFLOP/s"),
        "exponentials": (each / exps, f"{exps:,.0f} M/s"),
        "normals, jax.random": (each / jax_normals, f"{jax_normals:.0f} M/s"),
        "normals, NumPy on every core": (each / fast_normals, f"{fast_normals:.0f} M/s"),
    }
    rows = [[name, rate, f"{value:.0f} s", ""] for name, (value, rate) in parts.items()]
    shared = parts["products F Z F^T"][0] + parts["exponentials"][0]
    rows.append(["net.law, a million draws", "", f"{ours:.0f} s", ""])
    for name in ("normals, jax.random", "normals, NumPy on every core"):
        floor = shared + parts[name][0]
        rows.append([f"floor with {name}", "", f"{floor:.0f} s", f"{ours / floor:.2f}"])
    return rows


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, [":--", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Run both and write results/sakai.md."""
    first = table(["figure 1", "NumPy loop", "ours", "ratio (aim 20)"], figure_1())
    second = table(["64 tokens, 8 heads", "rate", "a million draws", "ratio (aim 3)"], scores())
    text = (
        f"# Sakai 2025: speed\n\n{RUNS:,} networks of each width, one seed. The loop was run on "
        f"{', '.join(f'{k} of width {n}' for n, k in SUBSET.items())} and scaled up.\n\n{first}\n\n"
        f"Scores drawn by `net.law` with a mean pool, float32, {BLOCK} draws timed and scaled up, "
        "against what their products, exponentials and normals cost at the rates of this run.\n\n"
        f"{second}\n"
    )
    print(text)
    (HERE / "results" / "sakai.md").write_text(text)


if __name__ == "__main__":
    main()
