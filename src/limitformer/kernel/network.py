"""A network made ready for kernels: its needs, its start from inputs, its passes as functions.

Everything here is a pure function of arrays, so it can be compiled, traced or sent to a worker.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..layers.base import AnyLayer, leaves
from . import whole
from .inputs import Stream, padded
from .joint import JointRun
from .own_mask import filled
from .pairs import Joint, PairRun
from .passes import Ask, CrossRun, MarginalRun, Options
from .state import Cross, Facts, Form, Marginal, Need

_LOOKS: dict = {}
_REMEMBERED = 256


class Look(NamedTuple):
    """What is known of a network's output before any number is computed.

    Attributes:
        pairs: some layer's scores can only be drawn pair by pair.
        facts: the output's token grid, and whether it is a readout.
    """

    pairs: bool
    facts: Facts


class Network(eqx.Module):
    """A network with what the need pass found: everything a block's computation depends on."""

    net: AnyLayer
    need: Need = eqx.field(static=True)
    table: dict = eqx.field(static=True)
    ntk: bool = eqx.field(static=True)
    pull: bool = eqx.field(static=True, default=True)
    unroll: bool = eqx.field(static=True, default=False)

    def options(self, key, draws: int) -> Options:
        return Options(self.table, self.ntk, key, draws, self.pull, self.unroll)

    def look(self, streams, draws: int) -> Look:
        """What comes out, known from shapes alone; remembered, because it takes a trace."""
        leaves, structure = jax.tree.flatten((self.net, streams))
        shapes = tuple((jnp.shape(a), jnp.result_type(a)) for a in leaves)
        known = (structure, shapes, self.need, draws)
        if known not in _LOOKS:
            if len(_LOOKS) >= _REMEMBERED:
                _LOOKS.clear()
            _LOOKS[known] = self._look(streams, draws)
        return _LOOKS[known]

    def _look(self, streams, draws: int) -> Look:
        """Run the marginal pass without numbers: every static check, and what comes out."""
        notes: set[str] = set()
        found: list[Facts] = []

        def run(network: Network, streams, index):
            options = network.options(jax.random.key(0), draws)
            passing = MarginalRun(dataclasses.replace(options, notes=notes))
            state = passing(network.net, network.start(streams, index), "net")
            found.append(_single(state).facts)
            return passing.records

        eqx.filter_eval_shape(run, self, streams, jnp.arange(streams[0].n))
        return Look("pairs" in notes, found[0])

    def start(self, streams, index):
        """The states of some inputs before the first layer."""
        need = self.need.marginal
        return _one(tuple(_start(s, i, index, need) for i, s in enumerate(streams)))

    def marginal(self, streams, index, key, draws: int):
        """Records of some inputs, and whether each still has a valid token at the end."""
        run = MarginalRun(self.options(key, draws))
        state = run(self.net, self.start(streams, index), "net")
        return run.records, _single(state).unit

    def cross(self, sx, sy, rx, ry):
        """K and T of all pairs of two sets of inputs."""
        blocks = tuple(_start_cross(a, b, self.need.cross) for a, b in zip(sx, sy, strict=True))
        if whole.applies(self, sx, sy, rx, ry):
            return whole.cross(self, sx, sy, rx, ry)
        rx, ry = (filled(r, lambda own, s=s: own.of(s[0].mask)) for r, s in ((rx, sx), (ry, sy)))
        rx = jax.tree.map(lambda a: a[:, None], rx)
        ry = jax.tree.map(lambda a: a[None, :], ry)
        run = CrossRun(self.options(None, 0), rx, ry)
        return finish(run(self.net, _one(blocks), "net"), self.ntk)

    def own(self, streams, index, key, draws: int):
        """K and T of every input with itself, where records of the inputs are enough."""
        records, _ = self.marginal(streams, index, key, draws)
        blocks = tuple(_zipped(s, s, self.need.cross) for s in streams)
        run = CrossRun(self.options(None, 0), records, records, lead=1)
        return finish(run(self.net, _one(blocks), "net"), self.ntk)

    def joint(self, streams, key, draws: int, normals=None, first: int | None = None):
        """K and T of all pairs of some inputs, for one draw of the scores of finite heads.

        The normals of the scores come from the key, or from `normals(layer, shape, dtype)`, with
        repeats as plain loops so that every layer has a name. If `first` inputs are given with the
        same normals, then more inputs after them leave their kernels as they are.
        """
        index = jnp.arange(streams[0].n)
        states = tuple(
            Joint(_start(s, i, index, Form.FULL), None, _start_cross(s, s, Form.FULL))
            for i, s in enumerate(streams)
        )
        options = self.options(key, draws)
        if normals is not None:
            options = dataclasses.replace(options, normals=normals, first=first, unroll=True)
        state = JointRun(options)(self.net, _one(states), "net")
        if isinstance(state, tuple):
            return finish(tuple(s.k for s in state), self.ntk)
        values = finish(state.k, self.ntk)
        if state.x.facts.readout:
            values = tuple(None if v is None else v[..., 0, 0] for v in values)
        return values

    def pairs(self, sx, sy, ix, iy, key, draws: int, watch=None):
        """K and T of a list of pairs, each with its own marginals.

        Score draws from a factor of the joint kernel treat the two sides differently, so each pair
        is put in an order that its contents decide: the estimate of K(y, x) is that of K(x, y). The
        shorter side then comes back padded.
        """
        random = any(leaf.random_scores for _, leaf in leaves(self.net)) and watch is None
        swap: Any = None
        if random:
            longest = [max(a.tokens, b.tokens) for a, b in zip(sx, sy, strict=True)]
            sx, sy = (
                tuple(padded(s, size) for s, size in zip(side, longest, strict=True))
                for side in (sx, sy)
            )
            swap = _fingerprint(sx) > _fingerprint(sy)
            sx, sy = _exchanged(swap, sx, sy)
        states = []
        for i, (a, b) in enumerate(zip(sx, sy, strict=True)):
            x, y = (_start(s, i, index, self.need.marginal) for s, index in ((a, ix), (b, iy)))
            states.append(Joint(x, y, _zipped(a, b, self.need.cross)))
        run = PairRun(self.options(key, draws), watch=watch)
        state = run(self.net, _one(tuple(states)), "net")
        k = tuple(s.k for s in state) if isinstance(state, tuple) else state.k
        values = finish(k, self.ntk)
        if swap is None:
            return values
        turn = swap[:, None, None]
        return tuple(
            None if v is None else jnp.where(turn, jnp.swapaxes(v, 1, 2), v) for v in values
        )


def _fingerprint(streams):
    """A number per input that its valid values decide, whatever the padding."""
    total: Any = 0.0
    for i, s in enumerate(streams):
        values = (s.x + 1 if s.mask is None else (s.x + 1) * s.mask) if s.ids else s.x
        values = values.reshape(s.n, -1).astype(s.dtype)
        place = jnp.arange(1, values.shape[1] + 1, dtype=s.dtype)
        total = total + jnp.sum(values * jnp.sin((1.0 + i) * place), axis=1)
    return total


def _exchanged(swap, sx, sy):
    """The two sides of a list of pairs, exchanged where `swap`."""
    full = any(s.mask is not None for s in (*sx, *sy))
    if full:
        sx, sy = (
            tuple(
                s
                if s.mask is not None
                else dataclasses.replace(s, mask=jnp.ones((s.n, s.tokens), bool))
                for s in side
            )
            for side in (sx, sy)
        )
    sx, sy = (tuple(dataclasses.replace(s, order=None) for s in side) for side in (sx, sy))

    def pick(a, b):
        return jnp.where(swap.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, sy, sx), jax.tree.map(pick, sx, sy)


def needs_of(net: AnyLayer, all_of_it: bool = False) -> tuple[Need, dict]:
    """The need pass: what the input must give, and what each layer must."""
    ask = Ask(pull=not all_of_it)
    start = Need(Form.FULL, Form.FULL if all_of_it else Form.NONE)
    need = ask(net, start, "net")
    if all_of_it:
        full = Need(Form.FULL, Form.FULL)
        return full, dict.fromkeys(ask.table, full)
    return need, ask.table


def cast(net: Any, dtype) -> Any:
    """Hyper-parameters as arrays of the type that kernels are computed in."""

    def to(leaf):
        if isinstance(leaf, float):
            return jnp.asarray(leaf, dtype)
        if eqx.is_inexact_array(leaf):
            return leaf.astype(dtype)
        return leaf

    return jax.tree.map(to, net)


def _start(s: Stream, i: int, index, form: Form) -> Marginal:
    facts = Facts(s.grid, s.readout, sources=frozenset({(f"input {i}", ())}), ids=s.ids)
    if s.ids:
        unit = jnp.ones(s.n, s.dtype)
        return Marginal(facts, unit, mask=s.mask, raw=s.x, index=index)
    features = s.x.shape[-1]
    unit = jnp.ones(s.n, s.x.dtype)
    F = s.x / jnp.sqrt(jnp.asarray(features, s.x.dtype))
    K = None
    if form == Form.DIAG:
        K = jnp.sum(s.x * s.x, axis=-1) / features
    elif form == Form.FULL:
        K = jnp.matmul(F, jnp.swapaxes(F, -1, -2))
    m = jnp.mean(s.x, axis=-1)
    return Marginal(facts, unit, K, form == Form.DIAG, m, F, s.mask, s.x, index)


def _start_cross(a: Stream, b: Stream, form: Form) -> Cross:
    """K = x y^T / features of all pairs, `(n1, n2, S1, S2)` or their token diagonal."""
    diag = form == Form.DIAG
    if a.ids:
        shape = (a.n, b.n, a.tokens) if diag else (a.n, b.n, a.tokens, b.tokens)
        return Cross(jnp.zeros(shape, a.dtype), diag=diag)
    _check_features(a, b)
    equation = "iaf,jaf->ija" if diag else "iaf,jbf->ijab"
    return Cross(jnp.einsum(equation, a.x, b.x) / a.x.shape[-1], diag=diag)


def _zipped(a: Stream, b: Stream, form: Form) -> Cross:
    """K = x y^T / features of a list of pairs."""
    diag = form == Form.DIAG
    if a.ids:
        shape = (a.n, a.tokens) if diag else (a.n, a.tokens, b.tokens)
        return Cross(jnp.zeros(shape, a.dtype), diag=diag)
    _check_features(a, b)
    equation = "paf,paf->pa" if diag else "paf,pbf->pab"
    return Cross(jnp.einsum(equation, a.x, b.x) / a.x.shape[-1], diag=diag)


def _check_features(a: Stream, b: Stream) -> None:
    if a.x.shape[-1] != b.x.shape[-1]:
        raise ValueError(
            f"x has {a.x.shape[-1]} features and y has {b.x.shape[-1]}; both must have the same"
        )


def _single(state) -> Marginal:
    return state[0] if isinstance(state, tuple) else state


def _one(states: Any):
    return states if len(states) > 1 else states[0]


def finish(k, ntk: bool):
    """K and T of the output, which must be one stream."""
    if isinstance(k, tuple):
        raise ValueError(
            f"the network ends in {len(k)} streams; join them with lf.Sum() or lf.CrossAttention()"
        )
    return k.K, (k.with_zero_T().T if ntk else None)
