"""Token features: factors F with F F^T = K, for kernels that may be singular."""

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

PIVOT = 32.0
"""A pivot below PIVOT * eps * K_jj is rounding: its column is zero."""

_matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


@jax.jit
@functools.partial(jnp.vectorize, signature="(m,m)->(m,m)")
def _factor(K: Array) -> Array:
    m = K.shape[0]
    diagonal = jnp.diagonal(K)
    threshold = jnp.asarray(PIVOT * jnp.finfo(K.dtype).eps, K.dtype) * diagonal
    rows = jnp.arange(m)

    def column(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        L, left = state
        kept = left[j] > threshold[j]
        pivot = jnp.where(kept, left[j], 1)
        residual = K[:, j] - _matmul(L, L[j])
        # |R_ij| <= sqrt(R_ii R_jj) if K is positive semidefinite. Enforced, so that an estimated K
        # that is not quite so still gives rows of length sqrt(K_ii).
        bound = jnp.sqrt(pivot * left)
        entry = jnp.clip(residual, -bound, bound) * jax.lax.rsqrt(pivot)
        entry = jnp.where(rows == j, jnp.sqrt(pivot), jnp.where(rows > j, entry, 0))
        entry = jnp.where(kept, entry, 0)
        left = jnp.maximum(left - entry**2, 0)
        return L.at[:, j].set(entry), left

    L, _ = jax.lax.fori_loop(0, m, column, (jnp.zeros_like(K), jnp.maximum(diagonal, 0)))
    return L


@jax.custom_jvp
def semidefinite_cholesky(K: Float[Array, "*batch m m"]) -> Float[Array, "*batch m m"]:
    """Lower-triangular L with L L^T = K for positive *semi*definite K; nothing is added to K.

    A pivot that is rounding (below `PIVOT` eps K_jj) gives a zero column with zero gradient, so a
    duplicated token repeats its row and a padded (zero) token has a zero row and column. The
    leading block of L is the factor of the leading block of K. If K is not positive semidefinite,
    rows keep their length sqrt(K_ii) and `factor_residual` says how far L L^T is from K.
    """
    return _factor(K)


@semidefinite_cholesky.defjvp
def _cholesky_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # dL = L Phi(L^{-1} dK L^{-T}) with ones put in the place of the dropped pivots; their columns
    # of dL are dropped as well, and they do not touch the others because L is zero there.
    (K,), (dK,) = primals, tangents
    L = semidefinite_cholesky(K)
    kept = jnp.diagonal(L, axis1=-2, axis2=-1) > 0
    eye = jnp.eye(K.shape[-1], dtype=K.dtype)
    filled = L + jnp.where(kept, jnp.zeros((), K.dtype), 1)[..., None] * eye
    solve = functools.partial(jax.scipy.linalg.solve_triangular, lower=True)
    solve = jnp.vectorize(solve, signature="(m,m),(m,k)->(m,k)")
    dK = (dK + jnp.swapaxes(dK, -1, -2)) * 0.5
    inner = jnp.swapaxes(solve(filled, jnp.swapaxes(solve(filled, dK), -1, -2)), -1, -2)
    inner = jnp.tril(inner) * (1 - 0.5 * eye)
    return L, _matmul(filled, inner) * kept[..., None, :].astype(K.dtype)


def factor_residual(L: Float[Array, "*batch m m"], K: Float[Array, "*batch m m"]) -> Array:
    """max_ij |L L^T - K|_ij / max_j K_jj: how far a factor is from its kernel, (*batch)."""
    error = jnp.max(jnp.abs(_matmul(L, jnp.swapaxes(L, -1, -2)) - K), axis=(-2, -1))
    size = jnp.max(jnp.diagonal(K, axis1=-2, axis2=-1), axis=-1)
    return error / jnp.where(size > 0, size, 1)


def _pad(K: Array, rows: int, cols: int) -> Array:
    widths = [(0, 0)] * (K.ndim - 2) + [(0, rows - K.shape[-2]), (0, cols - K.shape[-1])]
    return jnp.pad(K, widths)


def joint_kernel(
    Kxx: Float[Array, "*#batch s1 s1"],
    Kyy: Float[Array, "*#batch s2 s2"],
    Kxy: Float[Array, "*#batch s1 s2"],
) -> Float[Array, "*batch m m"]:
    """Joint token kernel of x and y with tokens interleaved x1, y1, x2, y2, ...; m = 2 max(s1, s2).

    The shorter side is padded with zero rows, so longer padding only adds zero rows at the end.
    """
    size = max(Kxx.shape[-1], Kyy.shape[-1])
    batch = jnp.broadcast_shapes(Kxx.shape[:-2], Kyy.shape[:-2], Kxy.shape[:-2])
    xx, yy, xy = (
        jnp.broadcast_to(_pad(K, size, size), (*batch, size, size)) for K in (Kxx, Kyy, Kxy)
    )
    top = jnp.stack([xx, xy], axis=-1)
    bottom = jnp.stack([jnp.swapaxes(xy, -1, -2), yy], axis=-1)
    return jnp.stack([top, bottom], axis=-3).reshape(*batch, 2 * size, 2 * size)


def joint_features(
    Kxx: Float[Array, "*#batch s1 s1"],
    Kyy: Float[Array, "*#batch s2 s2"],
    Kxy: Float[Array, "*#batch s1 s2"],
) -> tuple[Float[Array, "*batch s1 m"], Float[Array, "*batch s2 m"]]:
    """Features of a pair: Fx Fx^T = Kxx, Fy Fy^T = Kyy, Fx Fy^T = Kxy; m = 2 max(s1, s2).

    They do not depend on padding (longer padding adds zero features at the end), and Fx = Fy to
    rounding if x = y.
    """
    L = semidefinite_cholesky(joint_kernel(Kxx, Kyy, Kxy))
    return L[..., 0::2, :][..., : Kxx.shape[-1], :], L[..., 1::2, :][..., : Kyy.shape[-1], :]


def all_features(K: Float[Array, "n n s s"]) -> Float[Array, "n s m"]:
    """Features of n inputs from their joint token kernel, F_i F_j^T = K_ij; m = n s."""
    n, _, s, _ = K.shape
    L = semidefinite_cholesky(jnp.swapaxes(K, 1, 2).reshape(n * s, n * s))
    return L.reshape(n, s, n * s)


def landmark_features(
    KxU: Float[Array, "*#batch s u"], KUU_factor: Float[Array, "*#batch u u"]
) -> Float[Array, "*batch s u"]:
    """F(x) = K(x, U) L^{-T} with L L^T = K(U, U): Fx Fy^T = K(x,U) K(U,U)^+ K(U,y).

    Args:
      KxU: kernel between the tokens of x and the landmark tokens.
      KUU_factor: `semidefinite_cholesky(K(U, U))`; landmarks it dropped (they repeat others) get a
        zero feature.
    """
    diagonal = jnp.diagonal(KUU_factor, axis1=-2, axis2=-1)
    kept = (diagonal > 0).astype(KUU_factor.dtype)
    eye = jnp.eye(KUU_factor.shape[-1], dtype=KUU_factor.dtype)
    filled = KUU_factor + (1 - kept)[..., None] * eye
    solve = functools.partial(jax.scipy.linalg.solve_triangular, lower=True)
    solve = jnp.vectorize(solve, signature="(m,m),(m,k)->(m,k)")
    return jnp.swapaxes(solve(filled, jnp.swapaxes(KxU, -1, -2)), -1, -2) * kept[..., None, :]


def landmark_residual(
    Kxx: Float[Array, "*#batch s s"], F: Float[Array, "*#batch s u"]
) -> Float[Array, "*batch s s"]:
    """Factor of K(x,x) - F F^T: features of the part of x that the landmarks miss.

    What is rounding of K(x,x) is set to zero first, then pivots are compared with the residual's
    own diagonal.
    """
    left = Kxx - _matmul(F, jnp.swapaxes(F, -1, -2))
    size = jnp.diagonal(Kxx, axis1=-2, axis2=-1)
    seen = jnp.diagonal(left, axis1=-2, axis2=-1)
    tolerance = jnp.asarray(PIVOT * jnp.finfo(Kxx.dtype).eps, Kxx.dtype)
    missed = seen > tolerance * size
    return semidefinite_cholesky(
        jnp.where(missed[..., :, None] & missed[..., None, :], left, jnp.zeros((), Kxx.dtype))
    )
