"""Softmax attention given its scores, and the sums over keys of one draw."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float


def rotary_phases(
    frequencies: Float[Array, " j"],
    query_positions: Float[Array, "*batch s"],
    key_positions: Float[Array, "*batch c"],
) -> Float[Array, "*batch terms s c"]:
    """phi_k,ac = J^{-1/2} cos(w_k (a - c)) for k <= J and J^{-1/2} sin(w_k (a - c)) after.

    rho((a-c) - (b-d)) = sum_k phi_k,ac phi_k,bd, the factor of the score covariance (theory 2.3).
    """
    distance = query_positions[..., :, None] - key_positions[..., None, :]
    angle = frequencies[:, None, None] * distance[..., None, :, :]
    phases = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-3)
    return phases * jax.lax.rsqrt(jnp.asarray(frequencies.shape[0], phases.dtype))


def draw_scores(
    F_query: Float[Array, "*#batch s f"],
    F_key: Float[Array, "*#batch c g"],
    Z: Float[Array, "draws *terms f g"],
    qk_std: Float[Array, ""] | float,
    rotary: Float[Array, "*#batch terms s c"] | None = None,
) -> Float[Array, "*batch draws s c"]:
    """Scores G = s_QK F_q Z F_k^T; with rotary positions G = s_QK sum_k phi_k * (F_q Z_k F_k^T).

    Cov( G_ac(x), G_bd(y) ) = s_QK^2 K_ab K_cd (times rho), K = F F^T on each side.

    Args:
      F_query, F_key: token features; the same array in self-attention.
      Z: standard normals (draws, f, g), or (draws, 2J, f, g) with `rotary`.
      qk_std: s_QK = std_Q std_K, any sign.
      rotary: `rotary_phases(...)`.
    """
    scale = jnp.asarray(qk_std, F_query.dtype)
    if rotary is None:
        FZ = jnp.matmul(F_query[..., None, :, :], Z)
        return scale * jnp.matmul(FZ, jnp.swapaxes(F_key, -1, -2)[..., None, :, :])
    if Z.ndim != 4 or Z.shape[1] != rotary.shape[-3]:
        raise ValueError(
            f"rotary phases {rotary.shape} need Z of shape (draws, {rotary.shape[-3]}, f, g), got "
            f"{Z.shape}: draw it with score_normals(terms={rotary.shape[-3]})."
        )
    FZ = jnp.matmul(F_query[..., None, None, :, :], Z)
    terms = jnp.matmul(FZ, jnp.swapaxes(F_key, -1, -2)[..., None, None, :, :])
    return scale * jnp.sum(terms * rotary[..., None, :, :, :], axis=-3)


def attention_draws(
    scores: Float[Array, "*#batch draws s c"], pair_mask: Bool[Array, "*#batch s c"] | None = None
) -> Float[Array, "*batch draws s c"]:
    """A_ac = exp(G_ac) / sum_c exp(G_ac) over the keys that query a may see; 0 for the others.

    A row that sees no key (a padded query) is zero and has zero gradient.
    """
    if pair_mask is None:
        return jax.nn.softmax(scores, axis=-1)
    mask = pair_mask[..., None, :, :]
    top = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0))
    zero = jnp.zeros((), scores.dtype)
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores - top, zero)), zero)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def mean_over_draws(function: Callable[..., Any], *draws: Array, axes: tuple[int, ...], chunk: int):
    """Mean over draws of a function of one chunk of draws, `chunk` draws in memory at a time.

    Args:
      function: takes the arrays with at most `chunk` draws on the same axes and returns a pytree of
        *sums* over these draws.
      draws: arrays with the same number of draws.
      axes: the (negative or not) draw axis of each array.
      chunk: draws per step; the rest of a division is one smaller step.
    """
    n = draws[0].shape[axes[0]]
    chunk = max(1, min(chunk, n))
    steps, rest = divmod(n, chunk)
    moved = [jnp.moveaxis(z, axis, 0) for z, axis in zip(draws, axes, strict=True)]

    def sums(*parts: Array):
        return function(*(jnp.moveaxis(p, 0, a) for p, a in zip(parts, axes, strict=True)))

    if steps == 1 and rest == 0:
        total = sums(*moved)
    else:
        stacked = [z[: steps * chunk].reshape(steps, chunk, *z.shape[1:]) for z in moved]
        shapes = jax.eval_shape(sums, *(z[0] for z in stacked))
        start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

        @jax.checkpoint
        def step(carry, parts):
            return jax.tree.map(jnp.add, carry, sums(*parts)), None

        total, _ = jax.lax.scan(step, start, stacked)
        if rest:
            last = sums(*(z[steps * chunk :] for z in moved))
            total = jax.tree.map(jnp.add, total, last)
    return jax.tree.map(lambda t: t / jnp.asarray(n, t.dtype), total)


def _t(M: Array) -> Array:
    return jnp.swapaxes(M, -1, -2)


def _one(K: Array | None) -> Any:
    """Room for the axis of draws."""
    return None if K is None else K[..., None, :, :]


def value_sum(
    P: Float[Array, "*#batch draws s1 c1"],
    R: Float[Array, "*#batch draws s2 c2"],
    K: Float[Array, "*#batch c1 c2"],
    *,
    chunk: int = 32,
) -> Float[Array, "*batch s1 s2"]:
    """Mean over draws of P K R^T: K'_ab = s_OV^2 sum_cd K_cd E[A_ac A~_bd] (theory 2.2)."""

    def sums(P: Array, R: Array) -> Array:
        return jnp.sum(jnp.matmul(jnp.matmul(P, _one(K)), _t(R)), axis=-3)

    return mean_over_draws(sums, P, R, axes=(-3, -3), chunk=chunk)


class NTKSums(NamedTuple):
    """Means over draws that make up T' (theory 2.2); a field is None if its kernel was None."""

    K: Array
    """P Kv R^T."""
    T: Array | None
    """P Tv R^T."""
    S_K: Array
    """S(Ks)."""
    S_T: Array | None
    """S(Ts)."""


def _score_sum(P, R, PK, KR, PKR, K, B, phi_x, phi_y):
    """S_ab(B) of each draw: sum_cdgh K_cd B_gh dP_ac/dG_ag dR_bd/dG~_bh [ phi_ag phi~_bh ]."""
    KB = K * B

    def term(Pp: Array, Rp: Array) -> Array:
        PB, BR = jnp.matmul(Pp, B), jnp.matmul(B, _t(Rp))
        left = jnp.matmul(Pp, KB) - PK * PB
        return jnp.matmul(left, _t(Rp)) - jnp.matmul(Pp, KR * BR) + PKR * jnp.matmul(PB, _t(Rp))

    if phi_x is None:
        return term(P, R)

    def add(total: Array, phases: tuple[Array, Array]) -> tuple[Array, None]:
        phi, phi_tilde = phases
        return total + term(P * _one(phi), R * _one(phi_tilde)), None

    phases = (jnp.moveaxis(phi_x, -3, 0), jnp.moveaxis(phi_y, -3, 0))
    return jax.lax.scan(add, jnp.zeros_like(PKR), phases)[0]


def ntk_sum(
    P: Float[Array, "*#batch draws s1 c1"],
    R: Float[Array, "*#batch draws s2 c2"],
    Kv: Float[Array, "*#batch c1 c2"],
    Tv: Float[Array, "*#batch c1 c2"] | None,
    Ks: Float[Array, "*#batch c1 c2"],
    Ts: Float[Array, "*#batch c1 c2"] | None,
    phi_x: Float[Array, "*#batch terms s1 c1"] | None = None,
    phi_y: Float[Array, "*#batch terms s2 c2"] | None = None,
    *,
    chunk: int = 32,
) -> NTKSums:
    """Means over draws of P Kv R^T, P Tv R^T, S(Ks) and S(Ts), which share their products.

        S(B) = P (Kv*B) R^T - ((P Kv)*(P B)) R^T - P ((Kv R^T)*(B R^T)) + (P Kv R^T)*(P B R^T)

    With rotary positions S gets the factor rho((a-g) - (b-h)) = sum_k phi_k,ag phi~_k,bh: the sum
    over k of the same expression with P B -> (P*phi_k) B, B R^T -> B (R*phi~_k)^T, and
    P (Kv*B) R^T, the outer P and the outer R modulated likewise.

    Args:
      P, R: attention weights of x and y, one per draw and drawn together.
      Kv, Tv: value kernels between the keys of x and the keys of y. Tv may be None for zero.
      Ks, Ts: score kernels of the keys. Ts may be None for zero.
      phi_x, phi_y: `rotary_phases` of x and of y, or None.
      chunk: draws in memory at a time.
    """
    if (phi_x is None) != (phi_y is None):
        raise ValueError("Give the rotary phases of both sides (phi_x and phi_y) or of none.")
    K, T, Bk, Bt = _one(Kv), _one(Tv), _one(Ks), _one(Ts)

    def sums(P: Array, R: Array) -> NTKSums:
        PK, KR = jnp.matmul(P, K), jnp.matmul(K, _t(R))
        PKR = jnp.matmul(PK, _t(R))
        score = functools.partial(_score_sum, P, R, PK, KR, PKR, K, phi_x=phi_x, phi_y=phi_y)
        each = NTKSums(
            K=PKR,
            T=None if T is None else jnp.matmul(jnp.matmul(P, T), _t(R)),
            S_K=score(B=Bk),
            S_T=None if Bt is None else score(B=Bt),
        )
        return jax.tree.map(lambda s: jnp.sum(s, axis=-3), each)

    return mean_over_draws(sums, P, R, axes=(-3, -3), chunk=chunk)
