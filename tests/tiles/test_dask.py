"""Dask workers: the same bits as this process, also when workers and schedulers die."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import limitformer as lf
from limitformer import tiles

NET = lf.Serial(lf.Dense(1.3, 0.2), lf.Relu(), lf.Dense())
X = np.random.default_rng(0).normal(size=(96, 3))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    store = tmp_path_factory.mktemp("whole") / "K"
    return lf.gram(NET, X, kinds="nngp", store=store, tile=12, memory="1GiB")


@pytest.fixture(scope="module")
def client():
    with tiles.local_cluster(2) as cluster, cluster.get_client() as client:
        yield client


def test_killed_worker_changes_nothing(client, whole, tmp_path):
    killed = []

    def kill(done, total, left):
        if done == 2:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    options = {"kinds": "nngp", "tile": 12, "memory": "1GiB", "scheduler": client}
    K = lf.gram(NET, X, store=tmp_path / "K", progress=kill, **options)
    assert killed
    assert K.store.identity == whole.store.identity
    assert np.array_equal(np.asarray(K.nngp), np.asarray(whole.nngp))


def test_conjugate_gradients_on_workers(client, whole):
    y = np.random.default_rng(1).normal(size=(96, 2))
    options = {"noise": 1e-2, "method": "cg", "tolerance": 1e-10}
    here = tiles.solve(whole.nngp, y, **options)
    there = tiles.solve(whole.nngp, y, scheduler=client, **options)
    exact = np.linalg.solve(np.asarray(whole.nngp) + 1e-2 * np.eye(96), y)
    for found in (here, there):
        assert found.residual <= 1e-10
        np.testing.assert_allclose(found.alpha, exact, atol=1e-7 * np.abs(exact).max())


def test_error_on_a_worker_reaches_the_caller_who_gave_an_address(client, tmp_path):
    bad = X.copy()
    bad[50, 1] = np.nan
    with pytest.raises(ValueError, match="x has NaN or infinite values") as error:
        lf.gram(NET, bad, store=tmp_path / "K", tile=12, scheduler=client.scheduler.address)
    assert "the same call again" in error.value.__notes__[-1]


SERVE = """
import time
from limitformer.tiles import local_cluster
if __name__ == "__main__":
    with local_cluster(1) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(600)
"""


@pytest.mark.slow
def test_scheduler_that_goes_away(whole, tmp_path):
    (tmp_path / "serve.py").write_text(SERVE)
    command = [sys.executable, str(tmp_path / "serve.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    address = process.stdout.readline().strip()
    options = {"kinds": "nngp", "store": tmp_path / "K", "tile": 12, "memory": "1GiB"}

    def kill(done, total, left):
        if done == 2:
            os.killpg(process.pid, signal.SIGKILL)

    try:
        with pytest.raises(ConnectionError, match=r"scheduler went away .* the same call again"):
            lf.gram(NET, X, scheduler=address, progress=kill, **options)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    K = lf.gram(NET, X, **options)
    assert np.array_equal(np.asarray(K.nngp), np.asarray(whole.nngp))
