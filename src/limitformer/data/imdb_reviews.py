"""IMDb: movie reviews in their published layout."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .dataset import Dataset, texts
from .files import PathLike, Source, local
from .sentence_files import sentences

SOURCE = Source(
    "IMDb (Large Movie Review Dataset)",
    "https://ai.stanford.edu/~amaas/data/sentiment/",
    {"aclImdb_v1.tar.gz": "md5:7c2ac02c03563afcf9b574c7e56c153a"},
    ("the folder aclImdb that it unpacks to", "a parquet or CSV file with text, label, split"),
)
CLASS_NAMES = ("neg", "pos")

_MEMBER = re.compile(r"(?:^|/)(train|test)/(neg|pos)/([^/]*)$")
_NAME = re.compile(r"(\d+)_(\d+)\.txt$")

_Review = tuple[str, str, int, int, str]  # part, class, id, rating, text


def imdb(path: PathLike, *, verify: bool = True) -> Dataset:
    """IMDb: 25,000 training and 25,000 test reviews, positive or negative.

    The archive is read without unpacking it to disk. Reviews come in the order of their class
    (negative first) and id; the unlabelled ones (`train/unsup`) are not read.

    Args:
        path: `aclImdb_v1.tar.gz`, the folder `aclImdb` that it unpacks to, a folder that has one
            of these in it, or a parquet or CSV file for `lf.data.sentences`.
        verify: compare an archive with its published md5.

    Returns:
        Texts as an object array of `str`, labels 0 = negative and 1 = positive; `train_extra` and
        `test_extra` have `id` and `rating` (1 to 10).

    Raises:
        FileNotFoundError: nothing there; the message says where to get it.
        ValueError: not the published file, or a damaged one.

    Example:
        >>> imdb("/not/here")
        Traceback (most recent call last):
        FileNotFoundError: IMDb (Large Movie Review Dataset) was looked for at ...

    Reference:
        Maas et al. (2011), Learning word vectors for sentiment analysis.
    """
    where = local(path)
    if where.is_file():
        if where.suffix in (".parquet", ".csv"):
            return sentences(where, name="IMDb", class_names=CLASS_NAMES)
        if verify:
            SOURCE.verify(where)
        reviews = list(_from_tar(where))
    else:
        folders = [f for f in (where, where / "aclImdb") if (f / "train" / "pos").is_dir()]
        archives = [where / name for name in SOURCE.files if (where / name).is_file()]
        if not folders and archives:
            return imdb(archives[0], verify=verify)
        if not folders:
            why = "there is no train/pos in it" if where.is_dir() else "there is nothing there"
            SOURCE.missing(where, "lf.data.imdb", why)
        reviews = list(_from_folder(folders[0]))
    return _dataset(reviews, where)


def _from_folder(folder: Path) -> Iterator[_Review]:
    for part in ("train", "test"):
        for label in CLASS_NAMES:
            for file in (folder / part / label).glob("*.txt"):
                if not file.name.startswith("."):
                    yield _review(part, label, file.name, file.read_bytes(), folder)


def _from_tar(path: Path) -> Iterator[_Review]:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                found = _MEMBER.search(member.name)
                hidden = found is None or found[3].startswith(".") or not found[3].endswith(".txt")
                if hidden or not member.isfile():
                    continue
                content = archive.extractfile(member).read()
                yield _review(found[1], found[2], found[3], content, path)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is not a whole tar archive ({error}). Get it again from {SOURCE.page}"
        ) from None


def _review(part: str, label: str, file: str, content: bytes, where: Path) -> _Review:
    name = _NAME.match(file)
    if name is None:
        raise ValueError(
            f"{part}/{label}/{file} in {where} is not named id_rating.txt (such as 127_9.txt), as "
            "the reviews of aclImdb are"
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{part}/{label}/{file} in {where} is not UTF-8: {error}") from None
    return part, label, int(name[1]), int(name[2]), text


def _dataset(reviews: list[_Review], where: Path) -> Dataset:
    arrays = {}
    for part in ("train", "test"):
        rows = sorted(review[1:] for review in reviews if review[0] == part)
        if len({label for label, *_ in rows}) < 2:
            raise ValueError(
                f"{where} has no {part}/neg or no {part}/pos reviews; get it again from "
                f"{SOURCE.page}"
            )
        labels = np.array([CLASS_NAMES.index(label) for label, *_ in rows])
        extra = {"id": np.array([i for _, i, _, _ in rows])}
        extra["rating"] = np.array([rating for _, _, rating, _ in rows])
        arrays[part] = (texts(row[-1] for row in rows), labels, extra)
    (x, y, extra), (x_test, y_test, test_extra) = arrays["train"], arrays["test"]
    return Dataset(
        "IMDb", x, y, x_test, y_test, CLASS_NAMES, train_extra=extra, test_extra=test_extra
    )
