"""IMDb from its folder and its archive."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from limitformer.data import imdb, sentences

SHARED = Path("/work/shared/data/imdb_5k_2k.parquet")
FILES = {
    "train/pos/10_9.txt": "Great café!",
    "train/pos/2_10.txt": "Lovely.<br />",
    "train/neg/1_1.txt": "Dull",
    "train/unsup/0_0.txt": "not labelled",
    "train/urls_pos.txt": "http://",
    "test/pos/0_7.txt": "Fine",
    "test/neg/3_4.txt": "Poor",
    "README": "...",
}


def folder(root, files=FILES):
    for name, content in files.items():
        path = root / "aclImdb" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root / "aclImdb"


def archive(path, files=FILES):
    with tarfile.open(path, "w:gz") as out:
        for name, content in files.items():
            data = content.encode()
            info = tarfile.TarInfo(f"aclImdb/{name}")
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return path


def same(data):
    assert data.x_train.tolist() == ["Dull", "Lovely.<br />", "Great café!"]
    assert data.y_train.tolist() == [0, 1, 1] and data.class_names == ("neg", "pos")
    assert data.train_extra["id"].tolist() == [1, 2, 10]
    assert data.train_extra["rating"].tolist() == [1, 10, 9]
    assert data.x_test.tolist() == ["Poor", "Fine"] and data.y_test.tolist() == [0, 1]


def test_folder(tmp_path):
    same(imdb(folder(tmp_path)))
    same(imdb(str(tmp_path)))


def test_archive(tmp_path):
    path = archive(tmp_path / "aclImdb_v1.tar.gz")
    same(imdb(path, verify=False))
    same(imdb(tmp_path, verify=False))
    with pytest.raises(ValueError, match="expected md5:7c2ac02c03563afcf9b574c7e56c153a"):
        imdb(path)
    assert list(tmp_path.iterdir()) == [path]
    path.write_bytes(path.read_bytes()[:80])
    with pytest.raises(ValueError, match="is not a whole tar archive"):
        imdb(path, verify=False)


def test_refuses(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        imdb(tmp_path / "aclImdb")
    for part in ("https://ai.stanford.edu/~amaas/data/sentiment/", "md5:7c2ac02c", str(tmp_path)):
        assert part in str(error.value)
    with pytest.raises(FileNotFoundError, match="there is no train/pos in it"):
        imdb(tmp_path)
    bad = archive(tmp_path / "a.tar.gz", {**FILES, "train/pos/good.txt": "?"})
    with pytest.raises(ValueError, match=r"train/pos/good.txt in .* is not named id_rating.txt"):
        imdb(bad, verify=False)
    half = {name: text for name, text in FILES.items() if "test/neg" not in name}
    with pytest.raises(ValueError, match="has no test/neg or no test/pos reviews"):
        imdb(archive(tmp_path / "b.tar.gz", half), verify=False)


def test_csv(tmp_path):
    (tmp_path / "a.csv").write_text(
        'text,label,split\n"Good, really",1,train\nBad,0,train\nSo so,0,test\n'
    )
    data = imdb(tmp_path / "a.csv")
    assert data.name == "IMDb" and data.x_train[0] == "Good, really"
    assert data.class_names == ("neg", "pos") and data.y_test.tolist() == [0]


@pytest.mark.skipif(not SHARED.exists(), reason="the copy of IMDb is not on this machine")
def test_shared_copy():
    pytest.importorskip("pyarrow")
    data = imdb(SHARED)
    assert data.x_train.shape == (5000,) and data.x_test.shape == (2000,)
    assert np.all(np.bincount(data.y_train) == 2500)
    assert np.all((data.train_extra["rating"] > 5) == (data.y_train == 1))
    assert sentences(SHARED).class_names == ("0", "1")
