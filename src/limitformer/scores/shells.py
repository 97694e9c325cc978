"""The order in which a sequence of normals fills a matrix of any size."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, PRNGKeyArray

from .orthogonal import normals


def shell_index(rows: int, cols: int) -> np.ndarray:
    """Position of entry (i, j) in the shell order, m^2 + m + i - j with m = max(i, j).

    A matrix filled in this order keeps its top-left block when it grows (Rosenberg-Strong order).
    """
    i, j = np.indices((rows, cols))
    m = np.maximum(i, j)
    return m * m + m + i - j


def square(
    z: Float[Array, "draws dims"], rows: int, cols: int, *, terms: int = 1
) -> Float[Array, "draws terms rows cols"]:
    """Matrices Z[d, t, i, j] = z[d, terms * shell_index(i, j) + t].

    Args:
      z: at least `terms * max(rows, cols)**2` prefix-stable dimensions.
      rows, cols: size of each matrix; entry (i, j) does not depend on it.
      terms: independent matrices per draw (2J for rotary positions with J frequencies).
    """
    needed = terms * max(rows, cols) ** 2
    if z.shape[1] < needed:
        raise ValueError(
            f"square(z, {rows}, {cols}, terms={terms}) needs {needed} dimensions, z has "
            f"{z.shape[1]}: draw z with normals(dims={needed})."
        )
    index = terms * shell_index(rows, cols)[None] + np.arange(terms)[:, None, None]
    return z[:, index]


def score_normals(
    *,
    key: PRNGKeyArray,
    draws: int,
    rows: int,
    cols: int,
    dtype: DTypeLike = jnp.float32,
    terms: int | None = None,
) -> Float[Array, "draws *terms rows cols"]:
    """Standard normal matrices Z, one per draw; entry (i, j) depends on key, draws, i, j only.

    Returns (draws, rows, cols), or (draws, terms, rows, cols) if `terms` is given.
    """
    count = 1 if terms is None else terms
    z = normals(key=key, draws=draws, dims=count * max(rows, cols) ** 2, dtype=dtype)
    Z = square(z, rows, cols, terms=count)
    return Z[:, 0] if terms is None else Z
