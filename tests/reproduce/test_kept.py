"""A reproduction that stops goes on from what it kept."""

import json

import numpy as np
import pytest

from limitformer.reproduce.kept import Kept
from limitformer.tiles.manifest import engine

X = np.arange(6.0)


def kernels(calls):
    def compute(part):
        calls.append(part)
        return {"nngp": np.full((2, 2, 1), 0.0 if part is None else part.start)}

    return compute


def test_finished_parts_are_read_and_the_rest_is_computed(tmp_path):
    first, second = [], []
    run = Kept(tmp_path, {"size": "4"}, X)(kernels(first))
    expected = [run(None), run(slice(0, 5))]
    kept = Kept(tmp_path, {"size": "4"}, X)
    again = kept(kernels(second))
    found = [again(None), again(slice(0, 5)), again(slice(5, 8))]
    assert second == [slice(5, 8)]
    assert kept.seconds > 0
    for a, b in zip(found, expected, strict=False):
        np.testing.assert_array_equal(a["nngp"], b["nngp"])


def test_without_a_folder_nothing_is_kept():
    calls = []
    run = Kept(None, {}, X)(kernels(calls))
    run(None)
    run(None)
    assert calls == [None, None]


def test_other_settings_and_other_data_are_refused(tmp_path):
    Kept(tmp_path, {"size": "4"}, X)
    with pytest.raises(ValueError, match="size: '4', now '8'"):
        Kept(tmp_path, {"size": "8"}, X)
    with pytest.raises(ValueError, match="data: "):
        Kept(tmp_path, {"size": "4"}, X + 1)


def test_kernels_of_other_code_are_refused(tmp_path):
    """Readouts and their shared trunk compute kernels too, beside the engine of tiles."""
    Kept(tmp_path, {}, X)
    path = tmp_path / "reproduction.json"
    about = json.loads(path.read_text())
    assert about["engine"] != engine()
    path.write_text(json.dumps(about | {"engine": engine()}))
    with pytest.raises(ValueError, match="engine: "):
        Kept(tmp_path, {}, X)


def test_damaged_files_are_said_to_be(tmp_path):
    Kept(tmp_path, {}, X)(kernels([]))(None)
    file = tmp_path / "training.npz"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(ValueError, match="is damaged"):
        Kept(tmp_path, {}, X)(kernels([]))(None)
    (tmp_path / "reproduction.json").write_text("[1")
    with pytest.raises(ValueError, match="is damaged"):
        Kept(tmp_path, {}, X)


def test_a_part_that_fails_leaves_nothing_behind(tmp_path):
    def broken(part):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Kept(tmp_path, {}, X)(broken)(None)
    assert [file.name for file in tmp_path.iterdir()] == ["reproduction.json"]
