"""The Gram matrix of many CIFAR-10 images, timed: eight convolutions, residual attention, NNGP.

    python benchmarks/gpu_gram.py --data CIFAR --images 10000 --store K.zarr [--minutes 9]

CIFAR is what `lf.data.cifar10` takes. The run stops after some minutes and the same command goes on
with what is missing, so that it fits into a short lease of a device; the seconds of all runs are
added up in `K.zarr.json`. Compilation is part of them. At the end: leave-one-out accuracy of a
regression on centred classes with 2000, 5000 and all images.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

import limitformer as lf
from limitformer.data.images import standardise
from limitformer.gp.evidence import leave_one_out
from limitformer.gp.solve import Factor

DEPTH, ALL = 8, 60_000
RIDGES = (1e-6, 1e-5, 1e-4, 3e-4)  # of the mean diagonal


def network():
    """Hron 2020's residual attention, as layers."""
    conv = lf.Conv((3, 3), 1.7562**0.5, 0.1841**0.5)
    # one by one, not lf.Repeat: the first convolution is then a product of patches
    trunk = [layer for _ in range(DEPTH) for layer in (conv, lf.Relu())]
    attention = lf.ResidualAttention(lf.SquaredExponential(5.0, 0.5), 0.65)
    return lf.Serial(*trunk, attention, lf.LayerNorm(), lf.Flatten(), lf.Dense())


class TimeIsUp(KeyboardInterrupt):
    """The minutes are over; finished tiles are in the store."""


def accuracy(K, classes) -> None:
    """Print leave-one-out accuracies by number of images and ridge."""
    n = len(classes)
    K = np.concatenate([K.rows(i, min(i + 500, n)) for i in range(0, n, 500)]).astype(float)
    Y = (classes[:, None] == np.unique(classes)) - 0.1
    print("\n| images |", *(f"ridge {ridge:g} |" for ridge in RIDGES))
    print("|--:|" + "--:|" * len(RIDGES), flush=True)
    for m in sorted({min(m, n) for m in (2000, 5000, n)}):
        part, targets = K[:m, :m], Y[:m]
        found = []
        for ridge in RIDGES:
            factor = Factor(part, np.full(m, ridge * np.trace(part) / m))
            guess = leave_one_out(factor, factor.solve(targets), targets).mean.argmax(1)
            found.append(np.mean(guess == targets.argmax(1)))
        print(f"| {m} |", *(f"{a:.3f} |" for a in found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--tile", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    args = parser.parse_args()

    data = lf.data.cifar10(args.data)
    if len(data.x_train) < args.images:
        raise SystemExit(f"{args.data} has {len(data.x_train)} training images")
    x = standardise(data.x_train[: args.images]).astype(np.float32)
    log = Path(f"{args.store}.json")
    before = json.loads(log.read_text()) if log.exists() else {"seconds": 0.0, "runs": 0}
    start = time.monotonic()

    def seconds() -> float:
        return before["seconds"] + time.monotonic() - start

    def progress(done: int, total: int, left: float) -> None:
        log.write_text(json.dumps({"seconds": seconds(), "runs": before["runs"] + 1}))
        if done % 10 == 0 or done == total:
            print(f"{done} of {total} tiles, {seconds():.0f} s, {left:.0f} s left", flush=True)
        if time.monotonic() - start > 60 * args.minutes and done < total:
            raise TimeIsUp

    try:
        K = lf.gram(
            network(),
            x,
            kinds="nngp",
            dtype=np.float32,
            store=args.store,
            tile=args.tile,
            progress=progress,
        )
    except TimeIsUp:
        print("stopped; the same command goes on")
        return
    pairs = args.images * (args.images + 1) / 2
    pair = seconds() / pairs
    hours = pair * ALL * (ALL + 1) / 7200
    rows = np.asarray(K.nngp.rows(0, min(args.tile, args.images)))
    print(
        f"\n{jax.devices()[0].device_kind}, JAX {jax.__version__}: {args.images} images, "
        f"{pairs:.3g} pairs in {seconds():.0f} s and {before['runs'] + 1} run(s), "
        f"{1e6 * pair:.1f} us a pair; {ALL} images: {hours:.1f} hours on one such device. "
        f"The first rows are from {rows.min():.3g} to {rows.max():.3g}."
    )
    accuracy(K.nngp, data.y_train[: args.images])


if __name__ == "__main__":
    main()
