"""A Gram matrix on a cluster: the same script for Slurm, Kubernetes and one machine.

python run.py --scheduler tcp://host:8786 --store /shared/K.zarr
"""

import argparse

import numpy as np

import limitformer as lf

NET = lf.Serial(
    lf.Dense(1.4, 0.1), lf.Relu(), lf.Attention(scale="linear"), lf.MeanPool(), lf.Dense()
)


def main() -> None:
    """Read the arguments and compute."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", default=None, help="address of a Dask scheduler")
    parser.add_argument("--store", default="K.zarr", help="where all workers can read and write")
    parser.add_argument("--inputs", type=int, default=2000)
    arguments = parser.parse_args()
    x = np.random.default_rng(0).normal(size=(arguments.inputs, 16, 8))
    K = lf.gram(
        NET,
        x,
        kinds="nngp",
        store=arguments.store,
        scheduler=arguments.scheduler,
        progress=True,
    )
    print(K)


if __name__ == "__main__":
    main()
