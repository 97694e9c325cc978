"""Standard errors of what is computed from an estimated kernel, by its independent replicates.

A kernel from score draws is the mean of R replicates K_r. A function g of the mean kernel has, to
first order, the replicates g(K) + dg(K_r - K), so that its standard error is that of their mean:
sem^2 = sum_r |dg(K_r - K)|^2 / (R (R - 1)).
"""

from __future__ import annotations

from typing import Any

import numpy as np


def centred(replicates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the leading axis, and the deviations from it."""
    mean = replicates.mean(axis=0)
    return mean, replicates - mean


def error_of(changes) -> Any:
    """Standard error of a function from its first-order change along every replicate."""
    changes = np.stack(list(changes))
    R = len(changes)
    return np.sqrt(np.sum(changes**2, axis=0) / (R * (R - 1)))
