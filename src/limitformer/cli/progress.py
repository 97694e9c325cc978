"""Progress of steps whose relative costs are known: one line that shows the time left."""

import contextlib
import sys
import time
from collections.abc import Mapping
from typing import Any


class StepProgress:
    """Calls with (step, part of it done) become a line on a terminal, or a line per step in a log.

    The time left scales the known costs by how long the work so far has taken.

    Args:
        steps: names in order, with their costs in any unit.
        stream: where to write, a text file; None: standard error.
    """

    def __init__(self, steps: Mapping[str, float], stream: Any = None):
        self.steps = dict(steps)
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty()
        self.start = time.monotonic()
        self.finished = ""

    def __call__(self, step: str, part: float) -> None:
        """Show how far the work is; never raises, so that it cannot break the work."""
        with contextlib.suppress(OSError, ValueError):
            self._show(step, part)

    def close(self) -> None:
        """Leave the line, so that what follows starts on a new one."""
        if self.terminal:
            with contextlib.suppress(OSError, ValueError):
                print("\r\x1b[K", end="", file=self.stream, flush=True)

    def done(self, step: str, part: float) -> float:
        """The part of all work that is done when so much of `step` is."""
        names = list(self.steps)
        before = sum(self.steps[name] for name in names[: names.index(step)])
        return (before + part * self.steps[step]) / sum(self.steps.values())

    def _show(self, step: str, part: float) -> None:
        done, elapsed = self.done(step, part), time.monotonic() - self.start
        left = f"about {elapsed * (1 - done) / done:.0f} s left" if done > 0.05 else ""
        if self.terminal:
            filled = round(24 * done)
            bar = "█" * filled + "░" * (24 - filled)
            line = f"{bar} {100 * done:3.0f} %  {step}  {left}"
            print(f"\r\x1b[K{line}", end="", file=self.stream, flush=True)
        elif part >= 1 and self.finished != step:
            self.finished = step
            print(f"[{elapsed:5.1f} s] {step}  {left}".rstrip(), file=self.stream, flush=True)
