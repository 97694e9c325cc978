"""Where a token is: position codes, rotary phases and biases of attention scores (theory 2.3)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..kernel.state import Cross, Marginal, Need, add, scaled
from ..scores.factor import semidefinite_cholesky
from .base import Context, Leaf, hyper


class OneHot(eqx.Module):
    """R_ab = [a = b]: every position has a code of its own."""

    def along_an_axis(self):
        """c and r with R = c prod_k r(axis k) on images."""
        return 1.0, self

    def __call__(self, distance2, relative2):
        return (distance2 == 0).astype(distance2.dtype)


class SquaredExponential(eqx.Module):
    """R_ab = rho exp(-phi d^2), d the distance of relative positions (Hron 2020, section 4.2).

    Image positions are divided by height and width, string positions (from 1) by the length, so
    that strings of different length share one code.
    """

    phi: float = eqx.field(converter=hyper, default=1.0)
    rho: float = eqx.field(converter=hyper, default=1.0)

    def __check_init__(self):
        not_negative("phi", self.phi)
        not_negative("rho", self.rho)

    def along_an_axis(self):
        """c and r with R = c prod_k r(axis k) on images."""
        return self.rho, SquaredExponential(self.phi, 1.0)

    def __call__(self, distance2, relative2):
        return self.rho * jnp.exp(-self.phi * relative2)


class Decay(eqx.Module):
    """R_ab = fn(squared distance of the token indices)."""

    fn: Callable = eqx.field(static=True)

    def __call__(self, distance2, relative2):
        return jnp.asarray(self.fn(distance2), distance2.dtype)


class Coordinates(eqx.Module):
    """Index and relative position of every token of one input, `(*n, S, dimensions)`."""

    index: jax.Array
    relative: jax.Array
    mask: jax.Array | None

    @classmethod
    def of(cls, grid: tuple[int, ...], mask, lead: tuple[int, ...], dtype) -> Coordinates:
        axes = np.meshgrid(*(np.arange(n) for n in grid), indexing="ij")
        index = np.stack([axis.reshape(-1) for axis in axes], axis=-1)
        index = jnp.broadcast_to(jnp.asarray(index, dtype), (*lead, *index.shape))
        if len(grid) == 1 and mask is not None:
            length = jnp.sum(mask, axis=-1, dtype=dtype)[..., None, None]
        else:
            length = jnp.asarray(grid, dtype)
        return cls(index, (index + 1) / length, mask)

    def covariance(self, decay, other: Coordinates):
        """R(x, y) on pairs of valid tokens, `(*pairs, S1, S2)`."""

        def squared(u, v):
            return jnp.sum((u[..., :, None, :] - v[..., None, :, :]) ** 2, axis=-1)

        R = decay(squared(self.index, other.index), squared(self.relative, other.relative))
        if self.mask is not None:
            R = jnp.where(self.mask[..., :, None], R, 0.0)
        if other.mask is not None:
            R = jnp.where(other.mask[..., None, :], R, 0.0)
        return R


class Position(Leaf):
    """A code with covariance R beside the content: content * K + weight * R.

    Inside an attention layer (`position=`) it is what the scores see, and the values too if
    `values`; as a layer of its own it is added once, K' = content K + weight R. A trained code
    E = L Z, R = L L^T, adds weight * R to T as well.

    Args:
        decay: `OneHot()`, `SquaredExponential(phi, rho)`, or a function of the squared index
            distance; R must be positive semidefinite.
        content, weight: (alpha, 1 - alpha) is Hron's interpolation, (1, w^2) the plain sum; see
            `Position.concatenated` for codes in channels of their own.
        values: whether the values see the code (inside attention only).
        trained: whether the code is trained.
    """

    decay: eqx.Module
    content: float = eqx.field(converter=hyper)
    weight: float = eqx.field(converter=hyper)
    values: bool = eqx.field(static=True)
    trained: bool = eqx.field(static=True)

    def __init__(self, decay=None, content=1.0, weight=1.0, values=False, trained=True):
        decay = OneHot() if decay is None else decay
        if not isinstance(decay, eqx.Module):
            if not callable(decay):
                raise TypeError(
                    "decay must be lf.OneHot(), lf.SquaredExponential(phi, rho) or a function of "
                    f"the squared index distance, got {decay!r}"
                )
            decay = Decay(decay)
        self.decay = decay
        self.content, self.weight = content, weight
        not_negative("content", content)
        not_negative("weight", weight)
        self.values, self.trained = values, trained

    @classmethod
    def concatenated(cls, channels: int, codes: int, decay=None, w_std=1.0, **options) -> Position:
        """`channels` content channels beside `codes` position channels of variance w_std^2."""
        total = channels + codes
        return cls(decay, channels / total, w_std**2 * codes / total, **options)

    def check(self, grid: tuple[int, ...], path: str) -> None:
        """Raise if R is not positive semidefinite on this grid."""
        if not isinstance(self.decay, Decay):
            return
        with jax.ensure_compile_time_eval():
            place = Coordinates.of(grid, None, (), jnp.result_type(float))
            R = np.asarray(place.covariance(self.decay, place), float)
        if not np.isfinite(R).all():
            raise ValueError(f"{path.lstrip('/')}: the decay gives values that are not finite")
        low, high = np.linalg.eigvalsh((R + R.T) / 2)[[0, -1]]
        if low < -1e-5 * max(high, 1e-300):
            raise ValueError(
                f"{path.lstrip('/')}: the position covariance R is not positive semidefinite on "
                f"{grid} tokens (smallest eigenvalue {low:.3g}, largest {high:.3g}); use "
                "lf.SquaredExponential or another decay that is the covariance of a process"
            )

    def scores_K(self, K, place_x: Coordinates, place_y: Coordinates):
        """content * K + weight * R."""
        return self.content * K + self.weight * place_x.covariance(self.decay, place_y)

    def scores_T(self, T, place_x: Coordinates, place_y: Coordinates):
        """content * T, plus weight * R if the code is trained."""
        R = place_x.covariance(self.decay, place_y) if self.trained else None
        return add(scaled(self.content, T), scaled(self.weight, R))

    def features(self, F, place: Coordinates):
        """Features of content * K + weight * R where R has some of its own, else None."""
        if F is None or not isinstance(self.decay, OneHot):
            return None
        one_hot = jnp.broadcast_to(
            jnp.eye(F.shape[-2], dtype=F.dtype), (*F.shape[:-1], F.shape[-2])
        )
        if place.mask is not None:
            one_hot = jnp.where(place.mask[..., None], one_hot, 0.0)
        return jnp.concatenate([root(self.content, F) * F, root(self.weight, F) * one_hot], axis=-1)

    def needs(self, out: Need) -> Need:
        return out

    def marginal(self, state: Marginal, ctx: Context):
        facts = state.facts
        if facts.readout:
            raise ValueError(f"{ctx.path.lstrip('/')}: there are no tokens left to give positions")
        self.check(facts.grid, ctx.path)
        place = Coordinates.of(facts.grid, state.mask, state.unit.shape, state.unit.dtype)
        K = state.K
        if K is not None:
            R = place.covariance(self.decay, place)
            R = jnp.diagonal(R, axis1=-2, axis2=-1) if state.diag else R
            K = self.content * K + self.weight * R
        m = None if state.m is None else root(self.content, state.m) * state.m
        passed = facts.passed("Position")
        facts = dataclasses.replace(passed, sources=passed.sources | {(ctx.path, ())})
        F = self.features(state.F, place)
        return dataclasses.replace(state, facts=facts, K=K, m=m, F=F, raw=None), place

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        R = rx.covariance(self.decay, ry)
        R = jnp.diagonal(R, axis1=-2, axis2=-1) if k.diag else R
        own = self.weight * R
        T = None
        if ctx.ntk:
            T = add(scaled(self.content, k.T), own if self.trained else None)
        return Cross(self.content * k.K + own, T, k.diag)

    def init(self, key, acts, ctx):
        return {"code": init_code(self, key, acts, ctx.width if acts.raw else acts.h.shape[-1])}

    def apply(self, params, acts, ctx):
        acts = acts.widened(ctx.width)
        h = jnp.sqrt(self.content) * acts.h + jnp.sqrt(self.weight) * code(
            self, params["code"], acts
        )
        return acts.passed(acts.on_valid(h))


def not_negative(name: str, value) -> None:
    """Raise for a negative number where a covariance is meant."""
    if isinstance(value, (int, float)) and value < 0:
        raise ValueError(f"{name} must not be negative (no covariance would be), got {value}")


def root(weight, like):
    """Square root of a hyper-parameter in the dtype of `like`."""
    return jnp.sqrt(jnp.asarray(weight, like.dtype))


def _places(grid: Any, dtype) -> tuple[Coordinates, np.ndarray]:
    """All places a token can have on inputs of up to this length, and where to find them.

    Strings of every length share one code, so the places of a string of length n are
    (index a, relative a/n) for every n up to the longest.
    """
    if len(grid) > 1:
        place = Coordinates.of(grid, None, (), dtype)
        return place, np.arange(math.prod(grid))[None]
    S = grid[0]
    index = np.concatenate([np.arange(n) for n in range(1, S + 1)])
    length = np.concatenate([np.full(n, n) for n in range(1, S + 1)])
    table = np.zeros((S, S), int)
    table[length - 1, index] = np.arange(len(index))
    index, relative = (jnp.asarray(v[:, None], dtype) for v in (index, (index + 1) / length))
    return Coordinates(index, relative, None), table


def init_code(position: Position, key, acts, channels: int):
    """Normals Z of the finite code E = L Z, one row for every place a token can have."""
    places, _ = _places(acts.grid, acts.h.dtype)
    return jax.random.normal(key, (places.index.shape[0], channels), acts.h.dtype)


def code(position: Position, Z, acts):
    """The finite code of every token, `(n, S, channels)`, with covariance R over the channels."""
    places, table = _places(acts.grid, acts.h.dtype)
    Z = Z if position.trained else jax.lax.stop_gradient(Z)
    R = places.covariance(position.decay, places)
    E = semidefinite_cholesky(R) @ Z
    if len(table) == 1 or acts.mask is None:
        return E[table[-1]][None]
    return E[jnp.asarray(table)[jnp.sum(acts.mask, axis=-1) - 1]]


class Rotary(eqx.Module):
    """Rotary positions: Cov(G_ac, G_bd) gets the factor rho((a-c) - (b-d)), rho(t) = mean cos(w t).

    Args:
        dims: channels that are rotated in pairs (even); frequencies are base^(-2j / dims).
    """

    dims: int = eqx.field(static=True, default=64)
    base: float = eqx.field(static=True, default=10000.0)

    def __check_init__(self):
        if self.dims < 2 or self.dims % 2:
            raise ValueError(f"Rotary needs an even number of dims of at least 2, got {self.dims}")

    @property
    def frequencies(self) -> np.ndarray:
        return self.base ** (-2 * np.arange(self.dims // 2) / self.dims)


class Alibi(eqx.Module):
    """A fixed bias -slope |a - c| of the scores, one slope per head: the limit averages over them.

    Args:
        slopes: the slopes, or a number of heads h for the usual 2^(-8 i / h), i = 1..h.
    """

    slopes: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, slopes=8):
        if isinstance(slopes, int):
            slopes = [2.0 ** (-8 * (i + 1) / slopes) for i in range(slopes)]
        self.slopes = tuple(float(s) for s in slopes)
        if not self.slopes or not np.isfinite(self.slopes).all():
            raise ValueError(f"Alibi needs one or more finite slopes, got {slopes!r}")

    def bias(self, queries: int, keys: int) -> np.ndarray:
        distance = np.abs(np.arange(queries)[:, None] - np.arange(keys)[None, :])
        return -np.asarray(self.slopes)[:, None, None] * distance


class RelativeBias(eqx.Module):
    """A fixed bias fn(a - c) of the scores, the same for every head.

    Args:
        fn: a NumPy function of the array of index differences a - c.
    """

    fn: Callable = eqx.field(static=True)

    def bias(self, queries: int, keys: int) -> np.ndarray:
        difference = np.arange(queries)[:, None] - np.arange(keys)[None, :]
        bias = np.asarray(self.fn(difference), float)
        if bias.shape != difference.shape or not np.isfinite(bias).all():
            raise ValueError(
                "RelativeBias needs a function that maps an array of differences to finite biases "
                f"of the same shape; on {difference.shape} it gave {bias.shape}"
            )
        return bias[None]
