"""Tiles on Dask workers against the same tiles in one process, and what kills cost.

python benchmarks/tiles_dask.py            # 4096 x 4096; writes benchmarks/results/tiles_dask.md
python benchmarks/tiles_dask.py --n 1024   # a look, nothing is written
"""

import argparse
import datetime
import functools
import importlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import psutil

import limitformer as lf
from limitformer import tiles

FULL = 4096
RESULT = Path(__file__).parent / "results/tiles_dask.md"


def transformer():
    """Four blocks of attention and MLP with norms."""
    dense = lf.Dense(w_std=1.4, b_std=0.1)
    attention = lf.Attention(scale="sqrt", weights="identity", qk_std=1 / 32)
    block = lf.Serial(
        lf.Residual(lf.LayerNorm(), attention),
        lf.Residual(lf.LayerNorm(), dense, lf.Relu(), dense),
    )
    return lf.Serial(dense, lf.Repeat(block, 4), lf.MeanPool(), lf.Dense())


def run(n: int, tile: int, store: Path, scheduler=None):
    """The Gram matrix of n sequences of 32 tokens."""
    x = np.random.default_rng(0).normal(size=(n, 32, 16))
    return lf.gram(
        transformer(), x, kinds="nngp", store=store, tile=tile, memory="1GiB", scheduler=scheduler
    )


def timed(call, client=None) -> tuple[float, float]:
    """Seconds of a clock, and of all processors of this process and of the workers."""

    def used() -> float:
        return time.process_time() + (sum(client.run(time.process_time).values()) if client else 0)

    start, before = time.perf_counter(), used()
    call()
    return time.perf_counter() - start, used() - before


def watched() -> None:
    """On a worker: count the CPU seconds of this process while it computes tiles."""
    task = importlib.import_module("limitformer.tiles.task")
    plain = task.run_tile

    @functools.wraps(plain)
    def run_tile(*call):
        start = time.process_time()
        plain(*call)
        task.spent = getattr(task, "spent", 0.0) + time.process_time() - start

    task.run_tile = run_tile


def spent() -> float:
    """On a worker: what was counted."""
    return getattr(sys.modules["limitformer.tiles.task"], "spent", 0.0)


def overhead(n: int, tile: int, rounds: int, folder: Path) -> list[tuple[float, ...]]:
    """Interleaved: one process of two threads, two workers of one, everything compiled before."""
    found = []
    with tiles.local_cluster(2) as cluster, cluster.get_client() as client:
        client.run(watched)
        for turn in range(-1, rounds):
            row: tuple[float, ...] = ()
            before = sum(client.run(spent).values())
            for name, scheduler in (("one", None), ("two", client)):
                store = folder / f"{name}{turn}"
                row += timed(lambda s=store, c=scheduler: run(n, tile, s, c), scheduler)
                shutil.rmtree(store)
            row += (sum(client.run(spent).values()) - before,)
            if turn >= 0:  # the first compiles
                found.append(row)
                print("one process, wall and CPU {:.1f} {:.1f}; Dask {:.1f} {:.1f}, in tasks {:.1f}"
                      .format(*row), flush=True)  # fmt: skip
    return found


def finished(store: Path) -> dict[str, tuple]:
    """Chunks that are there, with their files' numbers and times."""
    files = [p for p in (store / "nngp/c").rglob("*") if p.is_file() and p.suffix != ".partial"]
    return {str(p): (p.stat().st_ino, p.stat().st_mtime_ns) for p in files}


def driver(n: int, tile: int, store: Path) -> subprocess.Popen:
    """A run of its own, with its own cluster of two workers."""
    command = [sys.executable, __file__, "--n", str(n), "--tile", str(tile), "--drive", str(store)]
    return subprocess.Popen(command, start_new_session=True)


def wait_for(process: subprocess.Popen, store: Path, count: int) -> None:
    while process.poll() is None and len(finished(store)) < count:
        time.sleep(0.05)


def kill_worker(process: subprocess.Popen) -> None:
    """SIGKILL for the worker of the driver that has worked most."""
    family = psutil.Process(process.pid).children(recursive=True)
    worker = max(family, key=lambda p: sum(p.cpu_times()[:2]))
    os.kill(worker.pid, signal.SIGKILL)


def killed(n: int, tile: int, store: Path) -> dict[str, int]:
    """A run whose workers are killed, then the run itself; then the rest of it."""
    rows = -(-n // tile)
    total = rows * (rows + 1) // 2
    process = driver(n, tile, store)
    for part in (0.15, 0.3, 0.45):
        wait_for(process, store, int(part * total))
        kill_worker(process)
    wait_for(process, store, int(0.6 * total))
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    psutil.wait_procs(family, timeout=60)
    before = finished(store)
    start = time.perf_counter()
    process = driver(n, tile, store)
    if process.wait():
        raise RuntimeError("the run that should finish the matrix failed")
    after = finished(store)
    return {
        "total": total,
        "left": total - len(before),
        "again": sum(after[path] != before[path] for path in before),
        "orphans": sum(p.is_running() for p in family),
        "seconds": round(time.perf_counter() - start),
    }


def table(n: int, tile: int, small: int, rounds, whole, kills, same: bool) -> str:
    """The page of results."""
    wall_one, cpu_one, wall_two, cpu_two, tasks = (
        statistics.median(column) for column in zip(*rounds, strict=True)
    )
    apart = statistics.median(row[3] / row[4] - 1 for row in rounds)
    return f"""# Tiles on Dask workers

`python benchmarks/tiles_dask.py`, two cores shared with other work, JAX {jax.__version__},
{datetime.date.today()}.
NNGP of a 4-block transformer (identity attention, MLPs, norms) on 32 tokens, float64.

Medians of {len(rounds)} interleaved runs of {small} x {small} in tiles of {tile}, seconds:

| | wall | CPU of all processes |
|---|---|---|
| one process, two threads | {wall_one:.1f} | {cpu_one:.1f} |
| two Dask workers, one thread each, with scheduler and driver | {wall_two:.1f} | {cpu_two:.1f} |
| Dask over one process | {wall_two / wall_one - 1:+.1%} | {cpu_two / cpu_one - 1:+.1%} |

Of Dask's CPU seconds, {tasks:.1f} were spent in tasks: everything else, which is the scheduler, the
driver and the workers' own threads, is {apart:+.1%} of it. Other work on the machine changes wall
times most, CPU seconds less, and this ratio least.

| {n} x {n}, tiles of {tile} ({kills["total"]} of them) | |
|---|---|
| one process, two threads | {whole[0]:.0f} s wall, {whole[1]:.0f} s CPU, compilation included |
| two workers, three of them killed by SIGKILL, then the driver: tiles left | {kills["left"]} |
| the same call again: finished tiles written again | {kills["again"]} |
| worker processes that outlived their driver | {kills["orphans"]} |
| same bits as in one process | {"yes" if same else "NO"} |
"""


def main() -> None:
    """Measure, print, and write the page if it is the full size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=FULL)
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        with tiles.local_cluster(2) as cluster, cluster.get_client() as client:
            run(given.n, given.tile, given.drive, client)
        return
    small = min(given.n, 3 * given.tile)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds = overhead(small, given.tile, given.rounds, folder)
        whole = timed(lambda: run(given.n, given.tile, folder / "whole"))
        kills = killed(given.n, given.tile, folder / "killed")
        one, other = (np.asarray(tiles.open_gram(folder / s).nngp) for s in ("whole", "killed"))
        page = table(given.n, given.tile, small, rounds, whole, kills, np.array_equal(one, other))
    print(page)
    if given.n == FULL:
        RESULT.write_text(page)


if __name__ == "__main__":
    main()
