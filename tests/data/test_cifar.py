"""CIFAR-10 from all of its forms gives the same images."""

from pathlib import Path

import numpy as np
import pytest
from tests.data import batches

from limitformer.data import cifar10, standardise
from limitformer.data.cifar import SOURCE
from limitformer.data.files import Source, checksum

SHARED = Path("/work/shared/data/cifar10_10k_2k.npz")
PARTS = [batches.images(3, seed) for seed in range(6)]
WRITERS = {
    "cifar-10-batches-bin": (batches.binary, ".bin"),
    "cifar-10-batches-py": (batches.python2, ""),
    "py3": (batches.python3, ""),
}


def members(kind):
    write, end = WRITERS[kind]
    names = batches.NAMES
    return {name + end: write(x, y) for name, (x, y) in zip(names, PARTS, strict=True)}


def same(data):
    assert np.array_equal(data.x_train, np.concatenate([x for x, _ in PARTS[:5]]))
    assert np.array_equal(data.y_train, np.concatenate([y for _, y in PARTS[:5]]))
    assert np.array_equal(data.x_test, PARTS[5][0]) and np.array_equal(data.y_test, PARTS[5][1])
    assert data.class_names[3] == "cat" and data.x_train.dtype == np.uint8


@pytest.mark.parametrize("kind", WRITERS)
def test_folder(tmp_path, kind):
    folder = tmp_path / kind.replace("py3", "cifar-10-batches-py")
    folder.mkdir()
    for name, content in members(kind).items():
        (folder / name).write_bytes(content)
    same(cifar10(folder, verify=False))
    same(cifar10(str(tmp_path), verify=False))
    with pytest.raises(
        ValueError, match=r"data_batch_1 in .* has 3 images, the published one 10000"
    ):
        cifar10(folder)
    next(folder.glob("data_batch_4*")).unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_4(.bin)? is not there.*md5:c32a1d4a"):
        cifar10(folder, verify=False)


@pytest.mark.parametrize("kind", WRITERS)
def test_archive(tmp_path, kind):
    folder = kind.replace("py3", "cifar-10-batches-py")
    name = "cifar-10-binary.tar.gz" if folder.endswith("bin") else "cifar-10-python.tar.gz"
    content = {f"{folder}/{name}": data for name, data in members(kind).items()}
    path = batches.tar(tmp_path / name, dict(reversed(content.items())))
    same(cifar10(path, verify=False))
    same(cifar10(tmp_path, verify=False))
    expected = SOURCE.files[name]
    with pytest.raises(ValueError, match=f"not a published file.*expected {expected}.*verify=Fal"):
        cifar10(path)
    assert list(tmp_path.iterdir()) == [path]  # nothing was unpacked


def test_npz(tmp_path):
    x, y = batches.images(4)
    np.savez(tmp_path / "small.npz", x_train=x, y_train=y.astype(np.uint8), x_test=x, y_test=y)
    data = cifar10(tmp_path / "small.npz")
    assert data.class_names[0] == "airplane" and data.y_train.dtype == np.int64


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        cifar10(tmp_path / "cifar-10-binary.tar.gz")
    for part in (
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "cifar-10-binary.tar.gz (md5:c32a1d4ab5d03f1284b67883e8d87530)",
        "cifar-10-python.tar.gz (md5:c58f30108f718f92721af3b95e74349a)",
        f"put it into {tmp_path}",
        "call lf.data.cifar10",
        "limitformer downloads nothing",
    ):
        assert part in str(error.value)
    with pytest.raises(FileNotFoundError, match="none of its files are there"):
        cifar10(tmp_path)


def test_damaged(tmp_path):
    content = members("cifar-10-batches-bin")
    path = tmp_path / "a.tar.gz"
    batches.tar(path, {**content, "data_batch_2.bin": b"12"})
    with pytest.raises(
        ValueError, match=r"data_batch_2.bin in .* has 2 bytes, not a multiple of 3"
    ):
        cifar10(path, verify=False)
    batches.tar(path, {**content, "test_batch.bin": bytes([11]) + bytes(3072)})
    with pytest.raises(ValueError, match="labels from 11 to 11, expected 0 to 9"):
        cifar10(path, verify=False)
    batches.tar(path, {"readme.html": b"?"})
    with pytest.raises(ValueError, match=r"has no data_batch_1 in it, so it is neither"):
        cifar10(path, verify=False)
    path.write_bytes(b"not a tar")
    with pytest.raises(ValueError, match="is not a whole tar archive"):
        cifar10(path, verify=False)
    whole = batches.tar(path, content).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a whole tar archive"):
        cifar10(path, verify=False)


def test_verify_by_content(tmp_path):
    path = tmp_path / "renamed (1).bin"
    path.write_bytes(b"published")
    source = Source("it", "https://example.org", {"it.bin": f"md5:{checksum(path)}"})
    source.verify(path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a published file of it: it has md5:"):
        source.verify(path)


@pytest.mark.skipif(not SHARED.exists(), reason="the copy of CIFAR-10 is not on this machine")
def test_shared_copy():
    data = cifar10(SHARED)
    assert data.x_train.shape == (10000, 32, 32, 3) and data.x_test.shape == (2000, 32, 32, 3)
    small = data.take(200, 100, key=0)
    assert np.all(np.bincount(small.y_train) == 20)
    assert np.allclose(standardise(small.x_train).mean((1, 2, 3)), 0, atol=1e-6)
    assert data.train_extra["index"].shape == (10000,)
