"""Where the variance of tokens settles when a block is applied again and again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_STEP = np.log(4.0)
_REACH = 20  # steps: twelve orders of magnitude
_KEPT = 1e-10  # a block that changes log q by less keeps it
_TURNS = 60


def settled(rise: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    """The first zeros of log q' - log q that are met from a start, `(points,)`.

    Uphill where the variance grows and downhill where it shrinks, in steps of a factor 4; then
    the bracket is narrowed by false position (Illinois).

    Args:
        rise: log q -> log q' - log q, of all points at once.
        start: log q.

    Raises:
        ValueError: the variance grows, or shrinks, beyond twelve orders of magnitude, or every
            variance is kept.
    """
    low, below = start.copy(), rise(start)
    if np.abs(below).max() < _KEPT and np.abs(rise(start + _STEP)).max() < _KEPT:
        raise ValueError(
            "the block keeps every variance, so there is none to settle at; leave out settled=True"
        )
    way = np.sign(below)
    high, above = low.copy(), below.copy()
    for _ in range(_REACH):
        going = way * above > 0
        if not going.any():
            break
        low, below = np.where(going, high, low), np.where(going, above, below)
        high = np.where(going, high + way * _STEP, high)
        above = np.where(going, rise(high), above)
    else:
        raise ValueError(
            f"the variance {'grows' if way[going][0] > 0 else 'shrinks'} from block to block and "
            "settles nowhere within twelve orders of magnitude (skips without norms, or weights "
            "too large or small); put a norm at the end of the block, or ask lf.depth_profile"
        )
    return _narrowed(rise, low, below, high, above)


def _narrowed(rise, low, below, high, above) -> np.ndarray:
    """Zeros between `low` and `high`, where `rise` has opposite signs."""
    for _ in range(_TURNS):
        flat = above == below
        share = np.where(flat, 0.5, above / np.where(flat, 1.0, above - below))
        at = high - share * (high - low)
        value = rise(at)
        if np.abs(value).max() < 1e-13 or np.abs(high - low).max() < 1e-12:
            return at
        crossed = value * above < 0
        low = np.where(crossed, high, low)
        below = np.where(crossed, above, below / 2)
        high, above = at, value
    return at
