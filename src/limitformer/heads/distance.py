"""How far the law of finitely many heads is from a Gaussian, and how many heads bring it close."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import numpy as np
from scipy.special import ndtr

from ..layers.base import Layer
from .law import Law

_POINTS = 2001
_REACH = 12.0  # standard deviations of the widest component that the grid covers


@dataclasses.dataclass(frozen=True)
class Distance:
    """A distance, its standard error over draws, and its floor.

    Attributes:
        value: of the mixture over all draws.
        sem: standard error, to first order in the draws.
        floor: what the finite number of draws alone adds: the mean over two halves of the draws
            less the value of all. A value below its floor is not resolved.
    """

    value: float
    sem: float
    floor: float


@dataclasses.dataclass(frozen=True)
class Distances:
    """Distances of one coordinate's law from N(0, variance); made by `distances`.

    Attributes:
        kl: Kullback-Leibler divergence of the law from the Gaussian, in nats.
        wasserstein: the first Wasserstein distance, in units of the outputs.
        energy: the squared energy distance, 2 integral (F - G)^2.
        variance: of the Gaussian.
    """

    kl: Distance
    wasserstein: Distance
    energy: Distance
    variance: float


def distances(law: Law, point: int = 0, variance: float | None = None) -> Distances:
    """Distances of the law of one coordinate at one input from a Gaussian.

    The law is the exact mixture over draws, p(y) = mean_d N(y; 0, v_d), integrated on a grid; no
    samples or density estimates of outputs enter.

    Args:
        law: of `net.law`.
        point: which input (row of `law.variances`).
        variance: of the Gaussian; None takes that of the law itself, the limit of infinitely many
            heads for one layer.

    Example:
        >>> import limitformer as lf
        >>> net = lf.Serial(lf.Attention(heads=1, qk_std=2.0), lf.FirstToken())
        >>> few = distances(net.law(np.eye(4)[None] * 2, key=jax.random.key(0), draws=2000))
        >>> many = net.with_heads(16).law(np.eye(4)[None] * 2, key=jax.random.key(0), draws=2000)
        >>> bool(few.kl.value > 20 * distances(many).kl.value)
        True
    """
    return mixture_distances(law.variances[:, point], variance)


def mixture_distances(v: np.ndarray, variance: float | None = None) -> Distances:
    """Distances of the mixture mean_d N(0, v_d) from a Gaussian.

    Args:
        v: `(draws,)` positive variances.
        variance: of the Gaussian; None takes the mean of v.
    """
    if len(v) < 4:
        raise ValueError(f"the law has {len(v)} draws; distances need at least 4, better 1000")
    if (v <= 0).any():
        raise ValueError("the law has a draw of zero variance: a point mass has no density")
    whole = _measure(v, variance)
    halves = [_measure(half, variance) for half in (v[0::2], v[1::2])]
    found = [
        Distance(value, sem, (halves[0][i][0] + halves[1][i][0]) / 2 - value)
        for i, (value, sem) in enumerate(whole)
    ]
    kl, wasserstein, energy = found
    used = float(v.mean()) if variance is None else float(variance)
    return Distances(kl, wasserstein, energy, used)


def _measure(v: np.ndarray, given: float | None) -> list[tuple[float, float]]:
    """(value, standard error) of KL, Wasserstein and energy distance of the mixture over v."""
    variance = float(v.mean()) if given is None else float(given)
    reach = _REACH * math.sqrt(max(float(v.max()), variance))
    # finer near zero, where narrow components are
    u = np.linspace(-1, 1, _POINTS)
    y = reach * np.sinh(6 * u) / math.sinh(6)
    weight = np.gradient(y)
    p, F = np.zeros(_POINTS), np.zeros(_POINTS)
    for part in np.array_split(v, max(1, len(v) // 256)):
        p += np.exp(-0.5 * y**2 / part[:, None] - 0.5 * np.log(2 * np.pi * part[:, None])).sum(0)
        F += ndtr(y / np.sqrt(part[:, None])).sum(0)
    p, F = p / len(v), F / len(v)
    log_g = -0.5 * y**2 / variance - 0.5 * math.log(2 * math.pi * variance)
    G = ndtr(y / math.sqrt(variance))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(p > 0, np.log(np.where(p > 0, p, 1.0)) - log_g, 0.0)
    gap = F - G
    values = (
        float(np.sum(weight * p * ratio)),
        float(np.sum(weight * np.abs(gap))),
        float(2 * np.sum(weight * gap**2)),
    )
    slopes = (weight * ratio, weight * np.sign(gap), 4 * weight * gap)
    changes: list[list[np.ndarray]] = [[], [], []]
    for part in np.array_split(v, max(1, len(v) // 256)):
        density = np.exp(-0.5 * y**2 / part[:, None] - 0.5 * np.log(2 * np.pi * part[:, None]))
        cdf = ndtr(y / np.sqrt(part[:, None]))
        for i, kernel in enumerate((density, cdf, cdf)):
            changes[i].append(kernel @ slopes[i])
    total = [np.concatenate(c) for c in changes]
    if given is None:  # the Gaussian's variance moves with the draws too; KL does not feel it
        dG = -0.5 * y / variance * np.exp(log_g)
        for i in (1, 2):
            total[i] = total[i] - float(slopes[i] @ dG) * (v - variance)
    sems = [c.std(ddof=1) / math.sqrt(len(v)) for c in total]
    return [(value, float(sem)) for value, sem in zip(values, sems, strict=True)]


@dataclasses.dataclass(frozen=True)
class HeadsNeeded:
    """The heads at which a network's law is as close to Gaussian as asked; made by `heads_needed`.

    Attributes:
        heads: smallest number between the ones tried, by interpolation in logarithms; None if the
            largest was not enough.
        tried: numbers of heads.
        found: the distances at each.
        closeness: the KL divergence asked for.
    """

    heads: int | None
    tried: tuple[int, ...]
    found: tuple[Distances, ...]
    closeness: float

    def __str__(self) -> str:
        lines = [f"{'heads':>6} {'KL':>10} {'+-':>9} {'floor':>9}"]
        lines += [
            f"{h:6d} {d.kl.value:10.3g} {d.kl.sem:9.2g} {d.kl.floor:9.2g}"
            for h, d in zip(self.tried, self.found, strict=True)
        ]
        answer = "more than tried" if self.heads is None else str(self.heads)
        return "\n".join([*lines, f"heads for KL <= {self.closeness:g}: {answer}"])


def heads_needed(
    net: Layer,
    x,
    *,
    key,
    closeness: float = 1e-3,
    tried: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    point: int = 0,
    draws: int = 4000,
    x_mask=None,
    **options,
) -> HeadsNeeded:
    """How many heads bring the law of one coordinate within a KL divergence of its Gaussian.

    Every attention layer at scale "sqrt" gets the same number of heads. Stops at the first number
    that is close enough.

    Args:
        net, x, x_mask, key, draws, options: as for `net.law`.
        closeness: largest KL divergence, in nats.
        tried: numbers of heads, increasing.
        point: which input.
    """
    seen: list[Distances] = []
    for i, heads in enumerate(tried):
        law = net.with_heads(heads).law(
            x, key=jax.random.fold_in(key, i), draws=draws, x_mask=x_mask, **options
        )
        seen.append(distances(law, point))
        if seen[-1].kl.value <= closeness:
            break
    last = seen[-1].kl.value
    needed = None
    if last <= closeness:
        needed = tried[len(seen) - 1]
        if len(seen) > 1:
            before = seen[-2].kl.value
            low, high = math.log(tried[len(seen) - 2]), math.log(needed)
            part = (math.log(before) - math.log(closeness)) / (math.log(before) - math.log(last))
            needed = math.ceil(math.exp(low + part * (high - low)))
    return HeadsNeeded(needed, tuple(tried[: len(seen)]), tuple(seen), closeness)
