"""Solves over a store: conjugate gradients against Cholesky, in less memory than the matrix.

python benchmarks/tiles_solve.py             # 20,000 inputs; writes results/tiles_solve.md
python benchmarks/tiles_solve.py --n 4000    # a look, nothing is written
"""

import argparse
import datetime
import resource
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import limitformer as lf
from limitformer import tiles

FULL = 20_000
RESULT = Path(__file__).parent / "results/tiles_solve.md"
RNG = np.random.default_rng(0)


def rectifiers() -> lf.Serial:
    """Three layers of ReLU."""
    return lf.Serial(*(layer for _ in range(3) for layer in (lf.Dense(1.4), lf.Relu())), lf.Dense())


def clock(call):
    """What a call returns, its seconds, and the process's peak memory in GiB after it."""
    start = time.perf_counter()
    found = call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return found, time.perf_counter() - start, peak


def rows(n: int, folder: Path) -> list[str]:
    """One row for each method; the peaks come in the order of their size."""
    net, x = rectifiers(), RNG.normal(size=(n, 16))
    y = np.sin(x[:, :3]) + 0.1 * RNG.normal(size=(n, 3))
    new = RNG.normal(size=(500, 16))
    noise = lf.relative(1e-2)
    K, wall, peak = clock(lambda: lf.gram(net, x, kinds="nngp", store=folder / "K"))
    found = [f"| Gram ({K.nngp.nbytes / 2**30:.2f} GiB) | {wall:.0f} | {peak:.2f} | | | | |"]
    means = {}
    for method in ("cg", "disk", "cholesky"):
        options = {"noise": noise, "method": method, "memory": "1GiB", "scratch": folder}
        fit, wall, peak = clock(lambda o=options: tiles.solve(K.nngp, y, tolerance=1e-6, **o))
        means[method] = tiles.predict(net, x, fit.alpha, new)
        gap = np.abs(means[method] - means["cg"]).max() / np.abs(means[method]).max()
        log = "" if fit.logdet is None else f"{fit.logdet:.2f}"
        found.append(
            f"| {method} | {wall:.0f} | {peak:.2f} | {fit.iterations or ''} | {fit.residual:.1e} "
            f"| {f'{gap:.1e}' if gap else ''} | {log} |"
        )
        print(found[-1], flush=True)
        if method == "cg":
            log, wall, peak = clock(lambda: tiles.log_determinant(K.nngp, noise=noise))
            found.append(
                f"| Lanczos | {wall:.0f} | {peak:.2f} | {log.steps} | | "
                f"| {log.value:.2f} +- {log.sem:.2f} |"
            )
            print(found[-1], flush=True)
    return found


def main() -> None:
    """Measure, print, and write the page if it is the full size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=FULL)
    n = parser.parse_args().n
    with tempfile.TemporaryDirectory() as folder:
        table = "\n".join(rows(n, Path(folder)))
    if n == FULL:
        RESULT.write_text(f"""# Solves over a store

`python benchmarks/tiles_solve.py`, two cores shared with other work, JAX {jax.__version__},
{datetime.date.today()}. {n:,} inputs, NNGP of 3 layers of ReLU, float64, 3 outputs, relative noise
1e-2, tolerance 1e-6. Predictions at 500 new inputs.

| | wall (s) | peak memory of the process (GiB) | iterations | relative residual | predictions against cg | log-determinant |
|---|---|---|---|---|---|---|
{table}
""")  # noqa: E501


if __name__ == "__main__":
    main()
