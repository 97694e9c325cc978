"""Finite twins against their limit: two widths, many networks, the value extrapolated in 1/width.

The kernels of a finite network differ from the limit by c/width + O(1/width^2), so twins at widths
W and 2W give 2 k_2W - k_W, whose error is the sampling error and a second-order rest. Heads and
head width double with the width, so that their corrections are of the same form.

One network gives one sample:

    K_ij = 1/O sum_o f_o(x_i) f_o(x_j),    T_ij = 1/O < J_i^T v, J_j^T v >,  v_o = +-1 at random,

the second without bias, since E[v_o v_q] = [o = q], at the cost of one gradient per input.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import limitformer as lf

LIMIT_DRAWS = 2**13
BATCH = 50
ENOUGH = 0.016  # of the entry: draw networks until all standard errors are below it
ROUNDS = 20
ROUNDING = 1e-5  # of float32, where nothing is left to chance


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The smaller of the two twins; the other one has twice as much of everything.

    `networks` of each are drawn at a time, until the standard error is small enough.
    """

    width: int = 32
    heads: int = 8
    head_width: int = 8
    outputs: int = 128
    networks: int = 1000

    def doubled(self) -> Sizes:
        """Twice the width, heads and head width."""
        sizes = {name: 2 * getattr(self, name) for name in ("width", "heads", "head_width")}
        return dataclasses.replace(self, **sizes)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Kernels of the twins over those of the limit, extrapolated in 1/width, entry by entry.

    Attributes:
        ratio: twins over limit; sem: its standard error, that of the limit included.
        narrow, wide: the ratios at the two widths.
    """

    ratio: np.ndarray
    sem: np.ndarray
    narrow: np.ndarray
    wide: np.ndarray

    @property
    def z(self) -> np.ndarray:
        return (self.ratio - 1) / self.sem


def random_keys(key, count: int):
    """Keys of the "rbg" kind, whose generator compiles in a fifth of the time."""
    bits = jax.random.bits(key, (4,), jnp.uint32)
    return jax.random.split(jax.random.wrap_key_data(bits, impl="rbg"), count)


def kernels_of(net, x, mask, sizes: Sizes, options: dict, key):
    """K and T of one network drawn with `key`."""
    weights, noise, dropped = jax.random.split(key, 3)
    twin = net.twin(
        key=weights,
        width=sizes.width,
        heads=sizes.heads,
        head_width=sizes.head_width,
        outputs=sizes.outputs,
        **options,
    )
    f, pull = jax.vjp(lambda params: twin.apply(params, x, mask, key=dropped), twin.params)
    n = f.shape[0]
    v = jax.random.rademacher(noise, f.shape[1:], f.dtype)
    rows = jnp.eye(n, dtype=f.dtype)[:, :, None] * v
    (gradients,) = jax.vmap(pull)(rows)
    T = sum(
        jnp.matmul(g.reshape(n, -1), g.reshape(n, -1).T, precision="highest")
        for g in jax.tree.leaves(gradients)
    )
    K = jnp.matmul(f, f.T, precision="highest")
    return K / f.shape[1], T / f.shape[1]


@functools.partial(jax.jit, static_argnums=(3, 4))
def sample(net, x, mask, sizes: Sizes, options: tuple, keys):
    """K and T of many networks, `(networks, n, n)` each."""
    one = functools.partial(kernels_of, net, x, mask, sizes, dict(options))
    return jax.lax.map(one, keys, batch_size=BATCH)


def compare(
    net: Callable[[int], lf.Layer],
    x,
    mask=None,
    *,
    key,
    sizes: Sizes | None = None,
    **options,
) -> dict[str, Comparison]:
    """Twins of `net(width)` at two widths against its limit; inputs are float32 or token ids.

    Args:
        net: the network for twins of a width (which the standard parametrisation must know).
        options: features=, vocabulary=, tokens= of the twins.
    """
    narrow = sizes or Sizes()
    twins = [(net(size.width), size) for size in (narrow, narrow.doubled())]
    limits = [limit_of(described, x, mask) for described, _ in twins]
    samples: list[list] = [[], []]
    found: dict[str, Comparison] = {}
    for turn in range(ROUNDS):
        for index, (described, size) in enumerate(twins):
            keys = random_keys(jax.random.fold_in(key, 2 * turn + index), size.networks)
            K, T = sample(described, x, mask, size, tuple(options.items()), keys)
            samples[index].append({"nngp": np.asarray(K, float), "ntk": np.asarray(T, float)})
        found = {kind: extrapolated(samples, limits, kind) for kind in ("nngp", "ntk")}
        if max(c.sem.max() for c in found.values()) < ENOUGH:
            break
    return found


def extrapolated(samples, limits, kind: str) -> Comparison:
    """2 k_2W - k_W over the limit, with its standard error."""
    ratios, errors = [], []
    for drawn, limit in zip(samples, limits, strict=True):
        value, _ = limit[kind]
        values = np.concatenate([part[kind] for part in drawn]) / value
        ratios.append(values.mean(0))
        errors.append(values.std(0, ddof=1) / np.sqrt(len(values)))
    value, error = limits[1][kind]
    sem = np.sqrt(errors[0] ** 2 + 4 * errors[1] ** 2 + (error / value) ** 2 + ROUNDING**2)
    return Comparison(2 * ratios[1] - ratios[0], sem, *ratios)


def limit_of(net, x, mask):
    """Kernels of the limit in float64 with standard errors (0 where exact), by kind."""
    wide = jax.tree.map(lambda a: a.astype(float) if a.dtype == np.float32 else a, x)
    k = net.kernel(wide, x_mask=mask, draws=LIMIT_DRAWS)
    return {
        kind: (np.asarray(value), 0.0 if error is None else np.asarray(error))
        for kind, value, error in (("nngp", k.nngp, k.nngp_sem), ("ntk", k.ntk, k.ntk_sem))
    }
