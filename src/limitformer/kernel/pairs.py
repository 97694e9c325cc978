"""The pass over a list of pairs, each with its own marginals: score draws deep in a network."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..layers.base import AnyLayer, Composite
from .loops import carries, is_cross, is_marginal, loop_ready, same_structure, with_origins
from .passes import CrossRun, MarginalRun, Run
from .state import Cross, Marginal


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
        x, y, k = split(state)
        cx = cy = ctx
        if layer.random_scores:
            fx, fy = layer.pair_features(x, y, k)
            cx = dataclasses.replace(ctx, features=fx)
            cy = dataclasses.replace(ctx, features=fy)
        x, rx = layer.marginal(x, cx)
        y, ry = layer.marginal(y, cy)
        k = layer.cross(k, rx, ry, ctx)
        reduce = lambda s, form: jax.tree.map(  # noqa: E731
            lambda b: b.reduced(form), s, is_leaf=lambda b: is_marginal(b) or is_cross(b)
        )
        state = join(
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

    def seen(self, path: str, state) -> None:
        if self.watch is not None:
            self.watch.add(path, self.depth or (), self.watch.look(state))

    def repeat(self, layer: AnyLayer, n: int, state, name: str):
        outer = self.depth or ()
        places: list = []  # of what one turn shows, which a scan stacks

        def once(state, index):
            watch = None if self.watch is None else self.watch.empty()
            inner = type(self)(self.options, self.path, (*outer, index), watch)
            state = inner(layer, state, name)
            if self.options.ntk:
                state = jax.tree.map(
                    lambda b: b.with_zero_T() if is_cross(b) else b,
                    state,
                    is_leaf=lambda b: is_cross(b) or is_marginal(b),
                )
            passed.append(carries(state, path))
            shown = []
            if watch is not None:
                places[:] = [(at, depth[len(outer) + 1 :]) for at, depth in watch.places]
                shown = watch.values
            return loop_ready(state, path), shown

        def show(index: int, shown) -> None:
            for (at, depth), values in zip(places, shown, strict=True):
                self.watch.add(at, (*outer, index, *depth), values)

        passed: list[bool] = []
        path, before = f"{self.path} before a turn", state
        state = loop_ready(state, path)
        done = 0
        while done < n:
            if not self.options.unroll and done < 2:
                after, _ = eqx.filter_eval_shape(once, state, 0)
                if same_structure(state, after):
                    break
            state, shown = once(state, done)
            show(done, shown)
            done += 1
        if done < n:
            state, stacked = jax.lax.scan(once, state, jnp.arange(done, n))
            for index in range(done, n) if stacked else ():
                show(index, jax.tree.map(lambda a, i=index - done: a[i], stacked))
        return with_origins(state, before, name) if all(passed) else state


def _note(run: MarginalRun, functional):
    run.records["functional"] = functional
    return functional


def split(state) -> tuple[Any, Any, Any]:
    """A Joint, or a tuple of them, as (x side, y side, block)."""
    if isinstance(state, tuple):
        x, y, k = zip(*((s.x, s.y, s.k) for s in state), strict=True)
        return x, y, k
    return state.x, state.y, state.k


def join(x, y, k):
    """The inverse of `split`."""
    if isinstance(k, tuple):
        return tuple(Joint(*parts) for parts in zip(x, y, k, strict=True))
    return Joint(x, y, k)
