"""Reports on disk: whole or not at all, and never over a file that is not a report."""

import os
from pathlib import Path


def check_target(path: Path, generator: str) -> None:
    """Raise unless a report may be written to `path`. Call it before the work, too.

    Args:
        path: where the report will be.
        generator: the page's generator; an existing page with the same one may be replaced.

    Raises:
        FileExistsError: something else is there, or a parent is not a folder.
        PermissionError: the folder, or the nearest one above that exists, cannot be written to.
    """
    there = path.exists() or path.is_symlink()
    if there and not (path.is_file() and _generator_line(generator) in _head(path)):
        raise FileExistsError(
            f"{path} exists and was not written by {generator}, so it is left alone. "
            "Move it away, or choose another folder with --out."
        )
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise FileExistsError(
            f"{folder} is a file, but the report needs a folder there. "
            "Choose another folder with --out."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written to. Choose another folder with --out.")


def write_report(path: Path, html: str, generator: str) -> None:
    """Write a page in one step: a reader sees the old page or the new one, never a part.

    Args:
        path: where the report will be; its folder is made if need be.
        html: the page, made with the same `generator`.
        generator: see `check_target`.

    Raises:
        ValueError: the page does not carry the generator and could not be replaced later.
        FileExistsError, PermissionError: see `check_target`.
    """
    if _generator_line(generator) not in html[:_HEAD]:
        raise ValueError(
            f"the page does not name {generator!r} as its generator; build it with "
            f"limitformer.report.html.page(..., generator={generator!r})"
        )
    check_target(path, generator)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Mode "x": a file of this name that somebody else made is not touched.
        with part.open("x", encoding="utf-8") as file:
            file.write(html)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except FileExistsError:
        raise
    except BaseException:
        part.unlink(missing_ok=True)
        raise


_HEAD = 2000


def _generator_line(generator: str) -> str:
    from limitformer.report.html import generator_tag

    return generator_tag(generator)


def _head(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_HEAD)
