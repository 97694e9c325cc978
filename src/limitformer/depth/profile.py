"""Collapse metrics layer by layer: from kernels, from finitely many heads, from finite networks."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..kernel.gram import DRAWS
from ..kernel.inputs import as_arrays, float_type, streams_of
from ..kernel.memory import memory_budget
from ..kernel.network import Network, cast, needs_of
from ..layers.attention import inf
from ..layers.base import Layer, leaves
from ..scores.replicates import REPLICATES, draws_each, replicate_keys
from ..twin.network import last_weights
from .curves import METRICS, TANGENT_METRICS, Curves
from .metrics import resolution
from .walk import kernel_steps, twin_steps

_SHOWN = ("residual", "cosine", "effective_rank", "variance")


@dataclasses.dataclass(frozen=True, eq=False)
class DepthProfile:
    """Collapse metrics after every layer of a network; made by `lf.depth_profile`.

    Attributes:
        layers: names of the steps in depth, "input" first (as in `net.trace`).
        kernel: curves of the network of infinitely many heads.
        heads: curves of draws of finitely many heads, after `with_heads`; else None.
        twin: curves of finite networks, after `with_twins`; else None.
    """

    layers: tuple[str, ...]
    kernel: Curves
    heads: Curves | None
    twin: Curves | None
    net: Layer = dataclasses.field(repr=False)
    x: Any = dataclasses.field(repr=False)
    x_mask: Any = dataclasses.field(repr=False)
    dtype: Any = dataclasses.field(repr=False)

    def __getitem__(self, metric: str) -> np.ndarray:
        """`(layers,)` the metric of the kernels, averaged over inputs."""
        return self.kernel.mean(metric)

    @property
    def sources(self) -> tuple[Curves, ...]:
        """What was computed: kernels, and finite heads and twins if asked for."""
        return tuple(c for c in (self.kernel, self.heads, self.twin) if c is not None)

    def with_heads(self, heads: int | None = None, *, key, draws: int = 200) -> DepthProfile:
        """The same profile with bands over draws of finitely many heads (theory 3).

        Args:
            heads: of every attention layer; None: the network's own.
            key: randomness of the scores.
            draws: of the scores of the whole network. Inputs are drawn apart from each other.
        """
        net: Layer = self.net if heads is None else self.net.with_heads(heads)
        finite = {leaf.heads for _, leaf in leaves(net) if getattr(leaf, "heads", inf) != inf}  # type: ignore[attr-defined]
        if not finite:
            raise ValueError("the network has infinitely many heads; say how many: with_heads(4)")
        label = f"{', '.join(str(h) for h in sorted(finite))} heads, {draws} draws"
        keys = jax.random.split(key, draws)
        curves = _kernel_curves(
            "heads", label, net, self.x, self.x_mask, keys, REPLICATES * 16, False, self.dtype
        )
        return dataclasses.replace(self, heads=curves)

    def with_twins(
        self,
        count: int = 8,
        *,
        key,
        width: int = 512,
        heads: int = 8,
        head_width: int | None = None,
    ) -> DepthProfile:
        """The same profile with finite networks, `count` of them, in float64.

        Args:
            count, key: networks, and the randomness of their weights.
            width, heads, head_width: as in `net.twin`.
        """
        arrays = as_arrays(self.x, "x")
        with jax.enable_x64(True):
            dtype = np.dtype(float)
            net = cast(self.net, dtype)
            first = streams_of(net, self.x, self.x_mask, "x", dtype=dtype)[0]
            given: dict = {"width": width, "heads": heads, "head_width": head_width}
            given |= {"dtype": dtype, "tokens": first.grid}
            if first.ids:
                given["vocabulary"] = int(np.max(arrays[0])) + 1
            else:
                sizes: Any = tuple(a.shape[-1] for a in arrays)
                given["features"] = sizes if len(sizes) > 1 else sizes[0]
            if last_weights(net, "/net"):
                given["outputs"] = width
            found: list[dict] = []
            for one in jax.random.split(key, count):
                steps = _twin_run(net.twin(key=one, **given), self.x, self.x_mask)
                found.append({n: _metrics_of(n, x=X, mask=m) for n, (X, m) in steps.items()})
        label = f"{count} twins of width {width}, {heads} heads"
        values = {m: _stack([[s[n][m] for n in s] for s in found]) for m in METRICS}
        return dataclasses.replace(self, twin=Curves("twin", label, self.layers, values, True))

    def verdict(self, cosine: float = 0.99) -> str:
        """One or two sentences on where tokens collapse, if they do."""
        c, r = self["cosine"], self["residual"]
        L = len(self.layers) - 1
        high = np.flatnonzero(c >= cosine)
        if not high.size:
            text = f"Token cosine stays below {cosine:g} through all {L} layers (last: {c[-1]:.3g})"
        else:
            at = int(high[0])
            text = f"Token cosine reaches {cosine:g} at layer {at} of {L} ({self.layers[at]})"
        floor = resolution(kernel=np.empty((0, 0), self.dtype))
        lost = np.flatnonzero(r <= 4 * floor)
        end = f"; the relative residual goes from {r[0]:.3g} to {r[-1]:.3g}."
        if lost.size:
            end = f"; from layer {int(lost[0])} on nothing is left of the residual in this type."
        return text + end

    def __str__(self) -> str:
        shown = [m for m in (*_SHOWN, *TANGENT_METRICS) if m in self.kernel.values]
        wide = max(len(name) for name in self.layers)
        columns = [(s, m) for m in shown for s in self.sources if m in s.values]
        heads = [m if len(self.sources) == 1 else f"{m} ({s.name})" for s, m in columns]
        widths = [max(len(h), 12) for h in heads]
        names = " ".join(f"{h:>{w}}" for h, w in zip(heads, widths, strict=True))
        lines = [f"{'':>4} {'layer':<{wide}} {names}"]
        means = [s.mean(m) for s, m in columns]
        for i, name in enumerate(self.layers):
            row = " ".join(f"{v[i]:>{w}.4g}" for v, w in zip(means, widths, strict=True))
            lines.append(f"{i:>4} {name:<{wide}} {row}")
        return "\n".join(lines)


def depth_profile(
    net: Layer,
    x,
    x_mask=None,
    *,
    ntk: bool = False,
    key=None,
    draws: int = DRAWS,
    dtype=None,
) -> DepthProfile:
    """Collapse metrics of a network layer by layer, from its kernels.

    Steps in depth are the layers of a `Serial` and the turns of a `Repeat`, up to the readout. The
    kernels are those of infinitely many heads; `with_heads` and `with_twins` of the result put
    finite heads and finite networks beside them.

    Args:
        net: a network, or a part of one.
        x, x_mask: inputs as for `net.kernel`; metrics are of each input's own tokens.
        ntk: also metrics of the tangent kernel (`limitformer.depth.curves`).
        key, draws: score draws of softmax at scale "sqrt", in 8 replicates that give a standard
            error; fixed unless given.

    Raises:
        ValueError: an input with fewer than two valid tokens, or a kernel that overflows.

    Example:
        >>> import limitformer as lf
        >>> net = lf.Repeat(lf.Attention(scale="linear"), 3)
        >>> prof = lf.depth_profile(net, np.eye(4)[None])
        >>> prof["cosine"].round(3).tolist()
        [0.0, 0.983, 1.0, 1.0]
        >>> prof.verdict()
        'Token cosine reaches 0.99 at layer 2 of 3 (net[1]); from layer 3 on nothing is left of ...
    """
    dtype = float_type(as_arrays(x, "x"), dtype)
    limit = net.with_heads(inf)
    key = jax.random.key(0) if key is None else key
    estimated = any(leaf.random_scores for _, leaf in leaves(limit))
    keys = replicate_keys(key=key) if estimated else key[None]
    each = draws_each(draws) if estimated else draws
    label = "infinitely many heads"
    curves = _kernel_curves("kernel", label, limit, x, x_mask, keys, each, ntk, dtype)
    return DepthProfile(curves.layers, curves, None, None, net, x, x_mask, dtype)


def _kernel_curves(name, label, net, x, x_mask, keys, draws: int, ntk: bool, dtype) -> Curves:
    with jax.enable_x64(True):
        net = cast(net, dtype)
        streams = streams_of(net, x, x_mask, "x", dtype=dtype)
        network = Network(net, *needs_of(net, all_of_it=True), ntk, pull=False)
        n, S = streams[0].n, max(s.tokens for s in streams)
        random = [leaf for _, leaf in leaves(net) if leaf.random_scores]
        alive = max((draws if leaf.heads == inf else leaf.heads for leaf in random), default=1)  # type: ignore[attr-defined]
        each = np.dtype(dtype).itemsize * S * S * (32 + 4 * alive)
        batch = int(max(1, memory_budget(None) // 4 // each))
        size = max(1, min(len(keys), batch // n))  # networks at a time
        found: list[dict] = []
        for start in range(0, len(keys), size):
            part = keys[start : start + size]
            steps = _kernel_run(network, streams, part, draws, min(batch, size * n))
            found.append({s: _kernel_metrics(s, *values) for s, values in steps.items()})
    metrics = next(iter(found[0].values())).keys()
    values = {
        m: np.concatenate([np.stack([s[i][m] for i in s], axis=-1) for s in found]) for m in metrics
    }
    return Curves(name, label, tuple(found[0]), values, name == "heads" or len(keys) > 1)


@eqx.filter_jit
def _kernel_run(network: Network, streams, keys, draws: int, batch: int) -> OrderedDict:
    """Name -> (K, T, mask) of every key and input, `(keys, n, S, S)`."""
    n = streams[0].n

    def one(pair):
        key, i = pair
        own = tuple(s.take(i[None]) for s in streams)
        return OrderedDict(kernel_steps(network, own, key, draws))

    pairs = (jnp.repeat(keys, n), jnp.tile(jnp.arange(n), len(keys)))
    with jax.default_matmul_precision("highest"):
        flat = jax.lax.map(one, pairs, batch_size=batch)
    return jax.tree.map(lambda a: a.reshape(len(keys), n, *a.shape[1:]), flat)


@eqx.filter_jit
def _twin_run(twin, x, mask) -> OrderedDict:
    return OrderedDict(twin_steps(twin, x, mask))


def _kernel_metrics(name: str, K, T, mask) -> dict[str, np.ndarray]:
    found = _metrics_of(name, kernel=K, mask=mask)
    if T is None:
        return found
    T = np.asarray(T)
    valid = None if mask is None else np.asarray(mask)
    return found | {m: metric(np.asarray(K), T, valid) for m, metric in TANGENT_METRICS.items()}


def _metrics_of(name: str, x=None, kernel=None, mask=None) -> dict[str, np.ndarray]:
    given = {
        "x": None if x is None else np.asarray(x),
        "kernel": None if kernel is None else np.asarray(kernel),
        "mask": None if mask is None else np.asarray(mask),
    }
    try:
        return {m: np.asarray(metric(**given)) for m, metric in METRICS.items()}
    except ValueError as error:
        raise ValueError(f"after layer {name}: {error}") from None


def _stack(samples: list[list]) -> np.ndarray:
    """`(samples, inputs, layers)`."""
    return np.stack([np.stack(layers, axis=-1) for layers in samples])
