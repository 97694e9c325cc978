"""CIFAR-10 from its published archives."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .batch_reader import read_batch
from .dataset import Dataset
from .files import PathLike, Source, local
from .npz_file import npz

CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

SOURCE = Source(
    "CIFAR-10",
    "https://www.cs.toronto.edu/~kriz/cifar.html",
    {
        "cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-python.tar.gz": "md5:c58f30108f718f92721af3b95e74349a",
    },
    (
        "the folders that they unpack to (cifar-10-batches-bin, cifar-10-batches-py)",
        "an npz with x_train, y_train, x_test and y_test",
    ),
)

_BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
_FOLDERS = {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}
_PIXELS = 32 * 32 * 3
_ROWS = 10_000

_Read = Callable[[str], bytes]


def cifar10(path: PathLike, *, verify: bool = True) -> Dataset:
    """CIFAR-10: 50,000 training and 10,000 test images of 32 x 32 pixels, ten classes.

    The archives are read without unpacking them to disk. The Python archive holds pickles; they
    are decoded by a reader that executes nothing.

    Args:
        path: `cifar-10-binary.tar.gz`, `cifar-10-python.tar.gz`, the folder that either unpacks
            to, a folder that has one of these in it, or an npz with `x_train`, `y_train`,
            `x_test`, `y_test`.
        verify: compare an archive with its published md5, and expect 10,000 images in each batch.

    Returns:
        A dataset of images `(n, 32, 32, 3)` uint8 and labels `(n,)`.

    Raises:
        FileNotFoundError: nothing there; the message says where to get it.
        ValueError: not the published file, or a damaged one.

    Example:
        >>> cifar10("/not/here")
        Traceback (most recent call last):
        FileNotFoundError: CIFAR-10 was looked for at ...

    Reference:
        Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    where = local(path)
    if where.suffix == ".npz" and where.is_file():
        return npz(where, name="CIFAR-10", class_names=CLASS_NAMES)
    found = _find(where)
    if found is None:
        why = "none of its files are there" if where.is_dir() else "there is nothing there"
        SOURCE.missing(where, "lf.data.cifar10", why)
    if found.is_dir():
        kind = "binary" if (found / "data_batch_1.bin").exists() else "python"
        return _dataset(kind, lambda name: _from_folder(found, name), found, verify)
    if verify:
        SOURCE.verify(found)
    files = _unpacked(found)
    kind = "binary" if "data_batch_1.bin" in files else "python"
    return _dataset(kind, lambda name: _from_archive(files, found, name), found, verify)


def _find(path: Path) -> Path | None:
    """The archive itself, or the folder of batches, at or in a path."""
    if path.is_file():
        return path
    for folder in (path, *(path / name for name in _FOLDERS.values())):
        if any((folder / f"data_batch_1{end}").is_file() for end in (".bin", "")):
            return folder
    return next((path / name for name in SOURCE.files if (path / name).is_file()), None)


def _from_folder(folder: Path, name: str) -> bytes:
    file = folder / name
    if not file.is_file():
        SOURCE.missing(folder, "lf.data.cifar10", f"{name} is not there")
    return file.read_bytes()


def _unpacked(path: Path) -> dict[str, bytes]:
    """The batches of an archive, in one pass: going back in a tar.gz means starting again."""
    wanted = {name + end for name in (*_BATCHES, "test_batch") for end in ("", ".bin")}
    files = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.split("/")[-1]
                if name in wanted and member.isfile():
                    files[name] = archive.extractfile(member).read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is not a whole tar archive ({error}). Get it again from {SOURCE.page}"
        ) from None
    return files


def _from_archive(files: dict[str, bytes], path: Path, name: str) -> bytes:
    if name not in files:
        raise ValueError(
            f"{path} has no {name} in it, so it is neither {' nor '.join(SOURCE.files)}; get one "
            f"of them from {SOURCE.page}"
        )
    return files[name]


def _dataset(kind: str, read: _Read, path: Path, verify: bool) -> Dataset:
    batch = _binary if kind == "binary" else _python
    parts = [batch(read, name, path, verify) for name in _BATCHES]
    x_test, y_test = batch(read, "test_batch", path, verify)
    x_train = np.concatenate([x for x, _ in parts])
    y_train = np.concatenate([y for _, y in parts])
    return Dataset("CIFAR-10", x_train, y_train, x_test, y_test, CLASS_NAMES)


def _binary(read: _Read, name: str, path: Path, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    """Records of one label byte and 3072 pixel bytes."""
    raw = np.frombuffer(read(f"{name}.bin"), np.uint8)
    if raw.size == 0 or raw.size % (1 + _PIXELS):
        raise ValueError(
            f"{name}.bin in {path} has {raw.size} bytes, not a multiple of {1 + _PIXELS} (a label "
            f"and 32 x 32 x 3 pixels): it is damaged. Get it again from {SOURCE.page}"
        )
    records = raw.reshape(-1, 1 + _PIXELS)
    return _checked(records[:, 1:], records[:, 0], name, path, verify)


def _python(read: _Read, name: str, path: Path, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    content = read_batch(read(name), f"{name} in {path}")
    pixels, labels = content.get("data"), content.get("labels")
    if (
        not isinstance(pixels, np.ndarray)
        or not isinstance(labels, list)
        or pixels.shape != (len(labels), _PIXELS)
        or not all(type(label) is int for label in labels)
    ):
        raise ValueError(
            f"{name} in {path} has no data of shape (n, {_PIXELS}) with n labels: it is damaged. "
            f"Get it again from {SOURCE.page}"
        )
    return _checked(pixels, np.array(labels), name, path, verify)


def _checked(
    pixels: np.ndarray, labels: np.ndarray, name: str, path: Path, verify: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Images with their channels last, as everywhere here; the files have them first."""
    if verify and len(labels) != _ROWS:
        raise ValueError(
            f"{name} in {path} has {len(labels)} images, the published one {_ROWS}. Get it again "
            f"from {SOURCE.page}, or pass verify=False to read it as it is"
        )
    if labels.min() < 0 or labels.max() > 9:
        raise ValueError(
            f"{name} in {path} has labels from {labels.min()} to {labels.max()}, expected 0 to 9: "
            "it is not CIFAR-10 (CIFAR-100 has two labels per image)"
        )
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels.astype(np.int64)
