"""Conditioning on 5000 points with 10 outputs, against LAPACK's own Cholesky on the same matrix.

    python benchmarks/conditioning.py [n]

Both in one process, in turn; the kernel itself is computed before and not timed.
"""

import resource
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import scipy.linalg

import limitformer as lf
from limitformer.gp import posterior, training

HERE = Path(__file__).resolve().parent


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Time both three times and print the ratio and the memory."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 16)), rng.normal(size=(n, 10))
    net = lf.Serial(lf.Dense(1.4, 0.3), lf.Relu(), lf.Dense())
    K = net.kernel(x, kinds="nngp").nngp
    given = {"nngp": training.Replicated(K)}
    posterior.kernels = lambda *args, **options: given  # the kernel is not what is timed
    gram = K.nbytes / 2**20
    before = peak_mb()
    ours, lapack = [], []
    for _ in range(3):
        start = time.perf_counter()
        post = lf.condition(net, x, y, noise=0.1)
        ours.append(time.perf_counter() - start)
        residual = post.residual
        del post
        M = np.array(K.T, order="F")
        M[np.diag_indices(n)] += 0.1
        start = time.perf_counter()
        scipy.linalg.lapack.dpotrf(M, lower=1, overwrite_a=1, clean=0)
        lapack.append(time.perf_counter() - start)
        del M
    extra = peak_mb() - before
    a, b = median(ours), median(lapack)
    text = (
        "| points | outputs | condition, s | dpotrf, s | ratio (aim 2) | memory, Grams (aim 3) | "
        f"residual |\n|---|---|---|---|---|---|---|\n| {n} | 10 | {a:.2f} | {b:.2f} | "
        f"{a / b:.2f} | {1 + extra / gram:.2f} | {residual:.1e} |"
    )
    print(text)
    (HERE / "results" / "conditioning.md").write_text(
        f"# Conditioning against LAPACK's Cholesky\n\n{text}\n\nThe kernel (one Gram, float64) is "
        "counted in the memory and not in the time.\n"
    )


if __name__ == "__main__":
    main()
