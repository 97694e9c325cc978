"""`limitformer gram`: status, verify and resume of a store."""

import numpy as np

import limitformer as lf
from limitformer.cli import main

NET = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())


def test_status_verify_resume(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(12, 3))
    store = str(tmp_path / "K.zarr")
    K = np.asarray(lf.gram(NET, x, kinds="nngp", store=store, tile=4).nngp)
    assert main(["gram", "status", store]) == 0
    assert "6 of 6 tiles" in capsys.readouterr().out
    chunk = tmp_path / "K.zarr/nngp/c/1/0"
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(bytes(data))
    (tmp_path / "K.zarr/nngp/c/2/2").unlink()
    assert main(["gram", "status", store]) == 1
    assert "5 of 6 tiles" in capsys.readouterr().out
    assert main(["gram", "verify", store, "--sample", "2"]) == 1
    assert "1 tiles missing, 1 damaged (1, 0)" in capsys.readouterr().out
    assert main(["gram", "resume", store]) == 0
    assert "6 of 6 tiles" in capsys.readouterr().out
    assert main(["gram", "verify", store, "--sample", "9"]) == 0
    assert np.array_equal(np.asarray(lf.tiles.open_gram(store).nngp), K)


def test_errors_are_explained(tmp_path, capsys):
    assert main(["gram", "status", str(tmp_path / "nothing")]) == 1
    assert "limitformer gram: there is no store at" in capsys.readouterr().err
