"""A store from someone else cannot run code or reach outside of its folder."""

import json
import os

import fsspec
import numpy as np
import pytest

import limitformer as lf
from limitformer import tiles
from limitformer.tiles.location import Location
from limitformer.tiles.store import open_store

NET = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
X = np.random.default_rng(0).normal(size=(12, 3))


@pytest.fixture
def path(tmp_path):
    lf.gram(NET, X, kinds="nngp", store=tmp_path / "K", tile=4)
    return tmp_path / "K"


def edit(file, change):
    about = json.loads(file.read_text())
    change(about)
    file.write_text(json.dumps(about))


@pytest.mark.parametrize("name", ["nngp", "x/array0"])
@pytest.mark.parametrize(
    "change",
    [
        lambda a: a["codecs"].insert(0, {"name": "numcodecs.pickle", "configuration": {}}),
        lambda a: a.update(data_type="string"),
        lambda a: a.update(zarr_format=2),
        lambda a: a.update(storage_transformers=[{"name": "x"}]),
    ],
)
def test_arrays_that_we_did_not_write_are_refused(path, name, change):
    edit(path / name / "zarr.json", change)
    with pytest.raises(ValueError, match=f"{name} is not an array that limitformer wrote"):
        tiles.verify(path)


def test_changed_shape_is_refused(path):
    edit(path / "nngp/zarr.json", lambda a: a.update(shape=[12, 11]))
    with pytest.raises(ValueError, match=r"expected plain numbers with a crc32c, shape \(12, 12\)"):
        np.asarray(tiles.open_gram(path).nngp)


@pytest.mark.parametrize("name", ["nngp/c/1", "nngp/c/1/0"])
def test_links_are_refused(path, name, tmp_path):
    os.rename(path / name, tmp_path / "outside")
    os.symlink(tmp_path / "outside", path / name)
    with pytest.raises(ValueError, match="is a symbolic link"):
        tiles.status(path)


def test_other_things_are_not_overwritten(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"is not a store of tiles; nothing is overwritten"):
        lf.gram(NET, X, store=tmp_path / "notes")
    assert (tmp_path / "notes/a.txt").read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="there is no store at"):
        tiles.status(tmp_path / "nothing")
    with pytest.raises(TypeError, match=r"store=3: give a path or an address"):
        Location.of(3)


def test_addresses_of_this_machine_are_folders(tmp_path):
    """Folders have atomic writes and are searched for links, whatever they are called."""
    for scheme in ("file", "local"):
        location = Location.of(f"{scheme}://{tmp_path}/K")
        assert location.local and location.url == f"{tmp_path}/K"
    assert not Location.of("memory://K/").local and Location.of("memory://K/").url == "memory://K"


def test_remote_store_with_missing_and_damaged_tiles(tmp_path):
    url = f"memory://{tmp_path.name}/K"
    before = np.asarray(lf.gram(NET, X, kinds="nngp", store=url, tile=4).nngp)
    files, root = fsspec.url_to_fs(url)
    data = bytearray(files.cat_file(f"{root}/nngp/c/2/0"))
    data[9] ^= 16
    files.pipe_file(f"{root}/nngp/c/2/0", bytes(data))
    files.rm_file(f"{root}/nngp/c/1/1")
    found = tiles.verify(url)
    assert found.missing == ((1, 1),) and found.damaged == ((2, 0),)
    with pytest.raises(tiles.MissingTile, match=r"the first is \(1, 1\)"):
        tiles.solve(tiles.Tiled(open_store(url), "nngp"), np.ones(12))
    assert np.array_equal(np.asarray(tiles.resume(url).nngp), before)
    assert tiles.verify(url).sound


def test_other_format(path):
    edit(path / "zarr.json", lambda a: a["attributes"]["limitformer"].update(format=99))
    with pytest.raises(ValueError, match="has format 99, this version reads 1"):
        open_store(path)


def test_network_in_the_manifest_is_data(path):
    evil = 'limitformer = 1\n[[layers]]\ntype = "os.system"\n'
    edit(path / "zarr.json", lambda a: a["attributes"]["limitformer"].update(network=evil))
    with pytest.raises(lf.files.NetworkFileError, match=r"os\.system"):
        tiles.verify(path)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("kinds", lambda a: a.update(kinds=["../../outside"])),
        ("inputs", lambda a: a["inputs"].update(x=["../../outside/array0"])),
        ("inputs", lambda a: a["inputs"].update({"../y": ["array0"]})),
        ("data", lambda a: a["data"].update(x="../0")),
        ("tiles", lambda a: a["tiles"].update(tile=0)),
        ("tiles", lambda a: a["tiles"].update(n="12")),
        ("dtype", lambda a: a.update(dtype="object")),
        ("draws", lambda a: a.update(draws=-1)),
    ],
)
def test_manifest_of_another_form_is_refused(path, field, change):
    edit(path / "zarr.json", lambda a: change(a["attributes"]["limitformer"]))
    for call in (tiles.status, tiles.verify, tiles.resume, tiles.open_gram):
        with pytest.raises(ValueError, match=f"is not one that limitformer wrote: {field} is"):
            call(path)


def test_nothing_outside_is_read_or_written(path, tmp_path):
    """A run in a store that someone changed touches no file beside it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "zarr.json").write_text((path / "x/array0/zarr.json").read_text())
    edit(
        path / "zarr.json",
        lambda a: a["attributes"]["limitformer"]["inputs"].update(x=["../../outside"]),
    )
    before = sorted(outside.rglob("*"))
    with pytest.raises(ValueError, match="inputs is"):
        tiles.resume(path)
    assert sorted(outside.rglob("*")) == before


def test_manifest_says_everything(path):
    about = open_store(path).manifest
    assert set(about) == {
        "format", "network", "kinds", "dtype", "precision", "key", "draws", "data", "inputs",
        "tiles", "versions", "revision", "engine",
    }  # fmt: skip
    assert lf.files.loads(about["network"]) == NET
    assert {"limitformer", "jax", "jaxlib", "numpy", "python", "equinox"} == set(about["versions"])


def test_status_is_readable(path):
    text = str(tiles.status(path))
    assert "6 of 6 tiles (100 %)" in text and "nngp float64 (12, 12)" in text
    assert tiles.status(path).complete
