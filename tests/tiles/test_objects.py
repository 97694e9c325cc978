"""Stores in S3, over its own protocol to a server on this machine."""

import sys
import urllib.request

import numpy as np
import pytest
from moto import server

import limitformer as lf
from limitformer.tiles.location import Location
from limitformer.tiles.store import open_store

NET = lf.Serial(lf.Dense(), lf.Relu(), lf.MeanPool(), lf.Dense())


@pytest.fixture
def bucket(monkeypatch):
    service = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    service.start()
    host, port = service.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    keys |= {"AWS_ENDPOINT": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    request = urllib.request.Request(f"http://{host}:{port}/kernels", method="PUT")
    with urllib.request.urlopen(request):
        pass
    yield "s3://kernels"
    service.stop()


def test_a_store_in_s3_is_computed_resumed_and_read(bucket):
    x = np.random.default_rng(0).normal(size=(24, 4, 3))
    url = f"{bucket}/folder/K.zarr"
    first = lf.gram(NET, x, store=url, tile=8)
    expected = np.asarray(first.nngp)
    np.testing.assert_allclose(expected, NET.kernel(x).nngp, rtol=1e-12)
    store = open_store(url)
    assert len(store.present()) == 6 and store.partial() == []
    store.remove([(1, 0), (2, 2)])
    assert len(store.present()) == 4
    with pytest.raises(RuntimeError, match="has not been computed"):
        np.asarray(first.nngp)
    again = lf.gram(NET, x, store=url, tile=8)
    np.testing.assert_array_equal(np.asarray(again.nngp), expected)
    with pytest.raises(ValueError, match="data"):
        lf.gram(NET, x + 1, store=url, tile=8)


def test_chained_addresses_are_known():
    assert not Location.of("simplecache::memory://not/there.zarr").exists()


def test_addresses_that_nobody_knows():
    with pytest.raises(ValueError, match="fsspec knows"):
        Location.of("nowhere://K.zarr").exists()
    with pytest.raises(ModuleNotFoundError, match="gdrive"):
        Location.of("gdrive://K.zarr").exists()


def test_without_obstore_the_message_says_what_to_install(monkeypatch):
    import fsspec

    def missing(scheme):
        raise ImportError("Install s3fs")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    monkeypatch.setitem(sys.modules, "obstore.fsspec", None)
    with pytest.raises(ModuleNotFoundError, match=r"limitformer\[cloud\]"):
        Location.of("s3://kernels/K.zarr").exists()
