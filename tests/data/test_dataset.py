"""Drawing rows: balanced, nested, disjoint, and the errors."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limitformer.data import Dataset
from limitformer.data.dataset import texts


def rows(n=60, classes=3, n_test=0):
    x = np.arange(n + n_test, dtype=float)[:, None]
    y = np.arange(n + n_test) % classes
    extra = np.arange(n + n_test)
    return Dataset(
        "rows",
        x[:n],
        y[:n],
        x[n:],
        y[n:],
        tuple("abc"[:classes]),
        train_extra={"index": extra[:n]},
        test_extra={"index": extra[n:]},
    )


@given(n_train=st.integers(0, 30), n_test=st.integers(0, 20), published=st.booleans())
def test_take_is_balanced_and_disjoint(n_train, n_test, published):
    small = rows(n_test=30 if published else 0).take(n_train, n_test, key=3)
    assert len(small.x_train) == n_train and len(small.x_test) == n_test
    for y in (small.y_train, small.y_test):
        counts = np.bincount(y, minlength=3)
        assert counts.max() - counts.min() <= 1
    taken = np.concatenate([small.x_train, small.x_test])[:, 0]
    assert len(set(taken)) == n_train + n_test
    assert np.array_equal(small.train_extra["index"], small.x_train[:, 0])
    assert np.array_equal(small.test_extra["index"], small.x_test[:, 0])
    assert np.array_equal(small.y_train, small.x_train[:, 0] % 3)
    if published:
        assert np.all(small.x_test >= 60)


@pytest.mark.parametrize("n_test", [0, 30])
@pytest.mark.parametrize("balanced", [True, False])
def test_training_sets_are_nested(n_test, balanced):
    data = rows(n_test=n_test)
    small = data.take(11, 7, key=1, balanced=balanced)
    large = data.take(29, 7, key=1, balanced=balanced)
    assert np.array_equal(large.x_train[:11], small.x_train)
    assert np.array_equal(large.x_test, small.x_test)


def test_take_follows_the_key(key):
    data = rows()
    one = data.take(20, key=key).x_train
    assert np.array_equal(one, data.take(20, key=key).x_train)
    assert np.array_equal(one, data.take(20, key=jax.random.key_data(key)).x_train)
    assert not np.array_equal(one, data.take(20, key=jax.random.fold_in(key, 1)).x_train)
    with pytest.raises(TypeError, match="a JAX key or an integer seed, not float"):
        data.take(20, key=0.5)
    with pytest.raises(ValueError, match="key=-1 is negative"):
        data.take(20, key=-1)


def test_take_refuses():
    data = rows(n=6)
    with pytest.raises(ValueError, match="rows has 6 training rows, 7 were asked for"):
        data.take(7, key=0)
    with pytest.raises(ValueError, match=r"rows has 2 training \(beside 4 test\) rows, 3 were"):
        data.take(3, 4, key=0)
    with pytest.raises(ValueError, match="must not be negative"):
        data.take(-1, key=0)
    few = Dataset.of_rows("few", np.eye(5), np.array([0, 0, 0, 0, 1]), class_names=("a", "b"))
    with pytest.raises(ValueError, match=r"1 training rows of class 'b'.*balanced=False"):
        few.take(4, key=0)
    assert len(few.take(3, key=0).y_train) == 3  # two and one
    assert len(few.take(5, key=0, balanced=False).y_train) == 5
    real = Dataset.of_rows("real", np.eye(5), np.arange(5.0))
    with pytest.raises(ValueError, match="no classes to balance"):
        real.take(2, key=0, balanced=True)
    assert real.take(2, 2, key=0).y_test.shape == (2,)


def test_dataset_refuses():
    with pytest.raises(ValueError, match="bad: the numbers of rows differ: x_train has 3, y_train"):
        Dataset.of_rows("bad", np.eye(3), np.zeros(2))
    with pytest.raises(ValueError, match=r"y_train has to hold integers from 0 to 0.*from 0 to 1"):
        Dataset.of_rows("bad", np.eye(2), np.array([0, 1]), class_names=("a",))


def test_texts():
    assert texts(["a", "bb"]).dtype == object
    assert texts([]).shape == (0,)
    with pytest.raises(TypeError, match=r"not the single text 'abc'; put it in \[\]"):
        texts("abc")
    with pytest.raises(TypeError, match="text 1 is None, a NoneType; expected a str"):
        texts(["a", None])
