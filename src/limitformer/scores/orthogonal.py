"""Standard normals in orthogonal antithetic sets: means of cubic polynomials are almost exact."""

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, PRNGKeyArray

LARGEST = 256
"""Draws of one set; more draws are several independent sets, which bounds the cost of a block."""

_TOGETHER = 4


def _haar(g: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Gram-Schmidt, columns from left to right: Haar distributed if g is Gaussian.

    A scan of sums rather than a library QR, so that a block is computed alike in every batch.
    """
    m = g.shape[0]

    def column(Q: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
        v, j = step
        for _ in range(2):  # the second pass removes the rounding of the first
            v = v - jnp.sum(Q * jnp.sum(Q * v[:, None], axis=0), axis=1)
        return Q.at[:, j].set(v / jnp.sqrt(jnp.sum(v * v))), None

    return jax.lax.scan(column, jnp.zeros_like(g), (g.T, jnp.arange(m)))[0]


def _block(key: PRNGKeyArray, m: int, dtype: DTypeLike) -> Float[Array, "draws m"]:
    """2m normals of m dimensions: +- r_i q_i in random order, q_i the rows of a Haar matrix.

    r_i is the length of a Gaussian column: chi_m, and independent of the directions q.
    """
    directions, order = jax.random.split(key)
    g = jax.random.normal(directions, (m, m), dtype)
    z = jnp.sqrt(jnp.sum(g * g, axis=0))[:, None] * _haar(g)
    return jax.random.permutation(order, jnp.concatenate([z, -z]))


@functools.partial(jax.jit, static_argnames=("m", "groups", "dtype"))
def _blocks(key: PRNGKeyArray, m: int, groups: int, dtype: DTypeLike) -> Float[Array, "draws dims"]:
    """Independent blocks side by side.

    They are made `_TOGETHER` at a time, always as many, so that a block has the same rounding
    whatever the number of dimensions.
    """
    keys = _keys(key, groups * _TOGETHER)
    keys = keys.reshape(groups, _TOGETHER, *keys.shape[1:])  # raw keys have a second axis
    z = jax.lax.map(jax.vmap(lambda k: _block(k, m, dtype)), keys)
    return jnp.moveaxis(z, 2, 0).reshape(2 * m, -1)


def _set(key: PRNGKeyArray, size: int, dims: int, dtype: DTypeLike) -> Float[Array, "draws dims"]:
    """One set of draws; dimensions beyond size / 2 are further, independent blocks."""
    m = size // 2
    return _blocks(key, m, -(-dims // (m * _TOGETHER)), dtype)[:, :dims]


def _plain(key: PRNGKeyArray, dims: int, dtype: DTypeLike) -> Float[Array, "1 dims"]:
    return jax.vmap(lambda k: jax.random.normal(k, (1,), dtype), out_axes=1)(_keys(key, dims))


def _keys(key: PRNGKeyArray, count: int) -> Array:
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(count, dtype=jnp.uint32))


def normals(
    *, key: PRNGKeyArray, draws: int, dims: int, dtype: DTypeLike = jnp.float32
) -> Float[Array, "draws dims"]:
    """Normals in orthogonal antithetic sets, prefix stable: `normals(d)[:, :d0] == normals(d0)`.

        z = +- r_i q_i,    q_i rows of a Haar matrix, r_i ~ chi independent

    Every row is exactly N(0, I), so means over draws are unbiased. Within a block of
    min(draws, LARGEST) / 2 dimensions odd polynomials cancel and sum_n z_nj z_nk is 0 to
    O(1/draws), hence a mean of cubic polynomials is almost exact whatever the basis.

    Args:
      key: equal keys give equal draws. May be traced.
      draws: number of draws, any n >= 1; an odd one out is a plain normal.
      dims: number of dimensions.
      dtype: float32 or float64.

    Returns:
      (draws, dims). Rows are not independent of each other: the standard error of a mean needs
      independent keys (see `replicates`).

    Reference: Genz and Monahan 1998, Stochastic integration rules for infinite regions.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}: use at least 1.")
    if dims < 1:
        raise ValueError(f"dims={dims}: use at least 1.")
    full, rest = divmod(draws, LARGEST)
    sizes = [LARGEST] * full + [rest - rest % 2] * (rest > 1)
    parts = [_set(jax.random.fold_in(key, i), size, dims, dtype) for i, size in enumerate(sizes)]
    if draws % 2:
        parts.append(_plain(jax.random.fold_in(key, len(sizes)), dims, dtype))
    return jnp.concatenate(parts)
