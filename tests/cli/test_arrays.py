"""Arrays in and out of files."""

import numpy as np
import pytest

from limitformer.cli.read import read, split, table_names
from limitformer.cli.write import check_out, write

A = np.random.default_rng(0).normal(size=(4, 3))
B = np.arange(4)


@pytest.mark.parametrize("suffix", [".npz", ".zarr"])
def test_named_arrays_come_back_bit_for_bit(tmp_path, suffix):
    path = write(tmp_path / f"K{suffix}", {"a": A, "b": B, "none": None})
    np.testing.assert_array_equal(read(f"{path}:a", "--x"), A)
    np.testing.assert_array_equal(read(f"{path}:b", "--x"), B)
    with pytest.raises(ValueError, match=r"which array\? Give .*:a or .*:b"):
        read(str(path), "--x")
    with pytest.raises(ValueError, match=r"--x .*: there is no array 'c'. Give"):
        read(f"{path}:c", "--x")
    one = write(tmp_path / f"one{suffix}", {"a": A})
    np.testing.assert_array_equal(read(str(one), "--x"), A)


def test_npy_holds_one_array(tmp_path):
    path = write(tmp_path / "a.npy", {"a": A})
    np.testing.assert_array_equal(read(str(path), "--x"), A)
    with pytest.raises(ValueError, match="without a name; leave out :a"):
        read(f"{path}:a", "--x")
    with pytest.raises(ValueError, match="holds one array, and there are a, b; write an npz"):
        write(tmp_path / "two.npy", {"a": A, "b": B})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_come_back_exactly(tmp_path, suffix):
    labels = np.array(["x", "y", "x", "z"])
    path = write(tmp_path / f"t{suffix}", {"a": A, "label": labels, "n": B})
    assert table_names(str(path)) == ("a_0", "a_1", "a_2", "label", "n")
    np.testing.assert_array_equal(read(f"{path}:a_0,a_1,a_2", "--x"), A)
    np.testing.assert_array_equal(read(f"{path}:label", "--y"), labels)
    np.testing.assert_array_equal(read(f"{path}:n", "--y"), B.astype(float))
    without = read(str(path), "--x", without=("label", "n"))
    np.testing.assert_array_equal(without, A)
    with pytest.raises(ValueError, match=r"column 'label' is not numbers \(such as 'x'\)"):
        read(str(path), "--x")
    with pytest.raises(ValueError, match="has no column 'm'; its columns are 'a_0'"):
        read(f"{path}:n,m", "--x")
    with pytest.raises(ValueError, match="which no table holds; write an npz"):
        write(tmp_path / f"u{suffix}", {"K": A[None]})


def test_a_name_is_only_split_after_a_known_suffix(tmp_path):
    assert split("C:data.npz")[1] is None
    assert split("data.npz:x")[1] == "x"
    assert split("a:b.npy")[0].name == "a:b.npy"


def test_bad_files_are_explained(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--x .*no\.npz: there is no file"):
        read(str(tmp_path / "no.npz"), "--x")
    with pytest.raises(ValueError, match=r"--x data.txt: expected a file that ends in .npy"):
        read("data.txt", "--x")
    pickled = tmp_path / "objects.npy"
    np.save(pickled, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a pickle.*never loaded"):
        read(str(pickled), "--x")
    hole = A.copy()
    hole[2, 1] = np.nan
    np.save(tmp_path / "hole.npy", hole)
    with pytest.raises(
        ValueError, match=r"1 of 12 values are NaN or infinite, the first at \(2, 1"
    ):
        read(str(tmp_path / "hole.npy"), "--x")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(ValueError, match=r"--x .*cut\.npz"):
        read(str(tmp_path / "cut.npz"), "--x")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".zarr"])
def test_nothing_is_replaced_unless_asked(tmp_path, suffix):
    path = write(tmp_path / f"a{suffix}", {"a": A})
    with pytest.raises(FileExistsError, match="choose another name, or replace it with --force"):
        write(path, {"a": 2 * A})
    write(path, {"a": 2 * A}, force=True)
    assert read(str(path), "--x").max() == 2 * A.max()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_is_no_zarr_is_never_replaced(tmp_path):
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="is a folder and no zarr array"):
        write(tmp_path / "mine.zarr", {"a": A}, force=True)
    assert (tmp_path / "mine.zarr" / "thesis.txt").read_text() == "years of work"


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        write(tmp_path / "a.npz", {"a": A})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        check_out(tmp_path / "no" / "a.npz", False)
    with pytest.raises(ValueError, match=r"expected a name that ends in \.npy"):
        check_out(tmp_path / "a.txt", False)
