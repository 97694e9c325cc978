"""GloVe's text files, with the oddities of the published ones."""

import copy
import zipfile
from pathlib import Path

import numpy as np
import pytest

from limitformer.data import Vectors, glove
from limitformer.data.glove_vectors import SOURCE

SHARED = Path("/work/shared/data/glove6b_100d_top50k_f16.npz")
WORDS = ["the", ",", "naïve", ". . .", "at name@domain.com", "x\u0085y", "42"]


def write(path, words=WORDS, d=3, seed=0):
    values = np.random.default_rng(seed).normal(size=(len(words), d)).round(4)
    lines = [" ".join([w, *map(str, row)]) for w, row in zip(words, values, strict=True)]
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return values.astype(np.float32)


def test_text_file(tmp_path):
    values = write(tmp_path / "glove.840B.3d.txt")
    found = glove(tmp_path / "glove.840B.3d.txt")
    assert found.words == tuple(WORDS) and np.array_equal(found.vectors, values)
    assert found.vectors.dtype == np.float32 and found.features == 3
    assert np.array_equal(found[". . ."], values[3]) and "42" in found and "43" not in found
    assert found.words == glove(str(tmp_path)).words


def test_top_and_words(tmp_path):
    values = write(tmp_path / "vectors.txt")
    assert glove(tmp_path / "vectors.txt", top=2).words == ("the", ",")
    some = glove(tmp_path / "vectors.txt", words=["42", ". . .", "at", "nowhere"])
    assert some.words == (". . .", "42") and np.array_equal(some.vectors, values[[3, 6]])
    assert some.notes == ("2 of 4 words have no vector",)
    assert glove(tmp_path / "vectors.txt", top=4, words=["42", ". . ."]).words == (". . .",)
    with pytest.raises(ValueError, match="has none of the words"):
        glove(tmp_path / "vectors.txt", words=["nowhere"])
    with pytest.raises(TypeError, match="words='the' is one word"):
        glove(tmp_path / "vectors.txt", words="the")
    with pytest.raises(ValueError, match="top=0 reads nothing"):
        glove(tmp_path / "vectors.txt", top=0)


def test_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "glove.mine.zip", "w") as archive:
        for d in (2, 3):
            values = write(tmp_path / "one", d=d)
            archive.write(tmp_path / "one", f"glove.mine.{d}d.txt")
    (tmp_path / "one").unlink()
    assert np.array_equal(glove(tmp_path / "glove.mine.zip", features=3).vectors, values)
    assert glove(tmp_path, features=2).features == 2
    with pytest.raises(
        ValueError, match=r"glove.mine.2d.txt, glove.mine.3d.txt; pick one with fea"
    ):
        glove(tmp_path / "glove.mine.zip")
    (tmp_path / "glove.mine.zip").rename(tmp_path / "glove.6B.zip")
    with pytest.raises(ValueError, match=f"expected {SOURCE.files['glove.6B.zip']}.*verify=False"):
        glove(tmp_path / "glove.6B.zip", features=3)
    assert glove(tmp_path / "glove.6B.zip", features=3, verify=False).features == 3


def test_header_and_repeats(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"3 2\nthe 1 2 \nof 3 4 \nthe 5 6\n")
    found = glove(tmp_path / "a.txt")
    assert found.words == ("the", "of") and found["the"].tolist() == [1, 2]
    assert found.notes == ("1 repeated words: the first is kept",)
    (tmp_path / "b.txt").write_bytes(b"caf\xe9 1 2\n")  # not UTF-8
    assert glove(tmp_path / "b.txt").words == ("caf\\xe9",)


def test_damaged(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"the 1 2\nof 3\n")
    with pytest.raises(ValueError, match=r"line 2 of .*a.txt is not a word and 2 numbers \(1 num"):
        glove(path)
    path.write_bytes(b"the 1 2\nof 3 x\n")
    with pytest.raises(ValueError, match=r"line 2 of .*could not convert"):
        glove(path)
    path.write_bytes(b"the 1 2 3\nof 3 4 5\n")
    with pytest.raises(
        ValueError, match="has 3 fields after its word, not 2 numbers; pass feature"
    ):
        glove(path, features=2)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="has no lines"):
        glove(path)
    path.write_bytes(b"the 1 nan\n")
    with pytest.raises(ValueError, match="the vector of 'the' is not finite"):
        glove(path)


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        glove(tmp_path / "glove.6B.50d.txt")
    for part in ("https://nlp.stanford.edu/projects/glove/", "md5:056ea9", f"into {tmp_path}"):
        assert part in str(error.value)
    with pytest.raises(FileNotFoundError, match="none of its files are there"):
        glove(tmp_path)


def test_npz(tmp_path):
    vectors = np.eye(3, dtype=np.float16)
    np.savez(tmp_path / "a.npz", vectors=vectors, words=np.array(["a", "b", "c"]))
    found = glove(tmp_path / "a.npz", words=["c", "d"])
    assert found.words == ("c",) and found.vectors.dtype == np.float32
    assert found.notes == ("stored as float16, read as float32", "1 of 2 words have no vector")
    np.savez(tmp_path / "b.npz", vectors=vectors)
    with pytest.raises(ValueError, match="has vectors; expected vectors, and words or words_utf8"):
        glove(tmp_path / "b.npz")


def test_vectors():
    two = Vectors(("cat", "dog"), np.eye(2))
    assert copy.deepcopy(two) is two
    with pytest.raises(ValueError, match="read-only"):
        two.vectors[0] = 1
    report = two.coverage(["cat cat bird", "", "fish"])
    assert (report.known, report.unknown, report.empty, report.blank) == (2, 2, 1, 2)
    assert "50.0% of them known (missing: 'bird' 1, 'fish' 1)" in str(report)
    with pytest.raises(ValueError, match="1 words are there twice"):
        Vectors(("cat", "cat"), np.eye(2))
    with pytest.raises(ValueError, match=r"1 words and vectors of shape \(2, 2\)"):
        Vectors(("cat",), np.eye(2))


@pytest.mark.skipif(not SHARED.exists(), reason="the copy of GloVe is not on this machine")
def test_shared_copy():
    found = glove(SHARED, top=1000)
    assert found.vectors.shape == (1000, 100) and found.words[0] == "the"
