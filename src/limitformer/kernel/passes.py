"""The passes over a network: need (backwards, static), marginal (each input), cross (each block).

Each pass is an object that a composite layer calls for its children, `run(child, state, name)`, so
that a composite is written once and serves every pass.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..layers.base import AnyLayer, Composite, Context, Leaf
from .functional import contract
from .loops import (
    carries,
    is_cross,
    is_marginal,
    loop_ready,
    same_structure,
    state_lead,
    with_origins,
)
from .state import Cross, Form, Marginal, Need, add, scaled


@dataclasses.dataclass
class Ask:
    """The need pass: what each layer must give, from what the output must be."""

    pull: bool = True
    table: dict[str, Need] = dataclasses.field(default_factory=dict)
    path: str = ""

    def __call__(self, layer: AnyLayer, out: Need, name: str) -> Need:
        outer, self.path = self.path, f"{self.path}/{name}"
        before = self.table.get(self.path)
        out = out if before is None else out | before
        self.table[self.path] = out
        need = layer.needs(out, self) if isinstance(layer, Composite) else layer.needs(out)
        self.path = outer
        return need


@dataclasses.dataclass
class Options:
    """What a pass needs to know beside the network: T or not, and the randomness of scores."""

    table: dict[str, Need]
    ntk: bool = False
    key: jax.Array | None = None
    draws: int = 0
    pull: bool = True
    unroll: bool = False  # run repeats as a plain loop, so that every layer can be looked at
    notes: set[str] | None = None  # a pass without numbers, in which layers leave notes
    normals: Any = None  # of the scores of finite heads, by (name of the layer, shape, type)
    first: int | None = None  # inputs that decide which features scores come from; None: all


class Run:
    """What all passes share: the path, each layer's context, and repeats."""

    def __init__(self, options: Options, path: str = "", depth=None, watch=None):
        self.options = options
        self.path = path
        self.depth = depth
        self.watch = watch  # called with (name, state) after every leaf

    @property
    def pull(self) -> bool:
        return self.options.pull

    def context(self, path: str) -> Context:
        options = self.options
        key = options.key
        if key is not None:
            key = jax.random.fold_in(key, zlib.crc32(path.encode()))
            for index in self.depth or ():
                key = jax.random.fold_in(key, index)
        return Context(
            path, options.table[path], options.ntk, key, options.draws, notes=options.notes
        )

    def __call__(self, layer: AnyLayer, state, name: str):
        raise NotImplementedError

    def sequence(self, steps, state):
        """Layers one after the other."""
        for name, layer in steps:
            state = self(layer, state, name)
        return state

    def inner(self, name: str, index=None):
        depth = self.depth if index is None else (*(self.depth or ()), index)
        return type(self)(self.options, f"{self.path}/{name}", depth, self.watch)

    def seen(self, path: str, state) -> None:
        if self.watch is not None:
            self.watch(turn_name(path, self.depth), state)


class MarginalRun(Run):
    """Each input's own kernel through the layers, keeping `records` for the cross pass."""

    def __init__(self, options, path="", depth=None, watch=None):
        super().__init__(options, path, depth, watch)
        self.records: dict = {}

    def __call__(self, layer: AnyLayer, state, name: str):
        path = f"{self.path}/{name}"
        if isinstance(layer, Leaf):
            ctx = self.context(path)
            state, self.records[name] = layer.marginal(state, ctx)
            state = jax.tree.map(lambda s: s.reduced(ctx.need.marginal), state, is_leaf=is_marginal)
            self.seen(path, state)
            return state
        inner = self.inner(name)
        state = layer.flow(state, inner)
        self.records[name] = inner.records
        return state

    def combine(self, states: tuple[Marginal, ...], weights):
        states, weights = merge_equal(states, weights)
        check_independent(states, self.path)
        form = min(state.form for state in states)
        states = tuple(state.reduced(form) for state in states)
        means = tuple(scaled(w, s.m) for w, s in zip(weights, states, strict=True))
        self.records["combine"] = means
        K = None
        if form:
            K = add(*(w * w * s.K for w, s in zip(weights, states, strict=True)))
            for i, mi in enumerate(means):
                for mj in means[:i]:
                    if mi is not None and mj is not None:
                        K = K + (
                            2 * mi * mj
                            if form == Form.DIAG
                            else mi[..., :, None] * mj[..., None, :]
                            + mj[..., :, None] * mi[..., None, :]
                        )
        F = None
        if sum(m is not None for m in means) < 2 and all(s.F is not None for s in states):
            F = jnp.concatenate([w * s.F for w, s in zip(weights, states, strict=True)], axis=-1)
        facts = dataclasses.replace(
            states[0].facts,
            gaussian=all(s.facts.gaussian for s in states),
            sources=frozenset().union(*(s.facts.sources for s in states)),
        )
        unit, mask, index = states[0].unit, states[0].mask, states[0].index
        return Marginal(facts, unit, K, form == Form.DIAG, add(*means), F, mask, index=index)

    def pooled(self, step, state: Marginal):
        inner = self.inner("chain")
        inner.path = self.path
        after = state
        for name, layer in step.chain:
            after = inner(layer, after, name)
        functional = step.functional(after, inner.records)
        self.records["functional"] = functional
        out = self.options.table[self.path].marginal
        return step.readout.pooled(after, functional, state.K, out)

    def repeat(self, layer: AnyLayer, n: int, state, name: str):
        first: list = []

        def once(state, index):
            inner = self.inner(f"{name}")
            inner.depth = (*(self.depth or ()), index)
            inner.path = self.path
            state = inner(layer, state, name)
            passed.append(carries(state, path))
            return loop_ready(state, path), inner.records

        passed: list[bool] = []
        path, before = f"{self.path} before a turn", state
        state = loop_ready(state, path)
        done = 0
        while done < n:
            if not self.options.unroll and done < 2:
                after, _ = eqx.filter_eval_shape(once, state, 0)
                if same_structure(state, after):
                    break
            state, records = once(state, done)
            first.append(records)
            done += 1
        rest = None
        if done < n:
            state, rest = jax.lax.scan(once, state, jnp.arange(done, n))
            rest = jax.tree.map(lambda a: jnp.moveaxis(a, 0, state_lead(state)), rest)
        self.records[name] = {"first": first, "rest": rest}
        return with_origins(state, before, name) if all(passed) else state


class CrossRun(Run):
    """A block of pairs through the layers, from the records of its two sides.

    Records have leading axes that broadcast to the block's: `(n1, 1)` against `(1, n2)` for all
    pairs of two sets, or `(p,)` against `(p,)` for a list of pairs.

    Attributes:
        reader: of `fused`: what comes after this run, if it can read a kernel that is not written.
        was_read: whether the run has ended with it.
    """

    def __init__(self, options, rx, ry, lead: int = 2, path="", depth=None, watch=None):
        super().__init__(options, path, depth, watch)
        self.rx, self.ry, self.lead = rx, ry, lead
        self.reader: Any = None
        self.was_read = False

    def inner(self, name: str, rx=None, ry=None, path=None, depth=None):
        return type(self)(
            self.options,
            self.rx[name] if rx is None else rx,
            self.ry[name] if ry is None else ry,
            self.lead,
            f"{self.path}/{name}" if path is None else path,
            self.depth if depth is None else depth,
            self.watch,
        )

    def both(self, name: str) -> tuple[Any, Any]:
        """A layer's records of the two sides."""
        return self.rx[name], self.ry[name]

    def __call__(self, layer: AnyLayer, k, name: str):
        if isinstance(layer, Composite):
            return layer.flow(k, self.inner(name))
        path = f"{self.path}/{name}"
        ctx = self.context(path)
        k = layer.cross(k, *self.both(name), ctx)
        k = jax.tree.map(lambda b: b.reduced(ctx.need.cross), k, is_leaf=is_cross)
        self.seen(path, k)
        return k

    def sequence(self, steps, state):
        """Layers one after the other; on a GPU some of them at once."""
        from . import fused

        if self.watch is not None or not fused.available():
            return super().sequence(steps, state)
        steps = list(steps)
        while steps:
            names, layers = zip(*steps[:2], strict=True)
            rx, ry = ([records[name] for name in names] for records in (self.rx, self.ry))
            if len(layers) == 2 and fused.applies(*layers, state, rx, ry, self.options.ntk):
                steps = steps[2:]
                reader = self._next_reader(steps)
                ntk = self.options.ntk
                state = fused.conv_activation(*layers, state, rx, ry, ntk, reader)
                was_read = reader is not None
            else:
                (name, layer), *steps = steps
                state, was_read = self.read_by(self._next_reader(steps), layer, state, name)
            if was_read and steps:
                steps = steps[1:]
            elif was_read:
                self.was_read = True
        return state

    def _next_reader(self, steps):
        """What can read the kernel before some steps; with no step left, what is after this run."""
        from . import fused

        if not steps:
            return self.reader
        name, layer = steps[0]
        form = self.options.table[f"{self.path}/{name}"].cross
        return fused.reader_of(layer, self.rx[name], self.ry[name], form)

    def read_by(self, reader, layer: AnyLayer, k, name: str) -> tuple[Any, bool]:
        """A layer, and whether the reader after it has been served in its last program."""
        from ..layers.combine import Repeat, Serial

        if reader is None or not isinstance(layer, Serial | Repeat):
            return self(layer, k, name), False
        inner = self.inner(name)
        inner.reader = reader
        return layer.flow(k, inner), inner.was_read

    def combine(self, blocks: tuple[Cross, ...], weights):
        blocks, weights = merge_equal(blocks, weights)
        return combined(blocks, weights, *self.both("combine"))

    def pooled(self, step, k: Cross):
        return contract(*self.both("functional"), k, self.options.ntk)

    def repeat(self, layer: AnyLayer, n: int, k, name: str):
        rx, ry = self.rx[name], self.ry[name]
        done = len(rx["first"])

        def turn(rx, ry, index):
            return self.inner(name, rx, ry, self.path, (*(self.depth or ()), index))

        def last(k, rx, ry):
            k, self.was_read = turn(rx, ry, n - 1).read_by(self.reader, layer, k, name)
            return k

        for index, (fx, fy) in enumerate(zip(rx["first"], ry["first"], strict=True)):
            k = last(k, fx, fy) if index == n - 1 else turn(fx, fy, index)(layer, k, name)
        if rx["rest"] is None:
            return k
        if self.options.ntk:
            k = jax.tree.map(lambda b: b.with_zero_T(), k, is_leaf=is_cross)

        def body(k, step):
            index, sx, sy = step
            return turn(sx, sy, index)(layer, k, name), None

        rest = jax.tree.map(lambda a: jnp.moveaxis(a, self.lead, 0), (rx["rest"], ry["rest"]))
        alone = self.reader is not None  # the last turn, which may be read
        turns = jnp.arange(done, n - alone)
        most = jax.tree.map(lambda a: a[: len(turns)], rest) if alone else rest
        if len(turns):
            # two at a time on a GPU: a program's output then goes where its input was, uncopied
            unroll = 2 if jax.default_backend() == "gpu" else 1
            k = jax.lax.scan(body, k, (turns, *most), unroll=unroll)[0]
        return last(k, *jax.tree.map(lambda a: a[-1], rest)) if alone else k


def combined(blocks: tuple[Cross, ...], weights, mx, my) -> Cross:
    """The block of a weighted sum of independent branches with means `mx`, `my`."""
    diag = any(b.diag for b in blocks)
    blocks = tuple(b.reduced(Form.DIAG) if diag else b for b in blocks)
    squares = [w * w for w in weights]
    K = add(*(s * b.K for s, b in zip(squares, blocks, strict=True)))
    for i in range(len(blocks)):
        for j in range(len(blocks)):
            if i != j and mx[i] is not None and my[j] is not None:
                K = K + blocks[0].outer(mx[i], my[j])
    T = add(*(scaled(s, b.T) for s, b in zip(squares, blocks, strict=True)))
    return Cross(K, T, diag)


def turn_name(path: str, depth) -> str:
    """A layer's name with the turn of every repeat it is in: 1.Repeat[3]/0.Dense."""
    for index in depth or ():
        path = path.replace("/loop", f"[{index}]", 1)
    return path.removeprefix("/net/").lstrip("/")


def merge_equal(states, weights):
    """Several times the same stream is one stream with the weights added: h + h = 2h."""
    merged, total = [], []
    for state, weight in zip(states, weights, strict=True):
        for i, other in enumerate(merged):
            if other is state:
                total[i] = total[i] + weight
                break
        else:
            merged.append(state)
            total.append(weight)
    return tuple(merged), tuple(total)


def check_independent(states: tuple[Marginal, ...], path: str) -> None:
    """Branches of a sum must not share an origin (theory, section 1)."""
    grids = {(s.facts.grid, s.facts.readout) for s in states}
    if len(grids) > 1:
        raise ValueError(
            f"the branches summed at {path or '/'} have different token shapes "
            f"{sorted(s.facts.grid for s in states)}; pool or stride them alike"
        )
    seen: dict[str, tuple[str, ...]] = {}
    for state in states:
        for origin, operations in state.facts.sources:
            if origin in seen:
                through = [" then ".join(o) or "nothing" for o in (seen[origin], operations)]
                raise ValueError(
                    f"the branches summed at {path or '/'} are not independent: both carry the "
                    f"channels of {origin.lstrip('/')} (one through {through[0]}, the other "
                    f"through {through[1]}) without weights of their own, so the sum has no "
                    "kernel of this form; put a Dense layer in one of the branches"
                )
        seen.update(state.facts.sources)
