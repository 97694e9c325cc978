"""Kernels of the finished parts of a reproduction, kept in a folder so that it can go on later."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..tiles.manifest import engine
from .run import Kernels

_ABOUT = "reproduction.json"
_CODE = ("reproduce/readouts.py", "reproduce/shared_trunk.py")  # beside the engine


class Kept:
    """A folder with one npz for the training points and one for every band of validation points.

    Args:
        folder: made if it is not there; None: nothing is kept.
        settings: what the kernels depend on; a folder with other settings is refused.
        arrays: the data, of which the folder keeps a checksum.

    Attributes:
        seconds: what the parts that were read from the folder took to compute.

    Raises:
        ValueError: the folder belongs to another run; the message says what differs.
    """

    def __init__(self, folder: Path | str | None, settings: dict[str, str], *arrays: np.ndarray):
        self.folder, self.seconds = None if folder is None else Path(folder), 0.0
        if self.folder is None:
            return
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        about = settings | {"data": digest.hexdigest(), "engine": engine(*_CODE)}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _ABOUT
        if not path.exists():
            _whole(path, lambda file: file.write(json.dumps(about, indent=1).encode()))
            return
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}); give another folder") from error
        differ = sorted(k for k in found.keys() | about.keys() if found.get(k) != about.get(k))
        if differ:
            said = "; ".join(f"{k}: {found.get(k)!r}, now {about.get(k)!r}" for k in differ)
            raise ValueError(
                f"{self.folder} has kernels of another run ({said}); give another folder, or "
                "delete it"
            )

    def __call__(self, kernels: Kernels) -> Kernels:
        """The same kernels, read from the folder where they are already there."""
        if self.folder is None:
            return kernels
        folder = self.folder

        def known(part: Any) -> dict[str, np.ndarray]:
            name = "training" if part is None else f"{part.start}-{part.stop}"
            path = folder / f"{name}.npz"
            if path.exists():
                found, seconds = _read(path)
                self.seconds += seconds
                return found
            start = time.monotonic()
            found = kernels(part)
            stored: dict[str, Any] = found | {"seconds": np.array(time.monotonic() - start)}
            _whole(path, lambda file: np.savez(file, **stored))
            return found

        return known


def _read(path: Path) -> tuple[dict[str, np.ndarray], float]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            found = {name: stored[name] for name in stored.files}
        return found, float(found.pop("seconds"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it and run again") from error


def _whole(path: Path, write) -> None:
    """A file that is there in whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        write(file)
    os.replace(part, path)
