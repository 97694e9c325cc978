"""A Dask cluster on this machine with the settings that JAX needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from ..extras import optional

WORKER_ENVIRONMENT = {
    # Dask's own value makes the allocator give memory back after every block: a third more time
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "JAX_ENABLE_X64": "1",
}
"""Environment of a worker process, also of one that is started by hand."""

QUIET = {
    # clocks that tick 50 to 100 times a second cost more than the scheduling of tiles of seconds
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.profile.enabled": False,
}
"""Settings of Dask for tasks of seconds."""

_ANY_PORT = "127.0.0.1:0"  # of the scheduler's pages: several clusters may run side by side


def local_cluster(
    workers: int | None = None, *, gpus: Sequence[int] | None = None, **options
) -> Any:
    """A Dask cluster of single-threaded processes on this machine that share its cores.

    Args:
        workers: processes; None: one per core, or one per GPU that was named.
        gpus: numbers of GPUs, as `nvidia-smi` has them; every worker sees one of them alone.
        options: for `distributed.LocalCluster` (`SpecCluster` with GPUs).

    Returns:
        The cluster, a context manager; `scheduler=cluster.get_client()`.
    """
    if gpus is not None and workers not in (None, len(gpus)):
        raise ValueError(
            f"workers={workers} and gpus={list(gpus)}: one worker per GPU; give gpus alone"
        )
    distributed, dask = optional("distributed", "tiles"), optional("dask", "tiles")
    cores = os.cpu_count() or 1
    workers = (cores if gpus is None else len(gpus)) if workers is None else workers
    environment = {**WORKER_ENVIRONMENT, "NPROC": str(max(1, cores // workers))}
    settings = {"distributed.nanny.pre-spawn-environ": environment, **QUIET}
    with dask.config.set(settings):
        if gpus is None:
            return distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=_ANY_PORT,
                **options,
            )
        scheduler = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": _ANY_PORT}
        pinned = {
            gpu: {
                "cls": distributed.Nanny,
                "options": {"nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": str(gpu)}},
            }
            for gpu in gpus
        }
        return distributed.SpecCluster(
            workers=pinned,
            scheduler={"cls": distributed.Scheduler, "options": scheduler},
            **{"silence_logs": logging.WARNING, **options},
        )
