"""Figures 1, 2(a), 2(b), 3 and 5 of Sakai 2025: finite attention layers against their limit law.

Protocol: S = 4 tokens x_i = psi(W_i h), h ~ N(0, I), psi = clip to [-100, 100] (which never cuts:
C = I) or ReLU (figure 5); one layer of H heads at scale "sqrt"; the statistic is y_11, over 50,000
networks. Networks are drawn exactly in law by `heads.one_token`, whose cost does not depend on the
width (for ReLU inputs: n S normals a network).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

import jax
import numpy as np
from scipy.stats import norm

from ..heads.distance import mixture_distances
from ..heads.one_token import (
    Inputs,
    OneToken,
    fixed_inputs,
    linear_inputs,
    one_token,
    relu_inputs,
)
from ..heads.two_sample import discrete_kl, kde

TOKENS = 4
RUNS = 50_000
SEEDS = 10
WIDTHS = (16, 64, 256, 1024)
REFERENCE_KL = {16: 3.3e-2, 64: 4.4e-3, 256: 1.1e-3, 1024: 6.4e-4}
REFERENCE_FLOOR = 5.7e-4
_GRID = 500
_LIMIT_RUNS = 400_000
_MIXTURE = 10_000


@dataclasses.dataclass(frozen=True)
class Series:
    """A number of every seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float:
        """Of one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def sem(self) -> float:
        """Of the mean."""
        return self.std / math.sqrt(len(self.values))


@dataclasses.dataclass(frozen=True, eq=False)
class Point:
    """One width and number of heads, over seeds.

    Attributes:
        label: what it is.
        n, heads: width and H.
        kl: KL divergence of the finite networks from their limit, by density estimates; None for
            a limit without a density.
        floor: the same between two samples of the limit.
        reference: the KL of the reference replication, if it has one.
        signature: relative standard deviation of (1/n) sum_i y_1i^2; of figure 2(a): standard
            deviation of the score.
        limit: of the signature as n -> inf, with its standard error.
        to_gaussian: KL of the limit law from a Gaussian, with its standard error, of the mixture
            itself; None for scores.
        grid, density, density_limit: estimates of every seed, `(seeds, grid)`, per unit of y.
    """

    label: str
    n: int
    heads: int
    kl: Series | None
    floor: Series | None
    reference: float | None
    signature: Series
    limit: tuple[float, float]
    to_gaussian: tuple[float, float] | None
    grid: np.ndarray
    density: np.ndarray
    density_limit: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class Setting:
    """What one point of a figure draws."""

    label: str
    n: int
    heads: int
    inputs: Callable[[int, int], Inputs] = linear_inputs
    head_width: int | None = None
    ov_std: float = 1.0
    reference: float | None = None

    def draw(self, seed: int, runs: int) -> OneToken:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), self.n), self.heads)
        return one_token(
            self.inputs(TOKENS, self.n),
            self.n,
            heads=self.heads,
            key=key,
            runs=runs,
            head_width=self.head_width,
            ov_std=self.ov_std,
        )

    def limit(self, seed: int, runs: int) -> OneToken:
        key = jax.random.fold_in(jax.random.key(seed), self.heads)
        C = COVARIANCES[self.inputs]
        return one_token(
            fixed_inputs(C), math.inf, heads=self.heads, key=key, runs=runs, ov_std=self.ov_std
        )


COVARIANCES: dict[Callable[[int, int], Inputs], np.ndarray] = {
    linear_inputs: np.eye(TOKENS),
    relu_inputs: (0.5 - 0.5 / np.pi) * np.eye(TOKENS) + 0.5 / np.pi,
}
"""C of the inputs as n -> inf, on the diagonal and off it."""

FIGURES: dict[str, tuple[str, tuple[Setting, ...]]] = {
    "1": (
        "figure 1: output of two heads, by width",
        tuple(Setting(f"n = {n}", n, 2, reference=REFERENCE_KL.get(n)) for n in (*WIDTHS, 10**6)),
    ),
    "2b": (
        "figure 2(b): output at width 256, by number of heads",
        tuple(Setting(f"H = {H}", 256, H) for H in (1, 256)),
    ),
    "3": (
        "figure 3: heads of width 64 (low rank), n = 64 H",
        tuple(
            Setting(f"n = {64 * H}, H = {H}", 64 * H, H, head_width=64, ov_std=math.sqrt(H))
            for H in (1, 4, 16)
        ),
    ),
    "5": (
        "figure 5: output of two heads on ReLU inputs, by width",
        tuple(Setting(f"n = {n}", n, 2, inputs=relu_inputs) for n in WIDTHS),
    ),
}


def outputs_figure(
    name: str, *, runs: int = RUNS, seeds: int = SEEDS, report: Callable | None = None
) -> tuple[list[Point], float]:
    """The points of figure 1, 2b, 3 or 5.

    KL(finite || limit) of kernel density estimates (Scott's bandwidth) on 500 points between the
    least and the greatest of all samples, for every seed; the floor is that of a second sample of
    the limit.

    Args:
        name: a key of `FIGURES`.
        runs: networks of every point and seed.
        seeds: repetitions.
        report: called with a line of text after each point is drawn.

    Returns:
        The points, and the seconds they took.
    """
    start = time.perf_counter()
    settings = FIGURES[name][1]
    draws: dict[Setting, list[tuple[np.ndarray, ...]]] = {}
    signatures: dict[Setting, Series] = {}
    for setting in settings:
        drawn, found = [], []
        for seed in range(seeds):
            finite = setting.draw(3 * seed, runs)
            pair = [setting.limit(3 * seed + i, runs).outputs for i in (1, 2)]
            drawn.append((finite.outputs, *pair))
            found.append(_relative_std(finite.second_moment))
        draws[setting], signatures[setting] = drawn, Series(tuple(found))
        if report is not None:
            report(f"{setting.label}: drawn after {time.perf_counter() - start:.0f} s")
    everything = [v for drawn in draws.values() for one in drawn for v in one]
    grid = np.linspace(min(v.min() for v in everything), max(v.max() for v in everything), _GRID)
    limits: dict[int, tuple] = {}
    points = []
    for setting in settings:
        p, q, r = np.moveaxis(
            np.array([[kde(v, grid) for v in one] for one in draws[setting]]), 1, 0
        )
        if setting.heads not in limits:
            one_head = dataclasses.replace(setting, heads=1)
            v = one_head.limit(3 * seeds, _LIMIT_RUNS).variance
            root = math.sqrt(setting.heads)
            exact = mixture_distances(setting.limit(3 * seeds, _MIXTURE).variance).kl
            limits[setting.heads] = (
                (_relative_std(v) / root, _relative_std_sem(v) / root),
                (exact.value, exact.sem),
            )
        step = grid[1] - grid[0]
        points.append(
            Point(
                setting.label,
                setting.n,
                setting.heads,
                Series(tuple(discrete_kl(a, b) for a, b in zip(p, q, strict=True))),
                Series(tuple(discrete_kl(a, b) for a, b in zip(r, q, strict=True))),
                setting.reference,
                signatures[setting],
                limits[setting.heads][0],
                limits[setting.heads][1],
                grid,
                p / step,
                q / step,
            )
        )
    return points, time.perf_counter() - start


def scores_figure(
    *, n: int = 256, runs: int = RUNS, seeds: int = SEEDS
) -> tuple[list[Point], float]:
    """Figure 2(a): the score of token 1 with itself at 1/sqrt(n) and at 1/n.

    At width n its standard deviation is exactly 1 + 2/n times the limit's 1 (or n^{-1/2}): that
    of |x_1|^2 / n, the product of two chi^2_n / n.
    """
    start = time.perf_counter()
    setting = Setting("", n, 1)
    scores = np.array([setting.draw(3 * s, runs).scores[:, 0] for s in range(seeds)])
    rng = np.random.default_rng(7)
    normals = rng.standard_normal((2, seeds, runs))
    reach = max(np.abs(scores).max(), np.abs(normals).max())
    grid = np.linspace(-reach, reach, _GRID)
    step = grid[1] - grid[0]
    p, q, r = (np.array([kde(v, grid) for v in part]) for part in (scores, *normals))
    kl, floor = (
        Series(tuple(discrete_kl(a, b) for a, b in zip(one, q, strict=True))) for one in (p, r)
    )
    spread = Series(tuple(scores.std(axis=1)))
    exact = norm.pdf(grid)[None]
    small = grid / math.sqrt(n)
    return [
        Point("1/sqrt(n)", n, 1, kl, floor, None, spread, (1.0, 0.0), None, grid, p / step, exact),
        Point(
            "1/n",
            n,
            1,
            None,
            None,
            None,
            Series(tuple(v / math.sqrt(n) for v in spread.values)),
            (0.0, 0.0),
            None,
            small,
            p / step * math.sqrt(n),
            None,
        ),
    ], time.perf_counter() - start


def _relative_std(v: np.ndarray) -> float:
    return float(v.std() / v.mean())


def _relative_std_sem(v: np.ndarray) -> float:
    """By the delta method."""
    u, s = v / v.mean() - 1, _relative_std(v)
    return float((u * u / (2 * s) - s * u).std() / math.sqrt(len(v)))
