"""Design: the scale at which token correlation survives, and phase diagrams over two of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
from jaxtyping import Float

from ..kernel.gram import DRAWS
from ..kernel.progress import Progress
from ..layers.base import Layer
from .curves import METRICS, TANGENT_METRICS
from .profile import depth_profile


@dataclasses.dataclass(frozen=True)
class Critical:
    """Where a metric of the last layer crosses its target; made by `lf.critical`.

    Attributes:
        value: the parameter there.
        value_sem: its standard error from that of the metric; 0 where the kernels are exact.
        metric, target: what crosses.
        at_low, at_high: the metric at the two ends.
        tried: number of networks that were looked at.
    """

    value: float
    value_sem: float
    metric: str
    target: float
    at_low: float
    at_high: float
    tried: int


@dataclasses.dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """A metric of the last layer over two parameters; made by `phase_diagram`.

    Attributes:
        first, second: `(a,)` and `(b,)` values of the parameters, with their `names`.
        values: `(a, b)` the metric, averaged over inputs.
        sem: `(a, b)` standard errors of estimated kernels, else None.
        metric: its name.
    """

    first: Float[np.ndarray, " a"]
    second: Float[np.ndarray, " b"]
    values: Float[np.ndarray, "a b"]
    sem: Float[np.ndarray, "a b"] | None
    names: tuple[str, str]
    metric: str


def critical(
    build: Callable[[float], Layer],
    x,
    low: float,
    high: float,
    *,
    metric: str = "cosine",
    target: float = 0.9,
    x_mask=None,
    log: bool = False,
    rtol: float = 1e-4,
    key=None,
    draws: int = DRAWS,
) -> Critical:
    """The value of a parameter at which a collapse metric of the last layer meets its target.

    The parameter is whatever `build` makes of a number: a residual scale, `qk_std`, the standard
    deviation of the values. `build` also says how deep the network is. Estimated kernels use the
    same draws for every value, so that the root is that of one smooth function.

    Args:
        build: value -> network.
        x, x_mask: inputs as for `net.kernel`; the metric is averaged over them.
        low, high: ends of the search; the metric must be on different sides of its target there.
        metric: "residual", "cosine", "effective_rank", ..., or one of the tangent kernel.
        target: the metric's value.
        log: search in the logarithm of the parameter.
        rtol: relative accuracy of the value.

    Raises:
        ValueError: the metric does not cross its target between the ends.

    Example:
        >>> import limitformer as lf
        >>> def build(branch):
        ...     return lf.Repeat(lf.Residual(lf.Attention(scale="linear"), branch=branch), 12)
        >>> found = lf.critical(build, np.eye(4)[None], 0.01, 2.0, metric="cosine", target=0.5)
        >>> round(found.value, 2)
        0.38
    """
    if not low < high or (log and low <= 0):
        raise ValueError(f"low={low}, high={high}: low must be smaller" + log * ", and positive")
    tangent = metric in TANGENT_METRICS
    if not tangent and metric not in METRICS:
        known = ", ".join((*METRICS, *TANGENT_METRICS))
        raise ValueError(f"metric={metric!r} is not known; choose one of {known}")
    seen: dict[float, tuple[float, float]] = {}

    def value(u: float) -> float:
        at = float(np.exp(u)) if log else float(u)
        seen[at] = _last(build(at), x, x_mask, metric, tangent, key, draws)
        return seen[at][0] - target

    ends = (np.log(low), np.log(high)) if log else (low, high)
    at_low, at_high = (value(u) + target for u in ends)
    if not (at_low - target) * (at_high - target) <= 0:
        raise ValueError(
            f"{metric} is {at_low:.4g} at {low:g} and {at_high:.4g} at {high:g}, both on one side "
            f"of {target:g}; widen the range or change the target"
        )
    tolerance = rtol if log else rtol * max(abs(low), abs(high)) / 4
    root = float(scipy.optimize.brentq(value, *ends, xtol=tolerance, rtol=max(rtol / 4, 1e-15)))  # type: ignore[arg-type]
    root = float(np.exp(root)) if log else root
    return Critical(root, _root_sem(seen, root), metric, target, at_low, at_high, len(seen))


def phase_diagram(
    build: Callable[[float, float], Layer],
    x,
    first,
    second,
    *,
    names: tuple[str, str] = ("first", "second"),
    metric: str = "cosine",
    x_mask=None,
    key=None,
    draws: int = DRAWS,
    progress: bool | Callable = False,
) -> PhaseDiagram:
    """A collapse metric of the last layer for every pair of two parameters.

    Args:
        build: (first, second) -> network.
        x, x_mask, metric, key, draws: as for `lf.critical`.
        first, second: values of the two parameters.
        names: what they are called on the plot.
        progress: True, or a function `(done, total, seconds left)`.
    """
    a, b = (np.asarray(v, float) for v in (first, second))
    if a.ndim != 1 or b.ndim != 1 or not a.size or not b.size:
        raise ValueError(f"first and second must be lists of numbers, got {a.shape}, {b.shape}")
    report = Progress.of(progress)
    found = np.empty((len(a), len(b), 2))
    tangent = metric in TANGENT_METRICS
    for i, j in np.ndindex(len(a), len(b)):
        net = build(float(a[i]), float(b[j]))
        found[i, j] = _last(net, x, x_mask, metric, tangent, key, draws)
        if report is not None:
            report(i * len(b) + j + 1, a.size * b.size)
    sem = found[..., 1] if (found[..., 1] > 0).any() else None
    return PhaseDiagram(a, b, found[..., 0], sem, names, metric)


def _last(net, x, x_mask, metric, ntk, key, draws) -> tuple[float, float]:
    """The metric after the last layer, and its standard error (0 if exact)."""
    curves = depth_profile(net, x, x_mask, ntk=ntk, key=key, draws=draws).kernel
    sem: Any = curves.sem(metric)
    return float(curves.mean(metric)[-1]), 0.0 if sem is None else float(sem[-1])


def _root_sem(seen: dict[float, tuple[float, float]], root: float) -> float:
    """Standard error of the metric over its slope, from the nearest values that were tried."""
    near = sorted(seen, key=lambda v: abs(v - root))
    sem = seen[near[0]][1]
    if sem == 0:
        return 0.0
    # far enough apart for a slope that rounding does not spoil
    other = next((v for v in near if abs(v - root) > 1e-3 * abs(root)), near[-1])
    rise = seen[other][0] - seen[near[0]][0]
    return abs(sem * (other - near[0]) / rise) if rise else float("inf")
