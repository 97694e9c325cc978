"""Expectations of functions of a few Gaussians, by rules that can be repeated independently.

One or two Gaussians: the trapezoidal rule with a random shift. For a Gaussian weight its error
falls like exp(-2 pi^2 / h^2) in the step h if the function is smooth, so it is exact in practice;
if the function has a kink the error is O(h^2) and differs from shift to shift. More Gaussians: a
scrambled Sobol sequence. Repeating a rule with other shifts (scrambles) shows its error.
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.special
import scipy.stats

REPLICATES = 8
"""Independent repetitions of every rule."""
REACH = 8.5
"""The rules of one and two Gaussians end here: what is beyond has probability 2e-17."""
STEP = {1: 0.1, 2: 0.3}


@functools.lru_cache(maxsize=32)
def rules(d: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes `(REPLICATES, P, d)` and weights `(REPLICATES, P)` for E[f(z)], z ~ N(0, I_d).

    Args:
        d: number of Gaussians.
        points: of the Sobol sequence, a power of two; only used for d > 2.

    Example:
        >>> z, w = rules(1, 0)
        >>> bool(np.allclose(np.sum(w * z[..., 0] ** 4, axis=1), 3.0, rtol=1e-12))
        True
    """
    rng = np.random.default_rng(2506 + d)
    if d in STEP:
        z, w = zip(*(_trapezoid(rng, STEP[d], d) for _ in range(REPLICATES)), strict=True)
        return np.stack(z), np.stack(w)
    nodes = []
    for _ in range(REPLICATES):
        sobol = scipy.stats.qmc.Sobol(d, scramble=True, rng=rng)
        nodes.append(scipy.special.ndtri(np.clip(sobol.random(points), 1e-12, 1 - 1e-12)))
    return np.stack(nodes), np.full((REPLICATES, points), 1.0 / points)


def _trapezoid(rng: np.random.Generator, h: float, d: int) -> tuple[np.ndarray, np.ndarray]:
    count = int(2 * REACH / h)
    axes, weights = [], []
    for _ in range(d):
        z = -REACH + h * (np.arange(count) + rng.random())
        w = np.exp(-0.5 * z * z)
        axes.append(z)
        weights.append(w / w.sum())
    z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    return z, functools.reduce(np.multiply.outer, weights).reshape(-1)
