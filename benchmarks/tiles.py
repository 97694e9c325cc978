"""Tiles: Dask workers against one process, killed workers, and solves over a store.

python benchmarks/tiles.py gram --n 1024 --tile 128
python benchmarks/tiles.py solve --n 20000
"""

import argparse
import os
import resource
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import limitformer as lf
from limitformer import tiles

RNG = np.random.default_rng(0)


def transformer():
    dense = lf.Dense(w_std=1.4, b_std=0.1)
    block = lf.Serial(
        lf.Residual(lf.Attention(scale="sqrt", weights="identity", qk_std=1 / 32)),
        lf.LayerNorm(),
        lf.Residual(dense, lf.Relu(), dense),
    )
    return lf.Serial(dense, lf.Repeat(block, 4), lf.MeanPool(), lf.Dense())


def rectifiers():
    return lf.Serial(*(layer for _ in range(3) for layer in (lf.Dense(1.4), lf.Relu())), lf.Dense())


def clock(call):
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def gram(n: int, tile: int, folder: Path) -> None:
    net, x = transformer(), RNG.normal(size=(n, 32, 16))

    def run(name: str, inputs=x, **options):
        shutil.rmtree(folder / name, ignore_errors=True)
        return lf.gram(net, inputs, kinds="nngp", store=folder / name, tile=tile,
                       memory="1GiB", **options)  # fmt: skip

    os.environ["NPROC"] = "1"
    run("warm", x[: 2 * tile])
    reference, alone = clock(lambda: run("one"))
    print(f"{n} x {n}, tiles of {tile}: one process, one thread {alone:.1f} s", flush=True)
    del os.environ["NPROC"]
    reference, both = clock(lambda: run("two"))
    print(f"one process, all cores {both:.1f} s", flush=True)
    K = np.asarray(reference.nngp)
    with tiles.local_cluster(2) as cluster, cluster.get_client() as client:
        run("warm", x[: 4 * tile], scheduler=client)
        found, wall = clock(lambda: run("dask", scheduler=client))
        same = np.array_equal(np.asarray(found.nngp), K)
        print(
            f"two Dask workers {wall:.1f} s, {2 * wall / alone - 1:+.1%} of one thread's work, "
            f"{wall / both - 1:+.1%} of one process; same bits: {same}",
            flush=True,
        )

        def kill() -> None:
            time.sleep(wall / 2)
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        threading.Thread(target=kill).start()
        found, hurt = clock(lambda: run("killed", scheduler=client))
        same = np.array_equal(np.asarray(found.nngp), K)
        print(f"a worker killed half way {hurt:.1f} s, x{hurt / wall:.2f}; same bits: {same}")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def solve(n: int, folder: Path) -> None:
    net, x = rectifiers(), RNG.normal(size=(n, 16))
    y = np.sin(x[:, :3]) + 0.1 * RNG.normal(size=(n, 3))
    K, wall = clock(lambda: lf.gram(net, x, kinds="nngp", store=folder / "K"))
    print(f"{n} x {n} ({K.nngp.nbytes / 2**30:.2f} GiB): Gram {wall:.1f} s", flush=True)
    start = peak()
    noise = lf.relative(1e-2)
    cg, wall = clock(lambda: tiles.solve(K.nngp, y, noise=noise, method="cg", tolerance=1e-6))
    new = RNG.normal(size=(500, 16))
    mean = tiles.predict(net, x, cg.alpha, new)
    print(
        f"conjugate gradients {wall:.1f} s, {cg.iterations} iterations, residual {cg.residual:.1e},"
        f" peak memory {peak():.2f} GiB ({start:.2f} before)",
        flush=True,
    )
    found, wall = clock(lambda: tiles.log_determinant(K.nngp, noise=noise))
    print(f"log-determinant {found.value:.2f} +- {found.sem:.2f} in {wall:.1f} s", flush=True)
    for method in ("disk", "cholesky"):
        exact, wall = clock(
            lambda method=method: tiles.solve(
                K.nngp, y, noise=noise, method=method, memory="1GiB", scratch=folder
            )
        )
        other = tiles.predict(net, x, exact.alpha, new)
        print(
            f"{method} {wall:.1f} s, residual {exact.residual:.1e}, peak {peak():.2f} GiB; "
            f"predictions differ by {np.abs(mean - other).max() / np.abs(other).max():.1e}, "
            f"log-determinant {exact.logdet:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("gram", "solve"))
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--tile", type=int, default=512)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "gram":
            gram(arguments.n, arguments.tile, Path(folder))
        else:
            solve(arguments.n, Path(folder))


if __name__ == "__main__":
    main()
