"""A Dask cluster on this machine with the settings that JAX needs."""

from __future__ import annotations

import os
from typing import Any

from ..extras import optional

WORKER_ENVIRONMENT = {
    # Dask's own value makes the allocator give memory back after every block: a third more time
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "JAX_ENABLE_X64": "1",
}
"""Environment of a worker process, also of one that is started by hand."""


def local_cluster(workers: int | None = None, **options) -> Any:
    """A `dask.distributed.LocalCluster` of single-threaded processes that share the cores.

    Args:
        workers: processes; None: one per core.
        options: for `LocalCluster`.

    Returns:
        The cluster, a context manager; `scheduler=cluster.get_client()`.
    """
    distributed, dask = optional("distributed", "tiles"), optional("dask", "tiles")
    cores = os.cpu_count() or 1
    workers = cores if workers is None else workers
    environment = {**WORKER_ENVIRONMENT, "NPROC": str(max(1, cores // workers))}
    settings = {"distributed.nanny.pre-spawn-environ": environment}
    with dask.config.set(settings):
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            **options,
        )
