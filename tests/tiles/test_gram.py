"""lf.gram: the same matrix as net.kernel, wherever it is kept and however inputs come."""

import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import zarr

import limitformer as lf
from limitformer.kernel import progress
from limitformer.kernel.progress import Progress
from limitformer.tiles import MissingTile, compute, open_gram


@pytest.fixture
def net():
    return lf.Serial(lf.Dense(1.3, 0.2), lf.Relu(), lf.MeanPool(), lf.Dense())


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(24, 4, 3))


def close(K, values):
    np.testing.assert_allclose(np.asarray(K), np.asarray(values), rtol=1e-12)


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_stored_is_the_kernel(net, x, place, tmp_path):
    store = tmp_path / "K.zarr" if place == "folder" else f"memory://{tmp_path.name}/K.zarr"
    K = lf.gram(net, x, store=store, tile=10 if place == "folder" else 8)
    k = net.kernel(x)
    for kind in ("nngp", "ntk"):
        values = np.asarray(getattr(K, kind))
        close(values, getattr(k, kind))
        assert np.array_equal(values, values.T)
        close(K.rows(3, 17)[kind], np.asarray(getattr(k, kind))[3:17])
    again = open_gram(store)
    assert again.shape == (24, 24) and again.dtype == np.float64
    assert np.array_equal(np.asarray(again.ntk), np.asarray(K.ntk))


def test_rectangular_masked_and_both_orders_of_tiles(net, x, tmp_path):
    y, lengths = x[:8] + 1.0, np.arange(24) % 4 + 1
    mask = np.arange(4) < lengths[:, None]
    K = lf.gram(net, x, y, x_mask=mask, kinds="ntk", store=tmp_path / "K", tile=8)
    close(K.ntk, net.kernel(x, y, x_mask=mask).ntk)
    assert K.nngp is None and K.shape == (24, 8)
    V = np.random.default_rng(1).normal(size=(8, 2))
    np.testing.assert_allclose(K.ntk @ V, np.asarray(K.ntk) @ V, rtol=1e-12)


def test_lower_triangle_only_and_plain_chunks(net, x, tmp_path):
    K = lf.gram(net, x, kinds="nngp", store=tmp_path / "K", tile=8)
    chunks = {
        p.relative_to(tmp_path / "K/nngp/c").as_posix() for p in _files(tmp_path / "K/nngp/c")
    }
    assert chunks == {"0/0", "1/0", "1/1", "2/0", "2/1", "2/2"}
    first = (tmp_path / "K/nngp/c/1/0").read_bytes()
    assert len(first) == 8 * 8 * 8 + 4  # raw numbers and a crc32c
    tile = np.frombuffer(first[:-4], "<f8").reshape(8, 8)
    assert np.array_equal(tile, K.nngp.rows(8, 16)[:, :8])


def _files(folder):
    return [p for p in folder.rglob("*") if p.is_file()]


def test_inputs_from_memory_maps_and_zarr_arrays(net, x, tmp_path):
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    held = zarr.create_array(str(tmp_path / "x.zarr"), shape=x.shape, dtype="f8", chunks=(5, 4, 3))
    held[:] = x
    plain = lf.gram(net, x, kinds="nngp", store=tmp_path / "A", tile=8, memory="1GiB")
    for name, given in (("B", mapped), ("C", held)):
        K = lf.gram(net, given, kinds="nngp", store=tmp_path / name, tile=8, memory="1GiB")
        assert np.array_equal(np.asarray(K.nngp), np.asarray(plain.nngp))
        assert K.store.identity == plain.store.identity


@pytest.mark.parametrize("stored", [True, False])
def test_token_lists_of_different_lengths(stored, tmp_path):
    rng = np.random.default_rng(3)
    ids = [rng.integers(0, 9, size=rng.integers(1, 15)).tolist() for _ in range(18)]
    net = lf.Serial(lf.Embed(), lf.Dense(), lf.Relu(), lf.MeanPool())
    padded = np.zeros((18, 15), int)
    mask = np.zeros((18, 15), bool)
    for r, row in enumerate(ids):
        padded[r, : len(row)], mask[r, : len(row)] = row, True
    k = net.kernel(padded, x_mask=mask)
    K = lf.gram(net, ids, store=tmp_path / "K" if stored else None, tile=9)
    close(K.ntk, k.ntk)
    close(K.rows(4, 11)["nngp"], np.asarray(k.nngp)[4:11])
    if stored:
        V = rng.normal(size=(18, 3))
        np.testing.assert_allclose(K.ntk @ V, np.asarray(k.ntk) @ V, rtol=1e-12)
    cross = lf.gram(net, ids[:9], ids, store=tmp_path / "C" if stored else None, tile=9)
    close(cross.nngp, np.asarray(k.nngp)[:9])


def test_sequences_of_features(net, tmp_path):
    rng = np.random.default_rng(3)
    rows = [rng.normal(size=(s, 3)) for s in (2, 5, 3, 5)]
    K = lf.gram(net, rows, store=tmp_path / "K", tile=2)
    x, mask = np.zeros((4, 5, 3)), np.zeros((4, 5), bool)
    for r, row in enumerate(rows):
        x[r, : len(row)], mask[r, : len(row)] = row, True
    close(K.ntk, net.kernel(x, x_mask=mask).ntk)


def test_token_kernels_and_estimates(tmp_path):
    x = np.random.default_rng(0).normal(size=(6, 3, 2))
    net = lf.Serial(lf.Dense(), lf.Attention(), lf.Dense())
    k = net.kernel(x, draws=32)
    K = lf.gram(net, x, draws=32, store=tmp_path / "K", tile=3)
    assert K.shape == (6, 6, 3, 3)
    for name in ("nngp", "ntk", "nngp_sem", "ntk_sem"):
        np.testing.assert_allclose(np.asarray(getattr(K, name)), getattr(k, name), atol=1e-12)
    own = np.asarray(K.nngp)
    assert np.array_equal(own, own.transpose(1, 0, 3, 2))
    close(K.nngp.rows(2, 5), np.asarray(k.nngp)[2:5])


def test_dropout_knows_an_input_from_its_copy(tmp_path):
    x = np.ones((6, 3))
    net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dropout(0.5), lf.Dense())
    close(lf.gram(net, x, store=tmp_path / "K", tile=2).nngp, net.kernel(x).nngp)
    close(lf.gram(net, x, x, store=tmp_path / "L", tile=2).nngp, net.kernel(x, x).nngp)


def test_float32_is_float32(net, x, tmp_path):
    K = lf.gram(net, x, dtype=np.float32, kinds="nngp", store=tmp_path / "K", tile=8)
    assert K.dtype == np.float32
    np.testing.assert_allclose(np.asarray(K.nngp), net.kernel(x, dtype=np.float32).nngp, rtol=1e-6)
    assert lf.gram(net, x.astype(np.float32), kinds="nngp").dtype == np.float64


def test_executor(net, x, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        K = lf.gram(net, x, kinds="nngp", store=tmp_path / "K", tile=8, scheduler=pool)
    L = lf.gram(net, x, kinds="nngp", store=tmp_path / "L", tile=8)
    assert np.array_equal(np.asarray(K.nngp), np.asarray(L.nngp))


def test_records_of_rows_are_computed_once(net, x, tmp_path, monkeypatch):
    calls = []
    plain = compute.Blocks._side

    def counted(self, streams, start, offset, name):
        calls.append((offset, start))
        return plain(self, streams, start, offset, name)

    monkeypatch.setattr(compute.Blocks, "_side", counted)
    lf.gram(net, x, kinds="nngp", store=tmp_path / "K", tile=8)
    assert sorted(calls) == [(0, 0), (8, 0), (16, 0)]


def test_progress(net, x, tmp_path):
    seen = []
    lf.gram(net, x, store=tmp_path / "K", tile=12, progress=lambda *a: seen.append(a[:2]))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_run_that_goes_on_knows_its_own_pace(net, x, tmp_path, monkeypatch):
    """Tiles of the run before took none of this run's time."""
    seen = []

    def stop(done, total, left):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lf.gram(net, x, store=tmp_path / "K", tile=8, progress=stop)
    begun = Progress(lambda *report: seen.append(report), start=0.0)
    monkeypatch.setattr(Progress, "of", lambda given: begun)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 7.0))
    lf.gram(net, x, store=tmp_path / "K", tile=8)
    assert seen == [(5, 6, 7.0), (6, 6, 0.0)]


def test_what_is_refused(net, x, tmp_path):
    with pytest.raises(ValueError, match=r"scheduler= needs store=.*store=\"K.zarr\""):
        lf.gram(net, x, scheduler="tcp://nowhere:1")
    with pytest.raises(TypeError, match=r"scheduler=3: give a dask.distributed.Client"):
        lf.gram(net, x, store=tmp_path / "A", scheduler=3)
    with pytest.raises(ValueError, match="y_mask was given without y"):
        lf.gram(net, x, y_mask=np.ones((24, 4), bool), store=tmp_path / "A")
    with pytest.raises(ValueError, match="needs no x_mask"):
        lf.gram(net, [x[0], x[1, :2]], x_mask=np.ones((2, 4), bool))
    with pytest.raises(ValueError, match=r"without tokens in rows \[1\]"):
        lf.gram(net, [x[0], x[1, :0]])
    tokens = lf.Serial(lf.Dense(), lf.Relu())
    with pytest.raises(ValueError, match="end the network with a readout"):
        lf.gram(tokens, [x[0], x[1, :2]])
    custom = lf.Serial(lf.Dense(), lf.Activation(jnp.tanh), lf.MeanPool())
    with pytest.raises(lf.files.NetworkFileError, match="Python function") as error:
        lf.gram(custom, x, store=tmp_path / "B")
    assert "without store= any network will do" in error.value.__notes__[0]
    assert not os.path.exists(tmp_path / "B")


def test_missing_tile_is_an_error(net, x, tmp_path):
    K = lf.gram(net, x, kinds="nngp", store=tmp_path / "K", tile=8)
    os.remove(tmp_path / "K/nngp/c/2/1")
    for read in (
        lambda: np.asarray(K.nngp),
        lambda: K.rows(17, 18),
        lambda: K.nngp @ np.ones(24),
        lambda: open_gram(tmp_path / "K"),
    ):
        with pytest.raises(MissingTile, match=r"\(2, 1\).*limitformer gram resume"):
            read()
