"""Line numbers of a TOML document.

`tomllib` says what a document means but not where it says so. This scan of a document that
`tomllib` has already accepted finds the line of every key and list item; because the document is
known to be valid it only has to follow brackets, quotes and comments.
"""

from __future__ import annotations

import re
import tomllib

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.S,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"\d{4}-\d\d-\d\d \d[^,\]}\s#]*|[^,\]}\s#]+")  # a date may hold one space


def lines_of(text: str) -> dict[Path, int]:
    """The line, from 1, of every key and list item of a valid TOML document, by its path.

    >>> lines_of('a = 1\\n[[b]]\\nc = [10,\\n  {d = 2}]')[("b", 0, "c", 1, "d")]
    4
    """
    scan = _Scan(text.replace("\r\n", "\n"))
    scan.document()
    return scan.found


class _Scan:
    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.counted, self.line = 0, 1
        self.found: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}

    def take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise RuntimeError(f"this scan does not follow the TOML at {self.at}; please report it")
        self.at = match.end()
        return match.group()

    def next(self, start: str) -> bool:
        """Whether `start` comes next; it is taken if so."""
        if self.text.startswith(start, self.at):
            self.at += len(start)
            return True
        return False

    def note(self, path: Path) -> None:
        """Record the present line, if the path has none yet."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        self.found.setdefault(path, self.line)

    def document(self) -> None:
        base: Path = ()
        while self.take(_BLANK) is not None and self.at < len(self.text):
            if self.next("[["):
                *front, last = self.key()
                path = (*self.resolved(front), last)
                self.counts[path] = self.counts.get(path, 0) + 1
                self.note(path)
                base = (*path, self.counts[path] - 1)
                self.note(base)
                self.at += len("]]")
            elif self.next("["):
                base = self.resolved(self.key())
                self.at += len("]")
            else:
                self.pair(base)

    def resolved(self, parts: list[str]) -> Path:
        """The path of a header: the last item of every list of tables on the way."""
        path: Path = ()
        for part in parts:
            path = (*path, part)
            self.note(path)
            if path in self.counts:
                path = (*path, self.counts[path] - 1)
        return path

    def key(self) -> list[str]:
        parts = []
        while True:
            self.take(_SPACE)
            quoted = self.text[self.at] in "\"'"
            part = self.take(_STRING if quoted else _BARE_KEY)
            parts.append(tomllib.loads(f"k = {part}")["k"] if quoted else part)
            self.take(_SPACE)
            if not self.next("."):
                return parts

    def pair(self, base: Path) -> None:
        start = self.at
        parts = self.key()
        end, self.at = self.at, start
        for i in range(len(parts)):
            self.note((*base, *parts[: i + 1]))
        self.at = end + len("=")
        self.take(_SPACE)
        self.value((*base, *parts))

    def value(self, path: Path) -> None:
        if self.next("{"):
            while self.take(_BLANK) is not None and not self.next("}"):
                self.pair(path)
                self.take(_BLANK)
                self.next(",")
        elif self.next("["):
            item = 0
            while self.take(_BLANK) is not None and not self.next("]"):
                self.note((*path, item))
                self.value((*path, item))
                self.take(_BLANK)
                self.next(",")
                item += 1
        else:
            self.take(_STRING if self.text[self.at] in "\"'" else _SCALAR)
