"""Tables from CSV and parquet, and arrays from npz."""

import sys

import numpy as np
import pytest

from limitformer.data import npz, table

CSV = """\ufeffsize,colour, rooms ,price,kind
1.5,red,2,100,"flat, small"
2e1,blue,10,200.5,house
-3,red,9,50,house
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "homes.csv").write_text(CSV, encoding="utf-8")
    return tmp_path / "homes.csv"


def test_regression(path):
    data = table(path, target="price", categorical=["rooms"])
    assert data.feature_names == (
        *("size", "colour=blue", "colour=red", "rooms=2", "rooms=9", "rooms=10"),
        *("kind=flat, small", "kind=house"),
    )
    assert data.x_train[1].tolist() == [20, 1, 0, 0, 0, 1, 0, 1]
    assert data.y_train.tolist() == [100, 200.5, 50] and data.class_names == ()
    assert data.name == "homes" and data.take(2, 1, key=0).y_test.shape == (1,)


def test_classification(path):
    data = table(path, target="kind", drop=["colour"])
    assert data.class_names == ("flat, small", "house") and data.y_train.tolist() == [0, 1, 1]
    assert data.notes == ("columns left out: colour",)
    data = table(path, target="rooms", task="classification")
    assert data.class_names == ("2", "9", "10") and data.y_train.tolist() == [0, 2, 1]
    two = table(path, target=["price", "rooms"])
    assert two.y_train.shape == (3, 2) and two.x_train.shape == (3, 5)


def test_missing_values(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a;b;y\n1;x;1\n?;y;2\n3;;3\n4;x;NA\n5;z;5\n")
    with pytest.raises(ValueError, match=r"3 of 5 rows have missing values \(a: 1, b: 1, y: 1\)"):
        table(path, target="y", delimiter=";")
    data = table(path, target="y", delimiter=";", missing="drop")
    assert data.x_train.tolist() == [[1, 1, 0], [5, 0, 1]] and data.y_train.tolist() == [1, 5]
    assert data.notes == ("3 of 5 rows with missing values were dropped",)


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("a,b\n1,2\n", {"target": "y"}, "no column 'y'; its columns are 'a', 'b'"),
        ("a,y\n1,2\n", {"target": "y", "drop": ["y"]}, "target='y' is also in drop"),
        ("a,y\n", {"target": "y"}, "has a header and no rows"),
        ("", {"target": "y"}, "is empty; expected a header line"),
        ("a,a\n1,2\n", {"target": "a"}, "expected a different name for every column"),
        ("a,y\n1,2\n1,2,3\n", {"target": "y"}, "line 3 of .* has 3 fields, the header 2"),
        ("a,y\n1,inf\n", {"target": "y"}, "column 'y' has 'inf' in row 0"),
        ("a,y\n1,x\n", {"target": "y", "task": "regression"}, "is not numbers; pass task="),
        ("a,y\n1,x\n", {"target": ["a", "y"]}, "no columns besides the target"),
        ("y\n1\n", {"target": "y"}, "no columns besides the target"),
        ('a,y\n"1,2\n', {"target": "y"}, "near line"),
    ],
)
def test_refuses(tmp_path, text, options, why):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=why):
        table(tmp_path / "a.csv", **options)


def test_text_is_not_a_category(tmp_path):
    lines = [f"person {i},{i}" for i in range(101)]
    (tmp_path / "a.csv").write_text("\n".join(["who,y", *lines]))
    with pytest.raises(ValueError, match=r"text with 101 different values.*drop=\['who'\]"):
        table(tmp_path / "a.csv", target="y")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"limitformer downloads nothing"):
        table(tmp_path / "a.csv", target="y")


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"a": [1, 2, None], "b": ["x", "y", "x"], "c": [True, False, True], "y": [0.5, 1, 2]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"1 of 3 rows have missing values \(a: 1\)"):
        table(tmp_path / "a.parquet", target="y")
    data = table(tmp_path / "a.parquet", target="y", missing="drop")
    assert data.feature_names == ("a", "b=x", "b=y", "c")
    assert data.x_train.tolist() == [[1, 1, 0, 1], [2, 0, 1, 0]]
    (tmp_path / "b.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"b.parquet cannot be read as parquet"):
        table(tmp_path / "b.parquet", target="y")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "limitformer\[data\]"'):
        table(tmp_path / "a.parquet", target="y")


def test_npz(tmp_path):
    x, y = np.eye(3, dtype=np.float32), np.array([0, 2, 1], np.uint8)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, train_id=y, other=x)
    data = npz(tmp_path / "a.npz")
    assert data.class_names == ("0", "1", "2") and data.y_train.dtype == np.int64
    assert data.x_train.dtype == np.float32 and len(data.x_test) == 0
    assert data.train_extra["id"].tolist() == [0, 2, 1]
    assert data.notes == ("not used from the file: other",)
    np.savez(tmp_path / "b.npz", x_train=x, y_train=x[0])
    assert npz(tmp_path / "b.npz").class_names == ()


def test_npz_refuses(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.eye(2))
    with pytest.raises(ValueError, match=r"has x_train, but no y_train; write it with np.savez"):
        npz(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x_train=np.array([{}], object), y_train=np.zeros(1))
    with pytest.raises(ValueError, match="pickles and never loaded"):
        npz(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"PK broken")
    with pytest.raises(ValueError, match="cannot be read as arrays"):
        npz(tmp_path / "c.npz")
    with pytest.raises(FileNotFoundError, match=r"lf.data.npz takes the path of one file"):
        npz(tmp_path / "d.npz")
