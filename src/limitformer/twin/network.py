"""The finite twin of a network: the same description, with finitely many channels and heads."""

from __future__ import annotations

import dataclasses
import zlib
from collections import OrderedDict
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..kernel.inputs import Stream, streams_of
from ..kernel.passes import turn_name
from ..layers.base import AnyLayer, Composite, Layer, Leaf
from ..layers.combine import Parallel, Repeat, Residual, Serial, Sum
from .activations import Activations


@dataclasses.dataclass(frozen=True)
class TwinContext:
    """What a layer of the twin is told: where it is, its sizes, and its key."""

    path: str
    channels: int
    width: int
    heads: int
    head_width: int
    vocabulary: int | None
    dtype: jnp.dtype
    key: Any


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a twin, the same for all its layers."""

    width: int
    heads: int
    head_width: int
    outputs: int
    last: frozenset[str]
    vocabulary: int | None
    dtype: jnp.dtype


class TwinRun:
    """A pass over the finite network: with `params` None it makes them, else it applies them."""

    pull = False

    def __init__(self, sizes: Sizes, key: Any, params=None, path="", depth=(), watch=None):
        self.sizes, self.key, self.path, self.depth = sizes, key, path, depth
        self.making = params is None
        self.params: dict = {} if params is None else params
        self.watch = watch

    def context(self, path: str) -> TwinContext:
        s, key = self.sizes, self.key
        if key is not None:
            key = jax.random.fold_in(key, zlib.crc32(path.encode()))
            for index in self.depth:
                key = jax.random.fold_in(key, index)
        channels = s.outputs if path in s.last else s.width
        return TwinContext(
            path, channels, s.width, s.heads, s.head_width, s.vocabulary, s.dtype, key
        )

    def sequence(self, steps, acts):
        for name, layer in steps:
            acts = self(layer, acts, name)
        return acts

    def inner(self, name: str) -> TwinRun:
        params = None if self.making else self.params[name]
        path = f"{self.path}/{name}"
        return TwinRun(self.sizes, self.key, params, path, self.depth, self.watch)

    def __call__(self, layer: AnyLayer, acts, name: str):
        if isinstance(layer, Composite):
            inner = self.inner(name)
            acts = layer.flow(acts, inner)
            if self.making:
                self.params[name] = inner.params
            return acts
        path = f"{self.path}/{name}"
        ctx = self.context(path)
        if self.making:
            self.params[name] = params = layer.init(ctx.key, acts, ctx)
            return eqx.filter_eval_shape(lambda p, a: layer.apply(p, a, ctx), params, acts)
        acts = layer.apply(self.params[name], acts, ctx)
        if self.watch is not None:
            self.watch(turn_name(path, self.depth), acts)
        return acts

    def combine(self, branches: tuple[Activations, ...], weights):
        channels = max(b.h.shape[-1] for b in branches)

        def total(branches):
            wide = [b.repeated(channels) for b in branches]
            h = sum(w * b.h for w, b in zip(weights, wide, strict=True))
            return dataclasses.replace(wide[0], h=h, raw=all(b.raw for b in branches))

        if self.making:
            return eqx.filter_eval_shape(total, branches)
        acts = total(branches)
        if self.watch is not None:
            self.watch(turn_name(self.path, self.depth), acts)
        return acts

    def pooled(self, step, acts):
        raise AssertionError("twins run readouts as plain layers")

    def _once(self, layer, acts, name, params, index):
        inner = TwinRun(self.sizes, self.key, params, self.path, (*self.depth, index), self.watch)
        return inner(layer, acts, name), inner.params

    def repeat(self, layer: Layer, n: int, acts, name: str):
        if not self.making:
            params = self.params[name]
            for index, given in enumerate(params["first"]):
                acts, _ = self._once(layer, acts, name, given, index)
            done = len(params["first"])
            if params["rest"] is None:
                return acts
            if self.watch is not None:
                for index in range(done, n):
                    given = jax.tree.map(lambda a, i=index: a[i - done], params["rest"])
                    acts, _ = self._once(layer, acts, name, given, index)
                return acts

            def body(acts, step):
                index, given = step
                return self._once(layer, acts, name, given, index)[0], None

            return jax.lax.scan(body, acts, (jnp.arange(done, n), params["rest"]))[0]
        first = []
        while len(first) < n:
            after, made = self._once(layer, acts, name, None, len(first))
            if jax.tree.structure(after) == jax.tree.structure(acts) and all(
                a.shape == b.shape
                for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(acts), strict=True)
            ):
                break
            first.append(made)
            acts = after
        rest = None
        if len(first) < n:
            make = lambda i: self._once(layer, acts, name, None, i)[1]  # noqa: E731
            rest = jax.vmap(make)(jnp.arange(len(first), n))
        self.params[name] = {"first": first, "rest": rest}
        return acts


class Twin(eqx.Module):
    """A finite network drawn from its prior.

    `twin(x)` gives `(n, outputs)` after a readout and `(n, tokens, outputs)` without one;
    `twin.apply(params, x)` is the same as a function of the parameters, for training, for the
    empirical kernels in `limitformer.empirical` and for linearisation.
    """

    net: Any
    params: dict
    sizes: Sizes = eqx.field(static=True)

    def __call__(self, x, mask=None, *, key=None):
        """Outputs of the network. `key` is needed by dropout."""
        return self.apply(self.params, x, mask, key=key)

    def apply(self, params, x, mask=None, *, key=None):
        """Outputs as a function of the parameters."""
        return _outputs(self._run(params, x, mask, key, None))

    def activations(self, x, mask=None, *, key=None) -> OrderedDict[str, jax.Array]:
        """Channels after every layer, by the layer's name."""
        seen: OrderedDict[str, jax.Array] = OrderedDict()
        self._run(self.params, x, mask, key, lambda name, acts: seen.update({name: _outputs(acts)}))
        return seen

    def _run(self, params, x, mask, key, watch):
        streams = streams_of(self.net, x, mask, "x", dtype=self.sizes.dtype, checked=False)
        acts: Any = tuple(_activations(s) for s in streams)
        run = TwinRun(self.sizes, key, params, watch=watch)
        return run(self.net, acts if len(acts) > 1 else acts[0], "net")


def _activations(s: Stream) -> Activations:
    h = s.x[..., None] if s.ids else s.x
    return Activations(h, s.mask, s.grid, s.readout)


def _outputs(acts):
    if isinstance(acts, tuple):
        return tuple(_outputs(a) for a in acts)
    return acts.h[:, 0] if acts.readout else acts.h


def last_weights(layer: Any, path: str) -> frozenset[str]:
    """Paths of the layers whose output channels are the network's outputs."""
    if isinstance(layer, Serial):
        children: Any = list(layer.children().items())
        for name, child in reversed(children):
            if isinstance(child, Composite):
                return last_weights(child, f"{path}/{name}")
            if child.makes_channels:
                return frozenset({f"{path}/{name}"})
            if not child.keeps_channels:
                return frozenset()
        return frozenset()
    if isinstance(layer, (Residual, Repeat)):
        return frozenset()
    if isinstance(layer, (Parallel, Sum)):
        found = [last_weights(child, f"{path}/{name}") for name, child in layer.children().items()]
        return frozenset().union(*found) if all(found) else frozenset()
    return frozenset({path}) if isinstance(layer, Leaf) and layer.makes_channels else frozenset()


def twin(
    net: Any,
    *,
    key,
    features=None,
    vocabulary=None,
    width: int = 512,
    heads: int = 8,
    head_width: int | None = None,
    outputs: int | None = None,
    tokens=None,
    dtype=jnp.float32,
) -> Twin:
    """A finite network with the weights of `net`'s prior (NTK parametrisation unless asked).

    Args:
        key: random key of the weights.
        features: input features (a tuple for several inputs), or
        vocabulary: number of token ids for networks that start with `Embed`.
        width: channels of every hidden layer.
        heads: replaces `lf.inf` in attention layers; `head_width` defaults to the width.
        outputs: channels of the last layer; 1 unless the network ends in a residual sum, which
            has `width` of them.
        tokens: longest sequence, or `(height, width)`; needed by position codes and by weights
            after `Flatten`.
        dtype: of weights and outputs; float64 needs JAX's 64-bit mode on.
    """
    for name, value in (("width", width), ("heads", heads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if (features is None) == (vocabulary is None):
        raise ValueError("give features= (channels of the input) or vocabulary= (token ids)")
    last = last_weights(net, "/net")
    if outputs is not None and not last:
        raise ValueError(
            f"outputs={outputs}, but the network ends in a sum whose channels are the width; end "
            "it in a Dense layer or leave outputs out"
        )
    sizes = Sizes(
        width, heads, head_width or width, outputs or 1, last, vocabulary, jnp.dtype(dtype)
    )
    grid = (tokens,) if isinstance(tokens, int) else (tokens or (1,))
    S = 1
    for side in grid:
        S *= side
    shape = jax.ShapeDtypeStruct

    def blank(count):
        array = shape((1, S, count or 1), jnp.int32 if count is None else sizes.dtype)
        return Activations(array, None, tuple(grid))

    if isinstance(features, tuple):
        acts = tuple(blank(f) for f in features)
    else:
        acts = blank(None if vocabulary is not None else features)
    run = TwinRun(sizes, key)
    run(net, acts, "net")
    return Twin(net, run.params, sizes)
