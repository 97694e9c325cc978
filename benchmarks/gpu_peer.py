"""Kernels on a GPU beside Neural Tangents 0.6.5 on the same GPU and JAX, in one run.

    python benchmarks/gpu_peer.py --peer .venv-peer/lib/python3.11/site-packages [--quick]

The peer's kernels are those of peer_cases.py, imported by peer_shim.py. Each library gets several
sizes and keeps its best; --quick takes tiny ones, to try the script on a CPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import cases
import jax
import numpy as np
import peer_shim

# inputs a side, ours and the peer's
SIZES = {
    "c/64/ntk/float32": ((4096, 8192), (64, 128, 256)),
    "b/32x32/mean/ntk/float32": ((128, 192), (4, 8, 16)),
    "b/8x8/mean/ntk/float32": ((1024, 2048), (64, 128, 256)),
    "b/32x32/flatten/ntk/float32": ((64, 96), (4, 8)),
    "c/128/ntk/float32": ((1024, 2048), (32, 64, 128)),
}


def best(case: cases.Case, sizes, prepare: Callable) -> float:
    """Microseconds a pair at the best size."""
    found = float("inf")
    for n in sizes:
        call = prepare(dataclasses.replace(case, n=n))
        try:
            call()
        except Exception as error:  # memory, most of all
            print(f"  {n} a side: {str(error)[:80]}", flush=True)
            break
        for _ in range(3):
            start = time.perf_counter()
            call()
            found = min(found, 1e6 * (time.perf_counter() - start) / n**2)
    return found


def apart(case: cases.Case) -> float:
    """Largest relative difference of the two libraries on a few inputs."""
    few = dataclasses.replace(case, n=4)
    mine, theirs = ours(few)(), peers(few)()
    return max(
        float(np.abs(np.asarray(theirs[k]) / np.asarray(mine[k]) - 1).max()) for k in case.kinds
    )


def ours(case: cases.Case) -> Callable:
    from our_cases import network

    net, (x, y, x_mask, y_mask) = network(case), cases.inputs(case)

    def call():
        k = net.kernel(x, y, x_mask=x_mask, y_mask=y_mask, kinds=case.kinds)
        return {kind: getattr(k, kind) for kind in case.kinds}

    return call


def peers(case: cases.Case) -> Callable:
    from peer_cases import MASK, network

    x, y, x_mask, y_mask = cases.inputs(case)
    options = {}
    if x_mask is not None and y_mask is not None:
        x = np.where(x_mask[..., None], x, x.dtype.type(MASK))
        y = np.where(y_mask[..., None], y, y.dtype.type(MASK))
        options = {"mask_constant": MASK}
    _, _, kernel = network(case)
    compiled = jax.jit(lambda x, y: kernel(x, y, case.kinds, **options))
    precise = jax.default_matmul_precision("highest")

    def call():
        with precise:
            return jax.block_until_ready(compiled(x, y))._asdict()

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    peer_shim.install(args.peer)
    warnings.simplefilter("ignore")  # of the peer's layers
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, float32, NNGP and NTK\n")
    print("| case | ours, us a pair | peer | ratio | largest relative difference |")
    print("|---|--:|--:|--:|--:|", flush=True)
    for name, (mine, theirs) in SIZES.items():
        case = cases.find(name)
        if args.quick:
            mine, theirs = (4,), (4,)
        us, them = best(case, mine, ours), best(case, theirs, peers)
        print(
            f"| {name} | {us:.3g} | {them:.3g} | {them / us:.3g} | {apart(case):.1e} |", flush=True
        )


if __name__ == "__main__":
    main()
