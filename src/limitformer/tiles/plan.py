"""What a large Gram matrix and its solve will take, from measured rates: arithmetic, no work."""

from __future__ import annotations

import dataclasses

from .cg import RANK


@dataclasses.dataclass(frozen=True)
class ScalePlan:
    """Work, space, time and money.

    Attributes:
        inputs, inducing, workers: what was asked for; inducing is None for the whole matrix.
        pairs: kernel entries that are computed.
        bytes: of the store, or without one (inducing inputs) of the normal equations in memory.
        flops: of the solve.
        gram_hours: all pairs, on all workers.
        solve_hours: in one process.
        cost: of the workers while they compute pairs.
    """

    inputs: int
    inducing: int | None
    workers: int
    pairs: int
    bytes: int
    flops: float
    gram_hours: float
    solve_hours: float
    cost: float

    def __str__(self) -> str:
        what = "the whole matrix" if self.inducing is None else f"{self.inducing:,} inducing inputs"
        return (
            f"{self.inputs:,} inputs, {what}: {self.pairs:.2g} pairs in {self.gram_hours:.2g} h on "
            f"{self.workers} workers (cost {self.cost:.3g}), {self.bytes / 1e9:.3g} GB, solve "
            f"{self.flops:.2g} flops in {self.solve_hours:.2g} h"
        )


def plan(
    inputs: int,
    *,
    pair: float,
    inducing: int | None = None,
    workers: int = 1,
    price: float = 0.0,
    kinds: int = 1,
    itemsize: int = 8,
    outputs: int = 10,
    iterations: int = 60,
    flops: float = 5e10,
    read: float = 1e9,
) -> ScalePlan:
    """Cost of a Gram matrix of n inputs and of a solve with it, at given rates.

    The whole matrix: n (n + 1) / 2 pairs in a store that conjugate gradients read once an
    iteration. With m inducing inputs: n m + m (m + 1) / 2 pairs, and normal equations of 4 n m^2 +
    m^3 flops.

    Args:
        inputs, inducing: n and m.
        pair: seconds of one worker for one pair; measure it on some inputs.
        workers: that compute pairs.
        price: of a worker for an hour.
        kinds: matrices, 2 for NNGP and NTK.
        itemsize: bytes of an entry.
        outputs, iterations: right-hand sides and iterations of conjugate gradients.
        flops: a second, of the process that solves (float64).
        read: bytes a second, of the store.

    Example:
        >>> from limitformer.tiles import plan
        >>> print(plan(60_000, pair=18.4e-6, workers=4, price=3.0))
        60,000 inputs, the whole matrix: 1.8e+09 pairs in 2.3 h on 4 workers (cost 27.6), 14.4 GB, solve 4.6e+12 flops in 0.27 h
    """  # noqa: E501
    if min(inputs, workers, inducing or 1) < 1 or not min(pair, flops, read) > 0:
        raise ValueError(
            f"inputs={inputs}, inducing={inducing}, workers={workers}, pair={pair}, flops={flops}, "
            f"read={read}: counts are at least 1 and rates above 0"
        )
    n, m = inputs, inducing
    if m is None:
        pairs = n * (n + 1) // 2
        size = kinds * pairs * itemsize
        work = iterations * 2.0 * n * n * outputs + 4.0 * n * min(RANK, n) ** 2
        solve = work / flops + iterations * pairs * itemsize / read
    else:
        pairs = n * m + m * (m + 1) // 2
        size = 8 * m * m
        work = 4.0 * n * m * m + float(m) ** 3
        solve = work / flops
    hours = pairs * pair / workers / 3600
    return ScalePlan(n, m, workers, pairs, size, work, hours, solve / 3600, hours * workers * price)
