"""Progress of long work: a callback that can never break it."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable


@dataclasses.dataclass
class Progress:
    """Reports `(done, total, seconds left)` to a function, whose errors are ignored.

    Attributes:
        report: the function.
        start: when the work began.
        offset, parts: which of several equal parts this is.
        before: how much was done when the work began, as in a run that goes on.
    """

    report: Callable[[int, int, float], None]
    start: float = dataclasses.field(default_factory=time.monotonic)
    offset: int = 0
    parts: int = 1
    before: int = 0

    @classmethod
    def of(cls, given: bool | Callable) -> Progress | None:
        if given is False or given is None:
            return None
        return cls(_line if given is True else given)

    def part(self, index: int, parts: int) -> Progress:
        """The progress of one of several equal parts."""
        return Progress(self.report, self.start, index, parts)

    def __call__(self, done: int, total: int) -> None:
        done, total = done + self.offset * total, total * self.parts
        left = (time.monotonic() - self.start) * (total - done) / max(done - self.before, 1)
        try:
            self.report(done, total, left)
        except Exception:
            self.report = _silent


def _silent(done: int, total: int, left: float) -> None:
    pass


def _line(done: int, total: int, left: float) -> None:
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r{done}/{total} blocks, {left:.0f} s left {end}")
    sys.stderr.flush()
