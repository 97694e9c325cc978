"""Rates for docs/scale-plan.md: microseconds of CPU a pair, and 100,000 inputs by features.

python benchmarks/tiles_plan.py   # writes benchmarks/results/tiles_plan.md
"""

import datetime
import resource
import time
from pathlib import Path

import jax
import numpy as np
from tiles_dask import transformer
from tiles_solve import rectifiers

import limitformer as lf
from limitformer import tiles

RESULT = Path(__file__).parent / "results/tiles_plan.md"
RNG = np.random.default_rng(0)
N, INDUCING, WIDTH = 100_000, 1000, 1024


def images(convolutions: int, *after) -> lf.Serial:
    """Convolutions of 3 x 3 with ReLU, something after them, and a mean pool."""
    layers = [layer for _ in range(convolutions) for layer in (lf.Conv((3, 3), 1.4), lf.Relu())]
    return lf.Serial(*layers, *after, lf.MeanPool(), lf.Dense())


def rate(net, x, kinds: str, dtype) -> float:
    """Microseconds of CPU for a pair, once compiled: the best of three."""
    net.kernel(x, kinds=kinds, dtype=dtype)
    times = []
    for _ in range(3):
        start = time.process_time()
        net.kernel(x, kinds=kinds, dtype=dtype)
        times.append(time.process_time() - start)
    return 1e6 * min(times) / (len(x) * (len(x) + 1) / 2)


def rates() -> str:
    """The table of rates."""
    attention = lf.ResidualAttention(lf.SquaredExponential(20.0, 0.5), alpha=0.65)
    cases = (
        ("32x32 images, 2 conv, linear softmax attention, mean pool", "ntk", np.float32,
         images(2, lf.Attention(scale="linear")), (6, 32, 32, 3)),
        ("32x32 images, 8 conv, residual attention, mean pool", "nngp", np.float32,
         images(8, attention), (6, 32, 32, 3)),
        ("32 tokens, 4-block transformer, mean pool", "nngp", np.float64, transformer(),
         (128, 32, 16)),
        ("vectors, 3 layers of ReLU", "nngp", np.float64, rectifiers(), (2000, 16)),
    )  # fmt: skip
    lines = ["| network | kind | CPU of one core, us a pair |", "|---|---|---|"]
    for name, kind, dtype, net, shape in cases:
        took = rate(net, RNG.normal(size=shape).astype(dtype), kind, dtype)
        lines.append(f"| {name} | {kind}, {np.dtype(dtype).name} | {took:.3g} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def features() -> str:
    """Regression on 100,000 inputs by two feature maps, with errors against exact entries."""
    net, x = rectifiers(), RNG.normal(size=(N, 16))
    w = RNG.normal(size=(16, 3)) / 4
    clean = np.sin(x @ w)
    y = clean + 0.1 * RNG.normal(size=clean.shape)
    new = RNG.normal(size=(2000, 16))
    truth = np.sin(new @ w)
    z = x[RNG.permutation(N)[:INDUCING]]
    maps = {
        f"{INDUCING} inducing inputs": lambda: tiles.inducing(net, z),
        f"twin of width {WIDTH}, {INDUCING} outputs": lambda: tiles.twin_features(
            net, x, key=jax.random.key(0), width=WIDTH, rank=INDUCING
        ),
    }
    lines = [
        "| feature map | error of the kernel | test RMSE (targets' deviation "
        f"{truth.std():.2f}) | CPU (s) | peak memory (GiB) |",
        "|---|---|---|---|---|",
    ]
    for name, make in maps.items():
        start = time.process_time()
        found = make()
        model = tiles.ridge(found, x, y, noise=1e-2)
        took = time.process_time() - start
        error = tiles.kernel_error(found, new)
        rmse = np.sqrt(np.mean(np.square(model.predict(new) - truth)))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        lines.append(
            f"| {name} | {error.value:.4f} +- {error.sem:.4f} | {rmse:.3f} | {took:.0f} "
            f"| {peak:.2f} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Measure and write."""
    table, wide = rates(), features()
    RESULT.write_text(f"""# Rates behind the plan

`python benchmarks/tiles_plan.py`, two cores shared with other work, JAX {jax.__version__},
{datetime.date.today()}. CPU seconds; compilation is not counted in the rates.

{table}

## {N:,} inputs by features

Three layers of ReLU on 16 numbers, 3 outputs, noise 1e-2. The matrix would be
{8 * N * N / 2**30:.0f} GiB. Errors are relative, root mean square, on 4096 exact entries between
inputs that were left out.

{wide}
""")


if __name__ == "__main__":
    main()
