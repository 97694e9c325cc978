"""Bayesian inference with 1, 4, 16 and infinitely many heads on a few real digits.

    python benchmarks/finite_heads.py --out benchmarks/results

Threes against eights (scikit-learn's digits, 2 x 2 patches, 16 tokens), one block of softmax
attention and an MLP with a mean pool. The readout's amplitude is chosen by the evidence of the
Gaussian limit; finitely many heads take the same network and noise.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import numpy as np
from sklearn.datasets import load_digits

import limitformer as lf

NOISE = 0.05


def data(train: int, test: int, seed: int = 0):
    bunch = load_digits(n_class=10)
    keep = np.flatnonzero((bunch.target == 3) | (bunch.target == 8))
    keep = np.random.default_rng(seed).permutation(keep)[: train + test]
    x = bunch.images[keep, :, :, None] / 16 - 0.5
    y = np.where(bunch.target[keep] == 3, 1.0, -1.0)
    return x[:train], y[:train], x[train:], y[train:]


def network(amplitude: float, skip: bool) -> lf.Serial:
    attention = lf.Attention(qk_std=2.0)
    mixing = lf.Residual(attention) if skip else attention
    mlp = (lf.Dense(2**0.5), lf.Relu())
    patches = lf.Conv((2, 2), stride=2, padding="valid")
    return lf.Serial(patches, lf.LayerNorm(), mixing, *mlp, lf.MeanPool(), lf.Dense(amplitude))


def log_density(mean, variance, y) -> np.ndarray:
    v = variance + NOISE
    return -0.5 * ((y - mean) ** 2 / v + np.log(2 * np.pi * v))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=int, default=24)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--heads", default="1,4,16")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    x, y, x_test, y_test = data(arguments.train, arguments.test)
    lines = [
        f"# Threes and eights from {len(x)} images, by number of heads",
        "",
        f"{len(x_test)} held-out images, noise {NOISE}, {arguments.draws} draws in four "
        "populations. Log densities are of the targets ±1, means over held-out images ± their "
        "standard error; gain is the paired difference from the Gaussian limit.",
        "",
        "| network | heads | log evidence | right, % | log density | gain | temperatures | prior "
        "ESS | ESS | s |",
        "| :-- " + "| --: " * 9 + "|",
    ]
    for skip in (False, True):
        grid = np.geomspace(0.5, 16, 11)
        fits = [lf.condition(network(a, skip), x, y, noise=NOISE, draws=256) for a in grid]
        amplitude = float(grid[int(np.argmax([f.log_evidence for f in fits]))])
        name = f"{'skip' if skip else 'no skip'}, amplitude {amplitude:.2g}"
        start = time.perf_counter()
        limit = lf.condition(network(amplitude, skip), x, y, noise=NOISE, draws=1024)
        mean, variance = limit.predict(x_test, cov="diag")
        base = log_density(mean, variance, y_test)
        rows = [("inf", limit.log_evidence, 0.0, mean, base, "", "", "")]
        seconds = [time.perf_counter() - start]
        for heads in (int(h) for h in arguments.heads.split(",")):
            start = time.perf_counter()
            post = lf.condition(
                network(amplitude, skip).with_heads(heads),
                x,
                y,
                noise=NOISE,
                key=jax.random.key(heads),
                draws=arguments.draws,
            )
            found = post.predict(x_test)
            log = found.log_density(y_test, NOISE)
            steps = max(len(p.temperatures) for p in post.populations)
            evidence = post.log_evidence
            sizes = (f"{post.prior_ess:.0f}", f"{post.ess:.0f}")
            rows.append((str(heads), evidence.value, evidence.sem, found.mean, log, steps, *sizes))
            seconds.append(time.perf_counter() - start)
            print(name, heads, f"{seconds[-1]:.0f} s", flush=True)
        for (heads, evidence, sem, mean, log, *sizes), s in zip(rows, seconds, strict=True):
            right = np.mean(np.sign(mean) == y_test)
            pm = lambda v: f"{v.mean():.3f} ± {v.std(ddof=1) / len(v) ** 0.5:.3f}"  # noqa: E731
            gain = "" if heads == "inf" else pm(log - base)
            cells = [name, heads, f"{evidence:.2f}" + (f" ± {sem:.2f}" if sem else "")]
            cells += [f"{100 * right:.1f}", pm(log), gain, *map(str, sizes), f"{s:.0f}"]
            lines.append("| " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out is not None:
        (arguments.out / "finite_heads.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
