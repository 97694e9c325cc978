"""Where a store is: a local folder or any address that fsspec or obstore knows.

Files are listed, never followed out.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from ..extras import optional

_OBSTORE = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "azure")  # what it takes over


@dataclasses.dataclass(frozen=True)
class Location:
    """A folder that holds a store.

    Attributes:
        url: a local path, absolute, or an address such as `memory://K.zarr` or `s3://bucket/K.zarr`.
    """

    url: str

    @classmethod
    def of(cls, given) -> Location:
        """The location that a path or an address names."""
        if not isinstance(given, (str, os.PathLike)):
            raise TypeError(f'store={given!r}: give a path or an address, such as "K.zarr"')
        text = os.fspath(given)
        scheme, mark, path = str(text).partition("://")
        if mark and scheme not in ("file", "local"):
            return cls(str(text).rstrip("/"))
        return cls(str(Path(path if mark else str(text)).absolute()))

    @property
    def local(self) -> bool:
        return "://" not in self.url

    def _files(self) -> tuple[Any, str]:
        self._find_protocol()
        return optional("fsspec", "tiles").url_to_fs(self.url)

    def _find_protocol(self) -> None:
        """Let obstore take addresses for which fsspec's own package is not installed."""
        scheme = "file" if self.local else self.url.rpartition("://")[0].rpartition("::")[2]
        try:
            optional("fsspec", "tiles").get_filesystem_class(scheme)
        except ValueError:
            raise ValueError(
                f"store={self.url!r}: {scheme}:// is not a kind of address that fsspec knows; "
                'give a folder, or an address such as "s3://bucket/K.zarr"'
            ) from None
        except ImportError as error:
            if scheme in _OBSTORE:
                optional("obstore.fsspec", "cloud").register(scheme)
            else:
                raise ModuleNotFoundError(f"store={self.url!r}: {error}") from None

    def zarr(self, read_only: bool = False) -> Any:
        """The same place as Zarr sees it; writes of local chunks are atomic."""
        storage = optional("zarr.storage", "tiles")
        if self.local:
            return storage.LocalStore(self.url, read_only=read_only)
        self._find_protocol()
        return storage.FsspecStore.from_url(self.url, read_only=read_only)

    def exists(self) -> bool:
        """Whether there is anything."""
        files, root = self._files()
        return files.exists(root) and (files.isfile(root) or bool(files.ls(root, detail=False)))

    def json(self, name: str) -> Any:
        """A JSON file, None if it is not there or not JSON."""
        files, root = self._files()
        try:
            return json.loads(files.cat_file(f"{root}/{name}"))
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, ValueError):
            return None

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of every file below a folder, by its path in there."""
        files, root = self._files()
        top = f"{root}/{folder}"
        if hasattr(files, "invalidate_cache"):
            files.invalidate_cache()
        found = files.find(top, detail=True)
        return {path[len(top) :].lstrip("/"): about["size"] for path, about in found.items()}

    def remove(self, name: str) -> None:
        """Delete one file, if it is there."""
        files, root = self._files()
        if files.exists(f"{root}/{name}"):
            files.rm_file(f"{root}/{name}")

    def check_links(self) -> None:
        """Refuse a local store with symbolic links: nothing outside of it is read or written.

        Raises:
            ValueError: there is one; the message has its path.
        """
        if not self.local:
            return
        for folder, folders, names in os.walk(self.url):
            for name in (*folders, *names):
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    raise ValueError(
                        f"{path} is a symbolic link; a store is read and written only inside its "
                        "own folder: copy what it points to"
                    )
