"""Numbers as a page shows them."""

from __future__ import annotations

import numpy as np

KERNELS = {"nngp": "NNGP", "ntk": "NTK"}


def accuracy(result) -> str:
    """An accuracy with its standard error, in per cent."""
    return f"{100 * result.accuracy:.1f} ± {100 * result.accuracy_sem:.1f}"


def with_error(value: float, error: float, digits: int = 2) -> str:
    """A value with its standard error, to so many digits of the error.

    Example:
        >>> with_error(0.12345, 0.0067)
        '0.1235 ± 0.0067'
    """
    places = max(0, digits - 1 - int(np.floor(np.log10(error)))) if error > 0 else 4
    return f"{value:.{places}f} ± {error:.{places}f}"
