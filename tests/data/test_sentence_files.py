"""Texts, labels and splits in one file."""

from pathlib import Path

import pytest

from limitformer.data import sentences

SHARED = Path("/work/shared/data/sentence_sets.parquet")


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_several_sets(tmp_path):
    lines = ["dataset,split,label,text", "a,train,0,one", "a,dev,1,two", "a,test,1,three"]
    path = write(tmp_path / "a.csv", [*lines, "b,all,x,four", "b,all,y,"])
    data = sentences(path, dataset="a")
    assert data.x_train.tolist() == ["one"] and data.y_test.tolist() == [1]
    assert data.notes == ("1 rows of dev were left out",) and data.name == "a"
    both = sentences(path, dataset="a", train=["train", "dev"])
    assert both.x_train.tolist() == ["one", "two"] and both.notes == ()
    other = sentences(path, dataset="b")
    assert other.x_train.tolist() == ["four", ""] and other.class_names == ("x", "y")
    assert len(other.x_test) == 0
    with pytest.raises(ValueError, match="has the sets a, b; pass one as dataset="):
        sentences(path)
    with pytest.raises(ValueError, match="a has the parts dev, test, train, not validation"):
        sentences(path, dataset="a", test="validation")
    with pytest.raises(ValueError, match="share rows"):
        sentences(path, dataset="a", train=["train", "test"])


def test_labels(tmp_path):
    path = write(tmp_path / "a.csv", ["sentence,kind,source", "x,neg,1", "y,pos,2"])
    data = sentences(path, text="sentence", label="kind", class_names=("pos", "neg"))
    assert data.y_train.tolist() == [1, 0] and data.class_names == ("pos", "neg")
    assert data.train_extra["source"].tolist() == ["1", "2"]
    with pytest.raises(ValueError, match="labels neg, which are not in class_names="):
        sentences(path, text="sentence", label="kind", class_names=("pos",))
    with pytest.raises(ValueError, match="no column 'text'; its columns are 'sentence', 'kind'"):
        sentences(path)
    with pytest.raises(ValueError, match=r"no column 'dataset', but dataset='a' was given"):
        sentences(path, text="sentence", label="kind", dataset="a")
    path = write(tmp_path / "b.csv", ["text,label", "x,-1", "y,1"])
    with pytest.raises(ValueError, match=r"go from -1 to 1.*held back"):
        sentences(path)
    path = write(tmp_path / "c.csv", ["text,label", "x,1", "y,"])
    with pytest.raises(ValueError, match="rows without a label"):
        sentences(path)


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no.csv is not there; lf.data.sentences takes"):
        sentences(tmp_path / "no.csv")
    with pytest.raises(
        FileNotFoundError, match=r"is a folder; lf.data.sentences takes the path of"
    ):
        sentences(tmp_path)


@pytest.mark.skipif(not SHARED.exists(), reason="the sentence sets are not on this machine")
def test_shared_copy():
    pytest.importorskip("pyarrow")
    data = sentences(SHARED, dataset="trec6")
    assert len(data.x_train) == 5452 and len(data.x_test) == 500 and len(data.class_names) == 6
