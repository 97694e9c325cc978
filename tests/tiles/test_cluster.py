"""Clusters: settings of workers, one GPU each, and the files of examples/cluster."""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import limitformer as lf
from limitformer import tiles

EXAMPLES = Path(__file__).parents[2] / "examples/cluster"


def test_one_worker_per_gpu_each_sees_its_own():
    with tiles.local_cluster(gpus=[3, 5]) as cluster, cluster.get_client() as client:
        client.wait_for_workers(2)
        seen = client.run(lambda: {name: os.environ.get(name) for name in os.environ})
        threads = [about["nthreads"] for about in client.scheduler_info()["workers"].values()]
    assert {about["CUDA_VISIBLE_DEVICES"] for about in seen.values()} == {"3", "5"}
    for about in seen.values():
        assert tiles.WORKER_ENVIRONMENT.items() <= about.items()
    assert threads == [1, 1]
    with pytest.raises(ValueError, match=r"workers=3 and gpus=\[0\]: one worker per GPU"):
        tiles.local_cluster(3, gpus=[0])


@pytest.mark.parametrize("options", [{"workers": 1}, {"gpus": [0]}])
def test_a_second_cluster_finds_a_port(options):
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # somebody else has Dask's usual port: as good
            taken.bind(("", 8787))
            taken.listen()
        with tiles.local_cluster(**options) as cluster, cluster.get_client() as client:
            client.wait_for_workers(1)


def test_script_of_the_examples_runs(tmp_path):
    command = [sys.executable, str(EXAMPLES / "run.py"), "--store", str(tmp_path / "K.zarr")]
    done = subprocess.run([*command, "--inputs", "6"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Gram(nngp, float64, (6, 6)")


def test_slurm_script():
    pytest.importorskip("dask_jobqueue")
    command = [sys.executable, str(EXAMPLES / "slurm.py"), "--show", "--gpu", "--cores", "6"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in ("#SBATCH --cpus-per-task=6", "#SBATCH --gres=gpu:1", "export NPROC=6"):
        assert line in done.stdout.splitlines()
    for name, value in tiles.WORKER_ENVIRONMENT.items():
        assert f"export {name}={value}" in done.stdout.splitlines()
    assert "--nthreads 1" in done.stdout


def test_kubernetes_file():
    about = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())
    assert (about["apiVersion"], about["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    (worker,) = about["spec"]["worker"]["spec"]["containers"]
    (scheduler,) = about["spec"]["scheduler"]["spec"]["containers"]
    environment = {entry["name"]: entry["value"] for entry in worker["env"]}
    assert tiles.WORKER_ENVIRONMENT.items() <= environment.items()
    assert environment["NPROC"] == worker["resources"]["limits"]["cpu"]
    assert worker["args"][-2:] == ["--nthreads", "1"]
    for container in (worker, scheduler):
        program, command, *_ = container["args"]
        assert program == "dask"
        assert importlib.util.find_spec(f"distributed.cli.dask_{command}")


def test_network_of_the_examples_can_be_stored():
    spec = importlib.util.spec_from_file_location("run", EXAMPLES / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert lf.files.loads(module.NET.to_toml()) == module.NET
