"""Layers in sequence, in parallel, summed and repeated."""

from __future__ import annotations

import math
from collections.abc import Mapping

import equinox as eqx

from ..kernel.functional import Functional
from ..kernel.state import Form, Need
from .base import Composite, Layer, State, hyper, leaves
from .pool import Pulled, Readout

_LARGEST_RANK = 8  # a functional of this rank still costs far less than the full kernel


def _layers(given) -> tuple[Layer, ...]:
    for layer in given:
        if not isinstance(layer, Layer):
            raise TypeError(
                f"expected layers such as lf.Dense(), got {layer!r}; "
                "wrap a function as lf.Activation(fn)"
            )
    return tuple(given)


def _name(index: int, layer: Layer) -> str:
    return f"{index}.{type(layer).__name__}"


class Serial(Composite):
    """Layers one after the other: `f = f_n o ... o f_1`.

    Pool readouts are run together with the linear layers before them (`layers.pool.Pulled`).
    """

    layers: tuple[Layer, ...]

    def __init__(self, *layers: Layer):
        self.layers = _layers(layers)

    def children(self) -> Mapping[str, Layer]:
        return {_name(i, layer): layer for i, layer in enumerate(self.layers)}

    def steps(self, pull: bool) -> list[tuple[str, Layer]]:
        """Children by name, with each readout and its linear run-up as one step if `pull`."""
        steps: list[tuple[str, Layer]] = []
        for name, layer in self.children().items():
            if pull and isinstance(layer, Readout):
                chain: list[tuple[str, Layer]] = []
                rank = 1
                while steps and 0 < (rank := rank * steps[-1][1].pull_rank) <= _LARGEST_RANK:
                    chain.insert(0, steps.pop())
                steps.append((f"{name}<", Pulled(tuple(chain), name, layer)))
            else:
                steps.append((name, layer))
        return steps

    @property
    def pull_rank(self) -> int:
        return math.prod(layer.pull_rank for layer in self.layers)

    def pull(self, functional: Functional, record) -> Functional:
        for name, layer in reversed(list(self.children().items())):
            functional = layer.pull(functional, record[name])
        return functional

    def flow(self, state: State, run) -> State:
        return run.sequence(self.steps(run.pull), state)

    def needs(self, out: Need, ask) -> Need:
        for name, layer in reversed(self.steps(ask.pull)):
            out = ask(layer, out, name)
        return out


class Residual(Composite):
    """`skip * h + branch * f(h)`, with `f` the layers in sequence.

    The branch must have weights of its own, so that the two are independent:
    K' = skip^2 K + branch^2 K_f + skip branch (m m_f^T + m_f m^T), T' = skip^2 T + branch^2 T_f.
    """

    body: Serial
    skip: float = eqx.field(converter=hyper)
    branch: float = eqx.field(converter=hyper)

    def __init__(self, *layers: Layer, skip=1.0, branch=1.0):
        self.body = Serial(*layers)
        self.skip = skip
        self.branch = branch

    def children(self) -> Mapping[str, Layer]:
        return {"branch": self.body}

    @property
    def pull_rank(self) -> int:
        weights = any(True for _ in leaves(self.body))  # h + h is merged, not a sum of two terms
        return 1 + self.body.pull_rank if weights and self.body.pull_rank else 0

    def pull(self, functional: Functional, record) -> Functional:
        through = self.body.pull(functional.linear(self.branch), record["branch"])
        return functional.linear(self.skip).joined(through).joined(functional.constant())

    def flow(self, state: State, run) -> State:
        return run.combine((state, run(self.body, state, "branch")), (self.skip, self.branch))

    def needs(self, out: Need, ask) -> Need:
        return out | ask(self.body, out, "branch")


class Parallel(Composite):
    """Several streams: layer i maps stream i, or every layer maps the one stream there is."""

    layers: tuple[Layer, ...]

    def __init__(self, *layers: Layer):
        if not layers:
            raise ValueError("Parallel needs at least one layer, for example lf.Serial() to pass")
        self.layers = _layers(layers)

    def children(self) -> Mapping[str, Layer]:
        return {_name(i, layer): layer for i, layer in enumerate(self.layers)}

    def flow(self, state: State, run) -> State:
        streams = state if isinstance(state, tuple) else (state,) * len(self.layers)
        if len(streams) != len(self.layers):
            raise ValueError(
                f"Parallel has {len(self.layers)} layers but is given {len(streams)} inputs; "
                "pass one input per layer, x=(x1, x2, ...)"
            )
        named = self.children().items()
        return tuple(run(layer, s, name) for s, (name, layer) in zip(streams, named, strict=True))

    def needs(self, out: Need, ask) -> Need:
        need = Need(Form.NONE, Form.NONE)
        for name, layer in self.children().items():
            need = need | ask(layer, out, name)
        return need


class Sum(Composite):
    """Weighted sum of independent branches, `sum_i weights_i f_i(h)`.

    Without layers it adds the streams that it is given (after `Parallel`, or several inputs).
    K' = sum w_i^2 K_i + sum_{i != j} w_i w_j m_i m_j^T, T' = sum w_i^2 T_i, m' = sum w_i m_i.
    Branches that are the same stream are merged first: h + h = 2h.
    """

    branches: Parallel | None
    weights: tuple | None

    def __init__(self, *layers: Layer, weights=None):
        self.branches = Parallel(*layers) if layers else None
        self.weights = None if weights is None else tuple(hyper(w) for w in weights)
        if layers and weights is not None and len(weights) != len(layers):
            raise ValueError(
                f"Sum has {len(layers)} branches but {len(weights)} weights; give one each"
            )

    def children(self) -> Mapping[str, Layer]:
        return {} if self.branches is None else {"branches": self.branches}

    def flow(self, state: State, run) -> State:
        if self.branches is not None:
            state = run(self.branches, state, "branches")
        if not isinstance(state, tuple):
            raise ValueError("Sum() without layers adds several streams, but there is only one")
        weights = self.weights or (1.0,) * len(state)
        if len(weights) != len(state):
            raise ValueError(f"Sum has {len(weights)} weights but is given {len(state)} streams")
        return run.combine(state, weights)

    def needs(self, out: Need, ask) -> Need:
        return out if self.branches is None else ask(self.branches, out, "branches")


class Repeat(Composite):
    """A layer applied `n` times, with the same hyper-parameters and fresh weights each time.

    Scanned, so that compilation does not grow with depth.
    """

    layer: Layer
    n: int = eqx.field(static=True)

    def __init__(self, layer: Layer, n: int):
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"Repeat needs a whole number of repetitions of at least 1, got {n!r}")
        (self.layer,) = _layers((layer,))
        self.n = n

    def children(self) -> Mapping[str, Layer]:
        return {"loop": self.layer}

    def flow(self, state: State, run) -> State:
        return run.repeat(self.layer, self.n, state, "loop")

    def needs(self, out: Need, ask) -> Need:
        while True:  # the loop's input is also its output: grow the need until it is a fixed point
            grown = out | ask(self.layer, out, "loop")
            if grown == out:
                return out
            out = grown
