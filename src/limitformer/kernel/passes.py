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
            state = jax.tree.map(
                lambda s: s.reduced(ctx.need.marginal), state, is_leaf=_is_marginal
            )
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
            passed.append(_carries(state, path))
            return _loop_ready(state, path), inner.records

        passed: list[bool] = []
        path, before = f"{self.path} before a turn", state
        state = _loop_ready(state, path)
        done = 0
        while done < n:
            if not self.options.unroll and done < 2:
                after, _ = eqx.filter_eval_shape(once, state, 0)
                if _same_structure(state, after):
                    break
            state, records = once(state, done)
            first.append(records)
            done += 1
        rest = None
        if done < n:
            state, rest = jax.lax.scan(once, state, jnp.arange(done, n))
            rest = jax.tree.map(lambda a: jnp.moveaxis(a, 0, state_lead(state)), rest)
        self.records[name] = {"first": first, "rest": rest}
        return _with_origins(state, before, name) if all(passed) else state


class CrossRun(Run):
    """A block of pairs through the layers, from the records of its two sides.

    Records have leading axes that broadcast to the block's: `(n1, 1)` against `(1, n2)` for all
    pairs of two sets, or `(p,)` against `(p,)` for a list of pairs.
    """

    def __init__(self, options, rx, ry, lead: int = 2, path="", depth=None, watch=None):
        super().__init__(options, path, depth, watch)
        self.rx, self.ry, self.lead = rx, ry, lead

    def inner(self, name: str, rx=None, ry=None, path=None, depth=None):
        return CrossRun(
            self.options,
            self.rx[name] if rx is None else rx,
            self.ry[name] if ry is None else ry,
            self.lead,
            f"{self.path}/{name}" if path is None else path,
            self.depth if depth is None else depth,
            self.watch,
        )

    def __call__(self, layer: AnyLayer, k, name: str):
        if isinstance(layer, Composite):
            return layer.flow(k, self.inner(name))
        path = f"{self.path}/{name}"
        ctx = self.context(path)
        k = layer.cross(k, self.rx[name], self.ry[name], ctx)
        k = jax.tree.map(lambda b: b.reduced(ctx.need.cross), k, is_leaf=_is_cross)
        self.seen(path, k)
        return k

    def combine(self, blocks: tuple[Cross, ...], weights):
        blocks, weights = merge_equal(blocks, weights)
        return combined(blocks, weights, self.rx["combine"], self.ry["combine"])

    def pooled(self, step, k: Cross):
        return contract(self.rx["functional"], self.ry["functional"], k, self.options.ntk)

    def repeat(self, layer: AnyLayer, n: int, k, name: str):
        rx, ry = self.rx[name], self.ry[name]
        depth = self.depth or ()

        def once(k, rx, ry, index):
            inner = self.inner(name, rx, ry, self.path, (*depth, index))
            return inner(layer, k, name)

        for index, (fx, fy) in enumerate(zip(rx["first"], ry["first"], strict=True)):
            k = once(k, fx, fy, index)
        if rx["rest"] is None:
            return k
        done = len(rx["first"])
        if self.options.ntk:
            k = jax.tree.map(lambda b: b.with_zero_T(), k, is_leaf=_is_cross)

        def body(k, step):
            index, sx, sy = step
            return once(k, sx, sy, index), None

        rest = jax.tree.map(lambda a: jnp.moveaxis(a, self.lead, 0), (rx["rest"], ry["rest"]))
        return jax.lax.scan(body, k, (jnp.arange(done, n), *rest))[0]


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


class Joint(eqx.Module):
    """A list of pairs that carry their own marginals: x's, y's, and the block between them."""

    x: Marginal
    y: Marginal | None
    k: Cross


class PairRun(Run):
    """A list of pairs through the layers, each with its own marginals.

    Score draws deep in a network come from a factor of each pair's joint token kernel (theory 2.2),
    so K(x,x), K(y,y) and K(x,y) must all come from the same draws. The estimate then depends on
    x, y and the key only, and the pair's joint kernel stays positive semidefinite.
    """

    def __call__(self, layer: AnyLayer, state, name: str):
        if isinstance(layer, Composite):
            return layer.flow(state, self.inner(name))
        path = f"{self.path}/{name}"
        ctx = self.context(path)
        x, y, k = _split(state)
        cx = cy = ctx
        if layer.random_scores:
            fx, fy = layer.pair_features(x, y, k)
            cx = dataclasses.replace(ctx, features=fx)
            cy = dataclasses.replace(ctx, features=fy)
        x, rx = layer.marginal(x, cx)
        y, ry = layer.marginal(y, cy)
        k = layer.cross(k, rx, ry, ctx)
        reduce = lambda s, form: jax.tree.map(  # noqa: E731
            lambda b: b.reduced(form), s, is_leaf=lambda b: _is_marginal(b) or _is_cross(b)
        )
        state = _join(
            reduce(x, ctx.need.marginal), reduce(y, ctx.need.marginal), reduce(k, ctx.need.cross)
        )
        self.seen(path, state)
        return state

    def _sides(self, act_marginal, act_cross, states):
        """Run a marginal step on both sides, then the cross step with their records."""
        runs = [MarginalRun(self.options, self.path, self.depth) for _ in range(2)]
        x = act_marginal(runs[0], *(s.x for s in states))
        y = act_marginal(runs[1], *(s.y for s in states))
        cross = CrossRun(self.options, runs[0].records, runs[1].records, 1, self.path, self.depth)
        return Joint(x, y, act_cross(cross, *(s.k for s in states)))

    def combine(self, states, weights):
        state = self._sides(
            lambda run, *s: run.combine(s, weights),
            lambda run, *s: run.combine(s, weights),
            states,
        )
        self.seen(self.path, state)
        return state

    def pooled(self, step, state):
        after = state
        for name, layer in step.chain:
            after = self(layer, after, name)
        return self._sides(
            lambda run, s: step.readout.pooled(
                s, _note(run, step.readout.of(s)), s.K, self.options.table[self.path].marginal
            ),
            lambda run, k: run.pooled(step, k),
            (after,),
        )

    def repeat(self, layer: AnyLayer, n: int, state, name: str):
        def once(state, index):
            inner = type(self)(self.options, self.path, (*(self.depth or ()), index), self.watch)
            state = inner(layer, state, name)
            if self.options.ntk:
                state = jax.tree.map(
                    lambda b: b.with_zero_T() if _is_cross(b) else b,
                    state,
                    is_leaf=lambda b: _is_cross(b) or _is_marginal(b),
                )
            passed.append(_carries(state, path))
            return _loop_ready(state, path), None

        passed: list[bool] = []
        path, before = f"{self.path} before a turn", state
        state = _loop_ready(state, path)
        done = 0
        while done < n:
            if not self.options.unroll and done < 2:
                after, _ = eqx.filter_eval_shape(once, state, 0)
                if _same_structure(state, after):
                    break
            state, _ = once(state, done)
            done += 1
        if done < n:
            state, _ = jax.lax.scan(once, state, jnp.arange(done, n))
        return _with_origins(state, before, name) if all(passed) else state


def turn_name(path: str, depth) -> str:
    """A layer's name with the turn of every repeat it is in: 1.Repeat[3]/0.Dense."""
    for index in depth or ():
        path = path.replace("/loop", f"[{index}]", 1)
    return path.removeprefix("/net/").lstrip("/")


def _note(run: MarginalRun, functional):
    run.records["functional"] = functional
    return functional


def _split(state) -> tuple[Any, Any, Any]:
    """A Joint, or a tuple of them, as (x side, y side, block)."""
    if isinstance(state, tuple):
        x, y, k = zip(*((s.x, s.y, s.k) for s in state), strict=True)
        return x, y, k
    return state.x, state.y, state.k


def _join(x, y, k):
    if isinstance(k, tuple):
        return tuple(Joint(*parts) for parts in zip(x, y, k, strict=True))
    return Joint(x, y, k)


def _is_marginal(node) -> bool:
    return isinstance(node, Marginal)


def _is_cross(node) -> bool:
    return isinstance(node, Cross)


def state_lead(state) -> int:
    """Number of leading input axes of a marginal state."""
    first = jax.tree.leaves(state, is_leaf=_is_marginal)[0]
    return first.unit.ndim


def _loop_ready(state, path: str):
    """The state without what cannot be carried around a loop: features and single origins."""

    def ready(node):
        if not _is_marginal(node):
            return node
        facts = dataclasses.replace(node.facts, sources=frozenset({(path, ())}))
        return dataclasses.replace(node, facts=facts, F=None)

    return jax.tree.map(ready, state, is_leaf=lambda n: _is_marginal(n) or _is_cross(n))


def _marginals(state) -> list[Marginal]:
    return [n for n in jax.tree.leaves(state, is_leaf=_is_marginal) if _is_marginal(n)]


def _carries(state, path: str) -> bool:
    """Whether a turn of the loop at `path` passes channels of its input on."""
    return any(origin == path for n in _marginals(state) for origin, _ in n.facts.sources)


def _with_origins(state, before, operation: str):
    """The state after a loop whose every turn passes channels on: they come from before it too."""
    old = frozenset().union(*(n.facts.passed(operation).sources for n in _marginals(before)))

    def extended(node):
        if not _is_marginal(node):
            return node
        facts = dataclasses.replace(node.facts, sources=node.facts.sources | old)
        return dataclasses.replace(node, facts=facts)

    return jax.tree.map(extended, state, is_leaf=lambda n: _is_marginal(n) or _is_cross(n))


def _same_structure(before, after) -> bool:
    shape = lambda a: (jnp.shape(a), jnp.result_type(a))  # noqa: E731
    same = jax.tree.structure(before) == jax.tree.structure(after)
    return same and jax.tree.map(shape, before) == jax.tree.map(shape, after)


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
