"""The reader of CIFAR-10's pickles agrees with pickle on the real thing, and runs nothing."""

import contextlib
import os
import pickle
import pickletools

import numpy as np
import pytest
from tests.data import batches

from limitformer.data.batch_reader import UnsafeBatch, read_batch


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pickle looks for NumPy 1's old names
@pytest.mark.parametrize("write", [batches.python2, batches.python3])
def test_agrees_with_pickle(write):
    data = write(*batches.images(5))
    expected = pickle.loads(data, encoding="bytes")
    found = read_batch(data)
    assert list(found) == [key.decode() for key in expected]
    assert np.array_equal(found.pop("data"), expected.pop(b"data"))
    assert found == {key.decode(): value for key, value in expected.items()}


def test_column_order():
    x = np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert np.array_equal(read_batch(pickle.dumps({"data": x}, protocol=2))["data"], x)


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_executed(tmp_path, protocol):
    target = str(tmp_path / "made")
    data = pickle.dumps({"data": Attack(target), "labels": [1]}, protocol=protocol)
    with pytest.raises(UnsafeBatch, match=r"nothing was executed.*cifar-10-binary.tar.gz"):
        read_batch(data, "evil")
    assert not os.path.exists(target)
    if protocol == 2:
        pickle.loads(data)
        assert os.path.exists(target)  # so the attack was one


def test_unknown_instruction_and_name():
    with pytest.raises(UnsafeBatch, match="evil uses the pickle instruction BINFLOAT at byte"):
        read_batch(pickle.dumps({"a": 1.5}, protocol=2), "evil")
    with pytest.raises(UnsafeBatch, match="evil names builtins eval"):
        read_batch(b"\x80\x02cbuiltins\neval\nU\x011\x85R.", "evil")
    with pytest.raises(UnsafeBatch, match="evil holds a list, and a CIFAR-10 batch is a dict"):
        read_batch(pickle.dumps([1], protocol=2), "evil")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "pickle exhausted"),
        (b"\x80\x02}U\x06lab", "expected 6 bytes"),
        (b"\x80\x02.", "pop from empty list"),
        (b"\x80\x02}(K\x01u.", "zip"),
        (b"\x80\x02K\x01K\x02a.", "a int where a list belongs"),
        (b"\x80\x02}h\x05.", "5"),
        (b"\x80\x02}K\x01.", "values left over"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "a call of numpy ndarray with other arguments"),
    ],
)
def test_damaged(data, why):
    with pytest.raises(UnsafeBatch, match=f"it is damaged .*{why}"):
        read_batch(data, "it")


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros(3, "u2")])
def test_other_dtypes(array):
    with pytest.raises(UnsafeBatch, match="expected uint8"):
        read_batch(pickle.dumps({"data": array}, protocol=2))


def test_array_of_another_size():
    data = batches.python2(*batches.images(1)).replace(b"K\x01M\x00\x0c\x86", b"K\x02M\x00\x0c\x86")
    with pytest.raises(UnsafeBatch, match=r"shape \(2, 3072\) with 3072 bytes"):
        read_batch(data)


def test_any_prefix_or_flipped_byte_is_a_value_or_an_error():
    data = batches.python2(*batches.images(1))
    data = data.replace(data[-3072 - 40 : -40], b"")  # leave out pixels: the rest is the program
    rng = np.random.default_rng(0)
    for _ in range(500):
        broken = bytearray(data[: rng.integers(1, len(data) + 1)])
        broken[rng.integers(len(broken))] = rng.integers(256)
        with contextlib.suppress(UnsafeBatch):
            read_batch(bytes(broken))


def test_the_published_instructions_are_covered():
    """The hand-written batch uses the instructions of the published ones."""
    used = {op.name for op, _, _ in pickletools.genops(batches.python2(*batches.images(2)))}
    assert {"SHORT_BINSTRING", "BINSTRING", "GLOBAL", "REDUCE", "BUILD", "TUPLE3"} <= used
