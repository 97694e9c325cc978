"""The evidence of data given the normals behind all scores, and predictions given them."""

from __future__ import annotations

import math
import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..gp.training import token_rows
from ..kernel.network import Network
from .draws import SCORE_DRAWS, Inputs


class Evidence(eqx.Module):
    """log N(y; 0, K_z + noise) as a function of z, the normals of all scores by layer."""

    network: Network
    streams: Any
    key: jax.Array
    y: jax.Array
    noise: jax.Array
    rows: jax.Array | None
    first: int = eqx.field(static=True)

    def kernel(self, normals) -> jax.Array:
        """K_z of all inputs (and tokens), as a matrix."""
        with jax.default_matmul_precision("highest"):
            found = self.network.joint(self.streams, self.key, SCORE_DRAWS, normals, self.first)
        K: Any = found[0]
        if K.ndim == 4:
            n, m, S1, S2 = K.shape
            K = jnp.swapaxes(K, 1, 2).reshape(n * S1, m * S2)
        return K.astype(jnp.float64)

    def training(self, K: jax.Array) -> jax.Array:
        """The kernel of the rows that have targets, with noise."""
        size = len(self.y) if self.rows is None else None
        K = K[:size, :size] if self.rows is None else K[self.rows[:, None], self.rows]
        return K + self.noise * jnp.eye(len(K), dtype=K.dtype)

    def __call__(self, z: dict[str, jax.Array]) -> jax.Array:
        L = jnp.linalg.cholesky(self.training(self.kernel(lambda name, *_: z[name])))
        v = jax.scipy.linalg.solve_triangular(L, self.y, lower=True)
        n, outputs = self.y.shape
        half = jnp.sum(jnp.log(jnp.diagonal(L))) + 0.5 * n * math.log(2 * math.pi)
        return -0.5 * jnp.sum(v * v) - outputs * half

    @classmethod
    def of(cls, net, x, x_mask, targets, noise, target_mask, key, dtype) -> Evidence:
        """The evidence of targets, which belong to the first inputs; the others have none."""
        inputs = Inputs.of(net, x, x_mask, False, dtype)
        y = targets[:, None] if targets.ndim == 1 else targets.reshape(-1, targets.shape[-1])
        size = len(targets) * (targets.shape[1] if targets.ndim == 3 else 1)
        valid = token_rows(targets, size, target_mask)
        if valid is not None:
            y = y[valid]
        return cls(
            inputs.network,
            inputs.streams,
            key,
            jnp.asarray(y),
            jnp.asarray(noise),
            None if valid is None else jnp.asarray(valid),
            len(targets),
        )

    def at_once(self, draws: int, memory) -> int:
        """Draws that fit into memory together."""
        return Inputs(self.network, self.streams).at_once(draws, memory)

    @property
    def size(self) -> int:
        """Rows of the kernel: inputs, or their tokens if there is no readout."""
        zeros = lambda name, shape, dtype: jnp.zeros(shape, dtype)  # noqa: E731
        return jax.eval_shape(lambda: self.kernel(zeros)).shape[0]

    @eqx.filter_jit
    def own(self, z) -> jax.Array:
        """Mean over some draws of the diagonal, of the rows that have targets."""

        def one(z):
            return jnp.diagonal(self.training(self.kernel(lambda name, *_: z[name])))

        return jnp.mean(jax.vmap(one)(z), axis=0)

    def shapes(self) -> dict[str, tuple]:
        """Shape and type of the normals of every layer."""
        found: dict[str, tuple] = {}

        def normals(name, shape, dtype):
            found[name] = shape, dtype
            return jnp.zeros(shape, dtype)

        jax.eval_shape(lambda: self.kernel(normals))
        return found


def extended(z: dict, key):
    """The normals z, and fresh ones where more features are asked for."""

    def normals(name, shape, dtype):
        own = z[name]
        if own.shape == shape:
            return own
        fresh = jax.random.normal(jax.random.fold_in(key, zlib.crc32(name.encode())), shape, dtype)
        return fresh.at[..., : own.shape[-2], : own.shape[-1]].set(own)

    return normals


@eqx.filter_jit
def predict(evidence: Evidence, z, keys, new: jax.Array, full: bool):
    """Means `(particles, m, outputs)` and covariances of the rows `new`, given each z."""

    def one(z, key):
        K = evidence.kernel(extended(z, key))
        L = jnp.linalg.cholesky(evidence.training(K))
        old = evidence.rows if evidence.rows is not None else jnp.arange(len(evidence.y))
        V = jax.scipy.linalg.solve_triangular(L, K[old[:, None], new], lower=True)
        alpha = jax.scipy.linalg.solve_triangular(L, evidence.y, lower=True)
        spread = K[new[:, None], new] - V.T @ V if full else K[new, new] - jnp.sum(V * V, axis=0)
        return V.T @ alpha, spread

    return jax.vmap(one)(z, keys)


def prior(shapes: dict, key, particles: int) -> dict[str, np.ndarray]:
    """Draws of the normals of all scores."""
    z = {}
    for i, (name, (shape, kind)) in enumerate(shapes.items()):
        keys = jax.random.split(jax.random.fold_in(key, i), particles)
        z[name] = np.asarray(jax.vmap(lambda k, s=shape, d=kind: jax.random.normal(k, s, d))(keys))
    return z
