"""Quasi-random normals that do not depend on how many of them are asked for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray
from scipy.stats import qmc

SOBOL_DIMS = 256
"""Dimensions beyond this one are plain normals (see `benchmarks/draws.py` for the choice)."""

_BITS = 32


@functools.lru_cache(maxsize=32)
def _directions(levels: int) -> np.ndarray:
    """Sobol direction numbers (levels, SOBOL_DIMS): point i is the xor of row k over the bits k of i."""
    engine = qmc.Sobol(SOBOL_DIMS, scramble=False, bits=_BITS)
    rows = []
    for level in range(levels):
        # In Gray-code order the point 2^(k+1) - 1 is the k-th direction number alone.
        engine.fast_forward(2 ** (level + 1) - 1 - engine.num_generated)
        rows.append(engine.random(1)[0])
    return np.round(np.asarray(rows) * 2.0**_BITS).astype(np.uint32)


def _scrambled(key: PRNGKeyArray, index: Array, directions: Array, bits: Array) -> Array:
    """One dimension of Sobol points as integers: random lower-triangular matrix, then a random shift."""
    levels = directions.shape[0]
    words = jax.random.bits(key, (levels + 1,), jnp.uint32)
    place = jnp.arange(levels, dtype=jnp.uint32)
    leading = jnp.uint32(1 << (_BITS - 1)) >> place
    columns = leading | (words[:-1] & (leading - jnp.uint32(1)))
    digits = (directions[:, None] & leading[None, :]) != 0
    zero = jnp.uint32(0)
    xor = functools.partial(jax.lax.reduce, init_values=zero, computation=jax.lax.bitwise_xor)
    scrambled = xor(jnp.where(digits, columns[None, :], zero), dimensions=(1,))
    points = xor(jnp.where(bits, scrambled[None, :], zero), dimensions=(1,))
    del index
    return points ^ words[-1]


def _to_normal(points: Array, dtype: jnp.dtype) -> Array:
    """Quantile of (points + 1/2) / 2^32, by symmetry always from the accurate lower tail."""
    upper = (points >> jnp.uint32(_BITS - 1)) != 0
    folded = jnp.where(upper, ~points, points)
    lower = (folded.astype(dtype) + jnp.asarray(0.5, dtype)) * jnp.asarray(2.0**-_BITS, dtype)
    quantile = jax.scipy.special.ndtri(lower)
    return jnp.where(upper, -quantile, quantile)


def normals(
    *, key: PRNGKeyArray, draws: int, dims: int, dtype: jnp.dtype = jnp.float32
) -> Float[Array, "draws dims"]:
    """Scrambled Sobol normals, prefix stable: `normals(d)[:, :d0] == normals(d0)` exactly.

        z_nj = Phi^{-1}( L_j C_j n + e_j ),    L_j, e_j random: every row is exactly N(0, I)

    Args:
      key: scrambles the points; equal keys give equal points. May be traced.
      draws: number of points, any n >= 1; a power of two balances them.
      dims: number of dimensions; those beyond `SOBOL_DIMS` are plain normals.
      dtype: float32 or float64.

    Returns:
      (draws, dims). Rows are not independent of each other: their mean is unbiased, and its
      standard error needs independent keys (see `replicates`).

    Reference: Matousek 1998, On the L2-discrepancy for anchored boxes (random linear scrambling).
    """
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}.")
    if dims < 0:
        raise ValueError(f"dims must not be negative, got {dims}.")
    keys = jax.vmap(lambda j: jax.random.fold_in(key, j))(jnp.arange(dims, dtype=jnp.uint32))
    sobol = min(dims, SOBOL_DIMS)
    levels = max(1, (draws - 1).bit_length())
    directions = jnp.asarray(_directions(levels)[:, :sobol])
    index = np.arange(draws, dtype=np.uint64)
    bits = jnp.asarray((index[:, None] >> np.arange(levels, dtype=np.uint64)) & np.uint64(1) != 0)
    points = jax.vmap(_scrambled, in_axes=(0, None, 1, None), out_axes=1)(
        keys[:sobol], index, directions, bits
    )
    plain = jax.vmap(lambda k: jax.random.normal(k, (draws,), dtype), out_axes=1)(keys[sobol:])
    return jnp.concatenate([_to_normal(points, dtype), plain], axis=1)
