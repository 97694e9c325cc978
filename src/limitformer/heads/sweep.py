"""How non-Gaussian a network's outputs are, over heads, tokens, qk_std, depth and skip weights."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..cli.table import text_table
from ..layers.attention import Attention
from ..layers.base import Layer
from ..layers.combine import Residual, Serial
from ..layers.dense import Dense
from ..layers.pool import FirstToken
from .distance import Distance, Distances, distances
from .law import Estimate
from .one_token import gaussian_inputs, one_token
from .two_sample import TwoSample, holm, two_sample

_TWIN_NUMBERS = 2**23

Build = Callable[..., tuple[Layer, np.ndarray]]
"""Parameters -> network and inputs; the first input's first output is looked at."""


def stack(
    *, heads: int = 1, tokens: int = 4, qk_std: float = 1.0, depth: int = 1, skip: float = 0.0
) -> tuple[Layer, np.ndarray]:
    """Attention layers on independent tokens (C = I): what `sweep` builds unless told otherwise.

    Args:
        heads: of every layer.
        tokens: S.
        qk_std: s_QK.
        depth: number of attention layers.
        skip: weight of the skip around each; 0 for none.

    Returns:
        The network, which reads out the first token, and one input.
    """
    attention: Layer = Attention(heads=heads, qk_std=qk_std)
    if skip:
        attention = Residual(attention, skip=skip)
    net = Serial(Dense(), *[attention] * depth, FirstToken())
    return net, np.sqrt(tokens) * np.eye(tokens)[None]


@dataclasses.dataclass(frozen=True)
class Row:
    """One set of parameters.

    Attributes:
        parameters: by name.
        distances: of the law of one coordinate from the Gaussian of the same variance.
        kurtosis: excess kurtosis of the coordinate.
        spread: relative standard deviation of the layer's second moment.
        twins: distances between outputs of finite networks and of the law; None if not asked for.
    """

    parameters: Mapping[str, Any]
    distances: Distances
    kurtosis: Estimate
    spread: Estimate
    twins: TwoSample | None = None

    def record(self) -> dict[str, Any]:
        """Everything in one flat dictionary."""
        found: dict[str, Any] = dict(self.parameters)
        for name in ("kl", "wasserstein", "energy"):
            found |= _flat(name, getattr(self.distances, name))
        for name, value in (("kurtosis", self.kurtosis), ("spread", self.spread)):
            found |= {name: value.value, f"{name}_sem": value.sem}
        if self.twins is not None:
            for name in ("kl", "wasserstein", "energy"):
                found |= _flat(f"twins_{name}", getattr(self.twins, name))
            found["twins_p_value"] = self.twins.p_value
        return found


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Rows over all combinations of parameters; made by `sweep`. Prints as a table."""

    rows: tuple[Row, ...]
    width: int | None = None

    def records(self) -> list[dict[str, Any]]:
        """One flat dictionary per row."""
        return [row.record() for row in self.rows]

    def column(self, name: str) -> Float[np.ndarray, " rows"]:
        """One number of every row, by its name in `records`."""
        records = self.records()
        if name not in records[0]:
            raise ValueError(f"no column {name!r}; there are {', '.join(records[0])}")
        return np.array([record[name] for record in records])

    def __str__(self) -> str:
        head = [*self.rows[0].parameters, "KL", "floor", "W1", "floor", "energy", "floor"]
        head += ["kurtosis", "spread"]
        twins = self.width is not None
        if twins:
            head += [f"energy, width {self.width}", "floor", "p (Holm)"]
        p_values = holm([row.twins.p_value for row in self.rows if row.twins is not None])
        lines = []
        for i, row in enumerate(self.rows):
            d = row.distances
            line = [f"{v:g}" for v in row.parameters.values()]
            for part in (d.kl, d.wasserstein, d.energy):
                line += [_pm(part.value, part.sem), f"{part.floor:.1g}"]
            line += [_pm(e.value, e.sem) for e in (row.kurtosis, row.spread)]
            if row.twins is not None:
                e = row.twins.energy
                line += [_pm(e.value, e.sem), f"{e.floor:.1g}", f"{p_values[i]:.3f}"]
            lines.append(line)
        return text_table(head, lines)


def sweep(
    grid: Mapping[str, Sequence],
    *,
    key: PRNGKeyArray,
    build: Build = stack,
    draws: int = 4000,
    twins: int = 0,
    width: int = 256,
    **options,
) -> Sweep:
    """Distances from a Gaussian for every combination of parameters.

    KL, Wasserstein and energy distance are those of the mixture over `draws` kernels, each with its
    standard error and floor (see `distances`). With `twins`, one output of each of so many finite
    networks of the same heads is compared with as many outputs of the law. One attention layer of
    `stack` is drawn exactly in law (`one_token`, at any width); anything else is `net.twin`.

    Args:
        grid: values by name of a parameter of `build`.
        key: randomness; every combination has its own.
        build: makes a network and its inputs from one combination, as keywords.
        draws: of the law's kernels.
        twins: finite networks per combination; 0 for none.
        width: of the finite networks.
        options: for `net.law`.

    Raises:
        ValueError: an empty grid.

    Example:
        >>> found = sweep({"heads": (1, 4)}, key=jax.random.key(0), draws=2000)
        >>> kl = found.column("kl")
        >>> bool(kl[0] > 5 * kl[1])
        True
    """
    if not grid or not all(len(values) for values in grid.values()):
        raise ValueError(
            f"the grid {dict(grid)!r} has no combinations; give values such as "
            '{"heads": (1, 2, 4), "qk_std": (1.0,)}'
        )
    rows = []
    for i, values in enumerate(itertools.product(*grid.values())):
        parameters = dict(zip(grid, values, strict=True))
        net, x = build(**parameters)
        for_law, for_sample, for_twins = jax.random.split(jax.random.fold_in(key, i), 3)
        law = net.law(x, key=for_law, draws=draws, **options)
        compared = None
        if twins:
            one_layer = build is stack and parameters.get("depth", 1) == 1
            if one_layer and not parameters.get("skip", 0.0):
                outputs = _one_layer(net, x, width, twins, for_twins)
            else:
                outputs = twin_outputs(net, x, width, twins, for_twins)
            variances = np.resize(law.variances[:, 0], twins)
            normals = np.asarray(jax.random.normal(for_sample, (twins,)), float)
            compared = two_sample(outputs, np.sqrt(variances) * normals)
        kurtosis, spread = (
            Estimate(float(e.value[0]), float(e.sem[0]))
            for e in (law.kurtosis, law.second_moment_spread)
        )
        rows.append(Row(parameters, distances(law), kurtosis, spread, compared))
    return Sweep(tuple(rows), width if twins else None)


def twin_outputs(
    net: Layer, x: Any, width: int, runs: int, key: PRNGKeyArray
) -> Float[np.ndarray, " runs"]:
    """The first output at the first input of independent finite networks."""
    x = np.asarray(x, np.float32)

    def output(k):
        twin: Any = net.twin(key=k, features=x.shape[-1], width=width)
        return twin(x).reshape(-1)[0]

    batch = max(1, min(runs, _TWIN_NUMBERS // (8 * width * width)))
    keys = jax.random.split(key, (-(-runs // batch), batch))
    outputs = jax.jit(jax.vmap(output))
    return np.concatenate([np.asarray(outputs(k), float) for k in keys])[:runs]


def _one_layer(net: Layer, x, width: int, runs: int, key: PRNGKeyArray) -> np.ndarray:
    attention: Any = net.layers[1]  # pyright: ignore[reportAttributeAccessIssue]
    inputs = gaussian_inputs(x[0] @ x[0].T / x.shape[-1], width)
    return one_token(
        inputs, width, heads=attention.heads, key=key, runs=runs, qk_std=attention.qk_std
    ).outputs


def _flat(name: str, found: Distance) -> dict[str, float]:
    return {name: found.value, f"{name}_sem": found.sem, f"{name}_floor": found.floor}


def _pm(value: float, sem: float) -> str:
    return f"{value:.2e} ± {sem:.0e}" if abs(value) < 0.01 else f"{value:.4f} ± {sem:.4f}"
