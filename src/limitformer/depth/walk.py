"""A network looked at after every layer and after every turn of its repeats.

The layers of a (nested) `Serial` and the turns of a `Repeat` are the steps in depth; anything else
is one step. Repeats stay scanned, so that compilation does not grow with depth.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..kernel.inputs import Stream, streams_of
from ..kernel.joint import JointRun
from ..kernel.loops import (
    carries,
    is_cross,
    is_marginal,
    loop_ready,
    same_structure,
    with_origins,
)
from ..kernel.network import Network, _one, _start, _start_cross
from ..kernel.pairs import Joint
from ..kernel.passes import turn_name
from ..kernel.state import Form
from ..layers.combine import Repeat, Serial
from ..twin.network import Twin, TwinRun, _activations

Steps = list[tuple[str, Any]]  # a name, and what was seen there


def kernel_steps(network: Network, streams: tuple[Stream, ...], key, draws: int) -> Steps:
    """K(x, x), T(x, x) and mask of one input after every step: `[(name, (K, T, mask))]`.

    Scores of finitely many heads are drawn with the key, those of infinitely many averaged over
    `draws` draws.
    """
    index = jnp.arange(1)
    states = tuple(
        Joint(_start(s, i, index, Form.FULL), None, _start_cross(s, s, Form.FULL))
        for i, s in enumerate(streams)
    )
    steps: Steps = []

    def see(state) -> Any:
        if isinstance(state, tuple) or state.x.facts.readout or state.x.facts.ids:
            return None
        k = state.k.with_zero_T() if network.ntk else state.k
        mask = state.x.mask
        return k.K[0, 0], (k.T[0, 0] if network.ntk else None), None if mask is None else mask[0]

    run = JointRun(network.options(key, draws))
    steps.append(("input", see(_one(states))))
    _walk(run, network.net, _one(states), "net", see, steps, _kernel_turns)
    return [(name, seen) for name, seen in steps if seen is not None]


def twin_steps(twin: Twin, x, mask=None) -> Steps:
    """Channels `(n, S, C)` and mask of a finite network after every step: `[(name, (X, mask))]`."""
    streams = streams_of(twin.net, x, mask, "x", dtype=twin.sizes.dtype, checked=False)
    acts: Any = _one(tuple(_activations(s) for s in streams))
    steps: Steps = []

    def see(acts) -> Any:
        ids = not isinstance(acts, tuple) and not jnp.issubdtype(acts.h.dtype, jnp.floating)
        return None if isinstance(acts, tuple) or acts.readout or ids else (acts.h, acts.mask)

    steps.append(("input", see(acts)))
    run = TwinRun(twin.sizes, None, twin.params)
    _walk(run, twin.net, acts, "net", see, steps, _twin_turns)
    return [(name, seen) for name, seen in steps if seen is not None]


def _walk(run: Any, layer: Any, state, name: str, see, steps: Steps, turns):
    if isinstance(layer, Serial):
        inner = run.inner(name)
        for child_name, child in layer.children().items():
            state = _walk(inner, child, state, child_name, see, steps, turns)
        return state
    if isinstance(layer, Repeat):
        return turns(run.inner(name), layer, state, see, steps)
    state = run(layer, state, name)
    steps.append((turn_name(f"{run.path}/{name}", ()), see(state)))
    return state


def _turn(path: str, index: int) -> str:
    return turn_name(f"{path}/loop", (index,))


def _append(path: str, first: int, n: int, seen, steps: Steps) -> None:
    """The turns of a scan, whose results are stacked."""
    for i in range(first, n):
        steps.append((_turn(path, i), jax.tree.map(lambda a, i=i: a[i - first], seen)))


def _kernel_turns(run: JointRun, repeat: Repeat, state, see, steps: Steps):
    """The turns of a repeat, scanned from where the state keeps its form."""
    path, before, n = f"{run.path} before a turn", state, repeat.n
    passed: list[bool] = []

    def once(state, index):
        body: Any = repeat.layer
        state = JointRun(run.options, run.path, (index,))(body, state, "loop")
        if run.options.ntk:
            state = jax.tree.map(
                lambda b: b.with_zero_T() if is_cross(b) else b,
                state,
                is_leaf=lambda b: is_cross(b) or is_marginal(b),
            )
        passed.append(carries(state, path))
        return loop_ready(state, path), see(state)

    state, done = loop_ready(state, path), 0
    while done < n:
        after = eqx.filter_eval_shape(once, state, 0)[0]
        if done >= 2 or same_structure(state, after):
            break
        state, seen = once(state, done)
        steps.append((_turn(run.path, done), seen))
        done += 1
    if done < n:
        state, seen = jax.lax.scan(once, state, jnp.arange(done, n))
        _append(run.path, done, n, seen, steps)
    return with_origins(state, before, "loop") if all(passed) else state


def _twin_turns(run: TwinRun, repeat: Repeat, acts, see, steps: Steps):
    params, n = run.params["loop"], repeat.n
    for index, given in enumerate(params["first"]):
        acts, _ = run._once(repeat.layer, acts, "loop", given, index)
        steps.append((_turn(run.path, index), see(acts)))
    if params["rest"] is None:
        return acts
    done = len(params["first"])

    def body(acts, step):
        index, given = step
        acts, _ = run._once(repeat.layer, acts, "loop", given, index)
        return acts, see(acts)

    acts, seen = jax.lax.scan(body, acts, (jnp.arange(done, n), params["rest"]))
    _append(run.path, done, n, seen, steps)
    return acts
