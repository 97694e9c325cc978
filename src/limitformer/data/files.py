"""Files that the user has: where they are, whether they are the published ones."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import NoReturn

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a dataset is published, and what its files' checksums are.

    Args:
        name: the dataset.
        page: the address of its page.
        files: file name -> `"md5:..."` or `"sha256:..."` as published.
        layouts: the other forms that the loader reads, in words.
    """

    name: str
    page: str
    files: dict[str, str]
    layouts: tuple[str, ...] = ()

    def missing(self, path: Path, call: str, why: str = "there is nothing there") -> NoReturn:
        """Raise the error that says where to get the dataset and where to put it."""
        files = " or ".join(f"{name} ({checksum})" for name, checksum in self.files.items())
        folder = path if path.is_dir() else path.parent
        also = f" The loader also reads {', '.join(self.layouts)}." if self.layouts else ""
        raise FileNotFoundError(
            f"{self.name} was looked for at {path}: {why}. Get {files} from {self.page}, put it "
            f"into {folder.absolute()}, and call {call} with its path.{also} "
            "limitformer downloads nothing."
        )

    def verify(self, path: Path) -> None:
        """Compare a file with its published checksum; under another name, with all of them.

        Raises:
            ValueError: it has another one.
        """
        name = path.name
        published = [self.files[name]] if name in self.files else list(self.files.values())
        found = {kind: checksum(path, kind) for kind in {item.split(":")[0] for item in published}}
        if any(found[item.split(":")[0]] == item.split(":")[1] for item in published):
            return
        digests = ", ".join(f"{kind}:{digest}" for kind, digest in found.items())
        raise ValueError(
            f"{path} is not a published file of {self.name}: it has {digests}, expected "
            f"{' or '.join(published)}. Get it again from {self.page}, or pass verify=False to "
            "read it as it is"
        )


def checksum(path: PathLike, kind: str = "md5") -> str:
    """The hexadecimal digest of a file.

    Args:
        path: the file.
        kind: `"md5"` or `"sha256"`.

    Returns:
        The digest.

    Example:
        >>> import os
        >>> checksum(os.devnull)
        'd41d8cd98f00b204e9800998ecf8427e'
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def local(path: PathLike) -> Path:
    """A path with `~` expanded."""
    return Path(path).expanduser()


def existing(path: PathLike, call: str) -> Path:
    """The path of a user's own file.

    Raises:
        FileNotFoundError: there is no such file.
    """
    found = local(path)
    if not found.is_file():
        what = "a folder" if found.is_dir() else "not there"
        raise FileNotFoundError(
            f"{found.absolute()} is {what}; {call} takes the path of one file that is on this "
            "machine (limitformer downloads nothing)"
        )
    return found
