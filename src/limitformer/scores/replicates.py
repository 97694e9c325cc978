"""Independent replicates of an average over draws, and the standard error they give."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key, PRNGKeyArray

REPLICATES = 8
"""Default number of independent replicates, so 7 degrees of freedom.

Of 1024 draws each then has 128, the fewest whose orthogonal blocks hold the 8 x 8 normals of a pair
of inputs with 4 tokens; fewer and larger replicates gain little there (`benchmarks/draws.py`).
"""


def draws_each(draws: int, replicates: int = REPLICATES) -> int:
    """Draws of each replicate when `draws` in total are split evenly.

    Raises:
      ValueError: if there are fewer than two replicates, or they do not divide the draws.
    """
    if replicates < 2:
        raise ValueError(
            f"A standard error needs at least 2 replicates, got {replicates}: use replicates=2 or "
            "more."
        )
    if draws < replicates or draws % replicates:
        raise ValueError(
            f"{draws} draws do not split into {replicates} equal replicates: use "
            f"draws={max(1, -(-draws // replicates)) * replicates} or another number of replicates."
        )
    return draws // replicates


def replicate_keys(*, key: PRNGKeyArray, replicates: int = REPLICATES) -> Key[Array, " replicates"]:
    """One key per replicate; the first ones do not depend on how many there are."""
    return jax.vmap(lambda r: jax.random.fold_in(key, r))(jnp.arange(replicates, dtype=jnp.uint32))


def mean_and_error(
    values: Float[Array, "replicates *shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Mean over replicates and its standard error: (mean - truth)/error is Student t, R - 1 df.

    mean = 1/R sum_r v_r,    error^2 = 1/(R (R-1)) sum_r (v_r - mean)^2
    """
    R = values.shape[0]
    if R < 2:
        raise ValueError(f"A standard error needs at least 2 replicates, got {R}.")
    mean = jnp.mean(values, axis=0)
    variance = jnp.sum(jnp.square(values - mean), axis=0) / jnp.asarray(R - 1, values.dtype)
    return mean, jnp.sqrt(variance / jnp.asarray(R, values.dtype))
