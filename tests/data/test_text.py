"""Tokenizer, sequences, and the two text steps inside scikit-learn."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import _safe_indexing

import limitformer as lf
from limitformer.data import Embedder, Sequences, Tokenizer, Vectors, Vocabulary

VECTORS = Vectors(("good", "bad", "film", "."), np.diag([1, 2, 3, 4]).astype(np.float32))
TEXTS = np.array(["Good film.", "bad, bad film", "", "unseen", "good " * 5], object)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don’t can't isn't", ["do", "n't", "ca", "n't", "is", "n't"]),
        ("it's we'll 'quoted'", ["it", "'s", "we", "'ll", "'", "quoted", "'"]),
        ("1,000.5 in 1999.", ["1,000.5", "in", "1999", "."]),
        ("a<br /><br/>b < c", ["a", "b", "<", "c"]),
        ("naïve Ünïcode_x", ["naïve", "ünïcode_x"]),
        (" \n", []),
    ],
)
def test_tokenizer(text, tokens):
    assert Tokenizer()(text) == tokens


def test_tokenizer_options():
    assert Tokenizer(lower=False, markup="")("A<b>") == ["A", "<", "b", ">"]
    with pytest.raises(ValueError, match="pattern='\\(' is not a regular expression"):
        Tokenizer(pattern="(")
    with pytest.raises(ValueError, match=r"has groups; write \(\?:\.\.\.\)"):
        Tokenizer(pattern="(a)b")


def test_embedder():
    x = Embedder(VECTORS).fit_transform(TEXTS)
    assert x.shape == (5, 5, 4) and x.lengths.tolist() == [3, 4, 1, 1, 5]
    assert x[0].tolist() == VECTORS.vectors[[0, 2, 3]].tolist()
    assert not x.values[1, 1].any() and x.mask[1, 1]  # the comma: unknown, and still a token
    assert not x.values[2].any() and not x.values[~x.mask].any()
    report = x.report
    assert (report.tokens, report.known, report.unknown) == (13, 11, 2)
    assert (report.empty, report.blank, report.truncated) == (1, 2, 0)
    assert report == Embedder(VECTORS).report(TEXTS)


def test_truncation_is_said():
    x = Embedder(VECTORS, max_tokens=2).fit_transform(TEXTS)
    assert x.shape == (5, 2, 4)
    assert (x.report.truncated, x.report.dropped, x.report.longest) == (3, 6, 5)
    assert "3 texts truncated by 6 tokens in all" in str(x.report)
    with pytest.raises(ValueError, match="max_tokens=0 keeps nothing"):
        Embedder(VECTORS, max_tokens=0).transform(TEXTS)


def test_embedder_refuses():
    with pytest.raises(ValueError, match="95 % of them have at most 4 tokens: pass max_tokens=4"):
        Embedder(VECTORS, memory=100).transform(TEXTS)
    with pytest.raises(ValueError, match="no texts to embed"):
        Embedder(VECTORS).transform([])
    with pytest.raises(TypeError, match="the single text 'good'"):
        Embedder(VECTORS).transform("good")


def test_vocabulary():
    ids = Vocabulary(size=3).fit(["b b b a a c d", "c"])
    assert ids.words_ == ("b", "a", "c") and ids.size_ == 4
    x = ids.transform(["a d", "", "c b a"])
    assert x.values.tolist() == [[2, 0, 0], [0, 0, 0], [3, 1, 2]]
    assert x.lengths.tolist() == [2, 1, 3] and x.report.unknown == 1 and x.report.empty == 1
    assert Vocabulary(min_count=2).fit(["a a b"]).words_ == ("a",)
    with pytest.raises(ValueError, match="no word of the 1 texts occurs min_count=2 times"):
        Vocabulary(min_count=2).fit(["a"])
    with pytest.raises(ValueError, match="size=0 keeps nothing"):
        Vocabulary(size=0).fit(["a"])
    with pytest.raises(NotFittedError):
        Vocabulary().transform(["a"])


def test_kernels_of_texts():
    x = Embedder(VECTORS).fit_transform(TEXTS)
    net = lf.Serial(lf.Dense(), lf.Relu(), lf.MeanPool(), lf.Dense())
    K = np.asarray(net.kernel(x.values, x_mask=x.mask).nngp)
    alone = net.kernel(x[0][None]).nngp
    assert np.isclose(K[0, 0], np.asarray(alone)[0, 0], rtol=1e-5) and np.isfinite(K).all()
    ids = Vocabulary().fit_transform(TEXTS)
    K = lf.Serial(lf.Embed(), lf.MeanPool()).kernel(ids.values, x_mask=ids.mask).nngp
    assert np.isclose(np.asarray(K)[0, 4], 1 / 3)  # one of three tokens is "good"


def test_sequences():
    x = Sequences.pad([np.ones((2, 3)), np.zeros((4, 3)), np.ones((1, 3))])
    assert len(x) == 3 and x.ndim == 3 and x.dtype == float and x.lengths.tolist() == [2, 4, 1]
    assert [len(row) for row in x] == [2, 4, 1]
    for rows in ([2, 0], np.array([2, 0]), np.array([True, False, True]), slice(None, None, 2)):
        assert sorted(x[rows].lengths) == [1, 2]
        assert sorted(_safe_indexing(x, rows).lengths) == [1, 2]
    assert x[[2, 0]].trimmed().shape == (2, 2, 3)
    assert len(x[[]]) == 0
    assert Sequences.of_lengths(np.ones((2, 3)), [1, 3]).lengths.tolist() == [1, 3]
    assert repr(x) == "Sequences(shape=(3, 4, 3), float64, 1 to 4 valid tokens)"


def test_sequences_refuse():
    values, mask = np.ones((2, 3, 1)), np.ones((2, 3), bool)
    with pytest.raises(TypeError, match=r"dtype int64, expected bool.*of_lengths"):
        Sequences(values, mask.astype(np.int64))
    with pytest.raises(ValueError, match=r"shape \(2, 3, 1\) and a mask of shape \(1, 3\) do not"):
        Sequences(values, mask[:1])
    with pytest.raises(ValueError, match=r"1 rows have no valid token \(1\)"):
        Sequences(values, mask & np.array([[True], [False]]))
    with pytest.raises(ValueError, match=r"2 integers from 1 to 3;.*from 0 to 3"):
        Sequences.of_lengths(values, [0, 3])
    with pytest.raises(ValueError, match="no rows to pad"):
        Sequences.pad([])
    with pytest.raises(ValueError, match="with the same features"):
        Sequences.pad([np.ones((2, 3)), np.ones((2, 4))])
    x = Sequences(values, mask)
    with pytest.raises(TypeError, match=r"pass x.values, and x.mask as x_mask"):
        np.asarray(x)
    with pytest.raises(IndexError, match="indexed by rows"):
        x[:, 0]
    with pytest.raises(IndexError):
        x[7]


class LongestWins(ClassifierMixin, BaseEstimator):
    """Takes sequences as the estimators do: label 1 if there are more than `limit` tokens."""

    def __init__(self, limit=1):
        self.limit = limit

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return (X.mask.sum(axis=1) > self.limit).astype(int)


@pytest.mark.parametrize("step", [Embedder(VECTORS), Vocabulary()])
def test_in_scikit_learn(step):
    texts = np.array(["good", "good film", "bad bad bad", "a b c d"] * 5, object)
    y = np.array([0, 0, 1, 1] * 5)
    assert clone(step).get_params() == step.get_params()
    pipe = make_pipeline(step, LongestWins())
    search = GridSearchCV(pipe, {"longestwins__limit": [1, 2]}, cv=KFold(5)).fit(texts, y)
    assert search.best_params_ == {"longestwins__limit": 2} and search.best_score_ == 1
    x = clone(step).fit_transform(texts)
    assert cross_val_score(LongestWins(2), x, y, cv=KFold(5)).min() == 1
    both = {type(step).__name__.lower() + "__max_tokens": [None, 2]}
    search = GridSearchCV(make_pipeline(step, LongestWins(2)), both, cv=KFold(5)).fit(texts, y)
    assert list(search.best_params_.values()) == [None]
