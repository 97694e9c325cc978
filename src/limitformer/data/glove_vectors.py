"""Word vectors from GloVe's text files."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from array import array
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import numpy as np

from .files import PathLike, Source, local
from .text_report import TextReport, tokenised
from .tokenizer import Tokenizer

SOURCE = Source(
    "GloVe",
    "https://nlp.stanford.edu/projects/glove/",
    {
        "glove.6B.zip": "md5:056ea991adb4740ac6bf1b6d9b50408b",
        "glove.840B.300d.zip": (
            "sha256:c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f"
        ),
    },
    ("the text files in them (glove.6B.50d.txt)", "an npz with vectors and words_utf8"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Vectors:
    """Words and their vectors.

    Args:
        words: the words, without repeats, the most frequent first as in GloVe's files.
        vectors: `(words, features)`, one row per word.
        notes: what was left out or changed.

    Raises:
        ValueError: not one finite row per word, or repeated words.

    Example:
        >>> two = Vectors(("cat", "dog"), np.eye(2, dtype=np.float32))
        >>> two["dog"]
        array([0., 1.], dtype=float32)
        >>> two.coverage(["A cat!"]).coverage
        0.3333333333333333
    """

    words: tuple[str, ...]
    vectors: np.ndarray
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.words):
            raise ValueError(
                f"{len(self.words)} words and vectors of shape {self.vectors.shape}; expected "
                f"({len(self.words)}, features)"
            )
        if not np.isfinite(self.vectors).all():
            row = int(np.flatnonzero(~np.isfinite(self.vectors).all(axis=1))[0])
            raise ValueError(f"the vector of {self.words[row]!r} is not finite")
        if len(self.index) != len(self.words):
            raise ValueError(f"{len(self.words) - len(self.index)} words are there twice")
        frozen = self.vectors.view()
        frozen.flags.writeable = False
        object.__setattr__(self, "vectors", frozen)

    @cached_property
    def index(self) -> dict[str, int]:
        """Word -> its row."""
        return {word: i for i, word in enumerate(self.words)}

    @property
    def features(self) -> int:
        """The length of a vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> np.ndarray:
        return self.vectors[self.index[word]]

    def __deepcopy__(self, memo: object) -> Vectors:
        return self  # it cannot change, and scikit-learn's clone copies parameters

    def __repr__(self) -> str:
        return f"Vectors({len(self)} words, {self.features} features, {self.vectors.dtype})"

    def coverage(
        self, texts: Iterable[str], tokenizer: Callable[[str], list[str]] | None = None
    ) -> TextReport:
        """How many of the texts' tokens have a vector.

        Args:
            texts: the texts.
            tokenizer: one text -> its tokens; `Tokenizer()` if None.

        Returns:
            The report; `.coverage` is the fraction, `.missing` the commonest words without one.
        """
        return tokenised(texts, Tokenizer() if tokenizer is None else tokenizer, self.index)[1]


def glove(
    path: PathLike,
    *,
    features: int | None = None,
    top: int | None = None,
    words: Iterable[str] | None = None,
    verify: bool = True,
) -> Vectors:
    """GloVe vectors from their text file, also inside its zip.

    A line is a word and its numbers, separated by spaces. Words of GloVe 840B may have spaces in
    them: the last `features` fields are the vector, what is before them is the word.

    Args:
        path: `glove.6B.50d.txt`, `glove.6B.zip`, a folder with them, or an npz with `vectors`
            `(words, features)` and either `words` or `words_utf8` (bytes, one word per line).
        features: the length of the vectors, which picks one of several files; by default from
            the file's name (`50d`), or its first line.
        top: read the first `top` lines only, the most frequent words.
        words: keep these words only, which saves most of the time and memory.
        verify: compare `glove.6B.zip` and `glove.840B.300d.zip` with their checksums.

    Returns:
        The vectors as float32.

    Raises:
        FileNotFoundError: nothing there; the message says where to get it.
        ValueError: several files fit, or a line is damaged.

    Example:
        >>> glove("/not/here.txt")
        Traceback (most recent call last):
        FileNotFoundError: GloVe was looked for at ...

    Reference:
        Pennington, Socher and Manning (2014), GloVe: global vectors for word representation.
    """
    if features is not None and features < 1:
        raise ValueError(f"features={features} is not the length of a vector")
    if top is not None and top < 1:
        raise ValueError(f"top={top} reads nothing; take at least 1, or None for all")
    if isinstance(words, str):
        raise TypeError(f"words={words!r} is one word; pass a list of words")
    wanted = None if words is None else frozenset(words)
    where = _file(local(path), features)
    if where.suffix == ".npz":
        return _from_npz(where, top, wanted)
    if where.suffix != ".zip":
        with open(where, "rb") as file:
            return _read(file, str(where), features, top, wanted)
    if verify and where.name in SOURCE.files:
        SOURCE.verify(where)
    with zipfile.ZipFile(where) as archive:
        names = [name for name in archive.namelist() if name.endswith(".txt")]
        member = _one(names, features, where)
        with archive.open(member) as file:
            return _read(file, f"{member} in {where}", features, top, wanted)


def _file(path: Path, features: int | None) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        SOURCE.missing(path, "lf.data.glove")
    names = sorted(file.name for file in path.glob("glove*.txt"))
    if features is not None:
        names = [name for name in names if f".{features}d." in name]
    names = names or sorted(file.name for file in path.glob("glove*.zip"))
    if not names:
        SOURCE.missing(path, "lf.data.glove", "none of its files are there")
    return path / _one(names, None if names[0].endswith(".zip") else features, path)


def _one(names: list[str], features: int | None, where: Path) -> str:
    fit = [name for name in names if features is None or f".{features}d." in name]
    if len(fit) == 1:
        return fit[0]
    if len(names) == 1:
        return names[0]
    raise ValueError(
        f"{where} has {', '.join(names) or 'no .txt'}; pick one with features=, such as "
        f"features=50 for the file named ...50d.txt (features={features} was given)"
    )


def _read(
    file: Iterable[bytes],
    name: str,
    features: int | None,
    top: int | None,
    wanted: frozenset | None,
) -> Vectors:
    # A wanted word begins with its first piece, which is cheap to look at.
    heads = None if wanted is None else {word.split(" ")[0].encode() for word in wanted}
    named = re.search(r"\.(\d+)d\.txt", name)
    d = features or (int(named[1]) if named else 0)  # 0: the first line will tell
    rows: dict[str, None] = {}
    buffer = array("f")
    repeated = 0
    read = 0
    for number, raw in enumerate(file, 1):
        line = raw.rstrip(b" \r\n")
        if number == 1:
            fields = line.split(b" ")
            if len(fields) == 2 and all(field.isdigit() for field in fields):
                d = d or int(fields[1])  # the header of word2vec's format
                continue
            d = d or len(fields) - 1
            if len(fields) > d + 1 and _is_number(fields[-d - 1]):
                raise ValueError(
                    f"the first line of {name} has {len(fields) - 1} fields after its word, not "
                    f"{d} numbers; pass features={len(fields) - 1}"
                )
        if top is not None and read == top:
            break
        read += 1
        if heads is not None and line.split(b" ", 1)[0] not in heads:
            continue
        fields = line.rsplit(b" ", d)
        try:
            if len(fields) != d + 1:
                raise ValueError(f"{len(fields) - 1} numbers")
            vector = array("f", map(float, fields[1:]))
        except ValueError as error:
            raise ValueError(
                f"line {number} of {name} is not a word and {d} numbers ({error}); if vectors have "
                "another length pass features=, otherwise the file is damaged: get it again from "
                f"{SOURCE.page}"
            ) from None
        word = fields[0].decode("utf-8", "backslashreplace")
        if wanted is not None and word not in wanted:
            continue
        if word in rows:
            repeated += 1
            continue
        rows[word] = None
        buffer += vector
    if not rows:
        raise ValueError(f"{name} has none of the words" if read else f"{name} has no lines")
    notes = [f"{repeated} repeated words: the first is kept"] if repeated else []
    if wanted is not None and len(rows) < len(wanted):
        notes.append(f"{len(wanted) - len(rows)} of {len(wanted)} words have no vector")
    vectors = np.frombuffer(buffer, np.float32).reshape(len(rows), d)
    return Vectors(tuple(rows), vectors, tuple(notes))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _from_npz(path: Path, top: int | None, wanted: frozenset | None) -> Vectors:
    with np.load(path, allow_pickle=False) as file:
        if "vectors" not in file.files or not {"words", "words_utf8"} & set(file.files):
            raise ValueError(
                f"{path} has {', '.join(file.files)}; expected vectors, and words or words_utf8"
            )
        vectors = file["vectors"]
        if "words_utf8" in file.files:
            words = file["words_utf8"].tobytes().decode().split("\n")
        else:
            words = [str(word) for word in file["words"]]
    stored = vectors.dtype
    if len(words) != len(vectors):
        raise ValueError(f"{path} has {len(words)} words and {len(vectors)} vectors")
    words = words[:top]
    keep = [i for i, word in enumerate(words) if wanted is None or word in wanted]
    notes = [] if stored == np.float32 else [f"stored as {stored}, read as float32"]
    if wanted is not None and len(keep) < len(wanted):
        notes.append(f"{len(wanted) - len(keep)} of {len(wanted)} words have no vector")
    chosen = vectors[keep].astype(np.float32)
    return Vectors(tuple(words[i] for i in keep), chosen, tuple(notes))
