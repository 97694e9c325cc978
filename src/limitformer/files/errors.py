"""What is wrong with a network file, and where."""

from __future__ import annotations


class NetworkFileError(ValueError):
    """A network that cannot be read from, or written to, a file.

    Attributes:
        file: name of the file, None for a dictionary.
        line: line number from 1, None where there is no text.
        path: place in the network, such as `layers[1].w_std`.
    """

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, path: str = ""
    ):
        self.file, self.line, self.path = file, line, path
        place = "" if file is None else f"{file}:{line}: " if line else f"{file}: "
        super().__init__(f"{place}{path}: {message}" if path else f"{place}{message}")


def path_text(path: tuple[str | int, ...]) -> str:
    """A place in nested tables as people write it.

    >>> path_text(("layers", 1, "position", "decay"))
    'layers[1].position.decay'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
