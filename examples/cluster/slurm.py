"""Dask workers as Slurm jobs; needs `pip install "limitformer[slurm]"` and a Slurm cluster.

python slurm.py --show
python slurm.py --jobs 8 --partition cpu --store /shared/K.zarr
"""

import argparse

import numpy as np
from dask_jobqueue import SLURMCluster
from run import NET

import limitformer as lf
from limitformer.tiles import WORKER_ENVIRONMENT


def cluster_of(given: argparse.Namespace) -> SLURMCluster:
    """One worker per job, which computes a tile at a time with the cores or the GPU of its job."""
    environment = {**WORKER_ENVIRONMENT, "NPROC": str(given.cores)}
    return SLURMCluster(
        queue=given.partition,
        cores=1,  # one task at a time; JAX uses the job's cores by itself
        processes=1,
        job_cpu=given.cores,
        memory=given.memory,
        walltime="04:00:00",
        job_extra_directives=["--gres=gpu:1", "--requeue"] if given.gpu else ["--requeue"],
        job_script_prologue=[f"export {name}={value}" for name, value in environment.items()],
    )


def main() -> None:
    """Read the arguments and compute."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--memory", default="16GiB")
    parser.add_argument("--partition", default=None)
    parser.add_argument("--gpu", action="store_true", help="one worker per job, one GPU each")
    parser.add_argument("--store", default="K.zarr", help="a folder that all nodes see")
    parser.add_argument("--show", action="store_true", help="print the job script and stop")
    given = parser.parse_args()
    with cluster_of(given) as cluster:
        if given.show:
            print(cluster.job_script())
            return
        cluster.adapt(minimum_jobs=1, maximum_jobs=given.jobs)
        with cluster.get_client() as client:
            x = np.random.default_rng(0).normal(size=(2000, 16, 8))
            print(lf.gram(NET, x, kinds="nngp", store=given.store, scheduler=client, progress=True))


if __name__ == "__main__":
    main()
