"""One attention layer of width n, drawn exactly at a cost that does not depend on n.

Tokens are Gaussian vectors X = (x_1, ..., x_S) in n dimensions with covariance C over tokens. Only
inner products matter, and those of Gaussian vectors are Wishart. With T(d) T(d)^T ~ Wishart(I_S, d)
from Bartlett's factor (chi variables on the diagonal, normals below), all factors independent, d
the width of a head, N iid normal:

    X^T X / n          = L L^T,       L = chol(C) T(n) / sqrt(n)
    G = Q^T K / sqrt d = s_QK L T_Q(d) N L^T / sqrt d            a head's scores, since given Q
                         the product Z_Q^T Z_K of normal matrices is T_Q N
    V^T V / d          = s_V^2 L T_V(d) T_V(d)^T L^T / d         its values
    K' = (s_OV^2 / H) sum_h A_h L (T_V T_V^T / d) L^T A_h^T      A_h = zeta(G_h)

and given K' the n coordinates of the outputs are iid N(0, K'), so that (1/n) Y^T Y is Wishart(K',
n) / n: it can be the L L^T of a next layer. As n -> inf every T T^T / n -> I and K' is the
conditional kernel of theory 3.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..scores.factor import semidefinite_cholesky

_NUMBERS_AT_ONCE = 2**22


@dataclasses.dataclass(frozen=True, eq=False)
class FiniteWidth:
    """Draws of one attention layer of width n.

    Attributes:
        scores: G, `(runs, heads, S, S)`.
        kernel: K', the covariance of a coordinate over tokens given everything but W_O.
        outputs: y, `(runs, S, coordinates)`.
        second_moment: (1/n) Y^T Y over all n coordinates, `(runs, S, S)`, which the kept
            `outputs` are part of.
    """

    n: int
    scores: Float[np.ndarray, "runs heads S S"]
    kernel: Float[np.ndarray, "runs S S"]
    outputs: Float[np.ndarray, "runs S coordinates"]
    second_moment: Float[np.ndarray, "runs S S"]


def bartlett(key: PRNGKeyArray, d: int, S: int, dtype: Any = jnp.float64) -> Float[Array, "S r"]:
    """Lower trapezoidal T with T T^T ~ Wishart(I_S, d), r = min(d, S).

    T_ii^2 ~ chi^2 with d - i degrees of freedom (i = 0, 1, ...), T_ij ~ N(0, 1) for i > j.

    Reference:
        Bartlett 1933, Proc. R. Soc. Edinburgh 53.

    Example:
        >>> with jax.enable_x64(True):
        ...     T = bartlett(jax.random.key(0), 2, 3)
        >>> T.shape, float(T[0, 1])
        ((3, 2), 0.0)
    """
    degrees, ranks = _degrees([d], S)
    return _bartletts(key, degrees.astype(dtype), ranks, S, 0)[0][0]


def _degrees(freedom: Sequence[int], S: int) -> tuple[Float[Array, " total"], tuple[int, ...]]:
    """Degrees of freedom of all diagonals, and the ranks of the factors."""
    ranks = tuple(min(d, S) for d in freedom)
    degrees = [d - np.arange(r, dtype=float) for d, r in zip(freedom, ranks, strict=True)]
    return jnp.asarray(np.concatenate(degrees)), ranks


def _bartletts(key, degrees, ranks: tuple, S: int, normals: int) -> tuple[list[Array], Array]:
    """Factors with several degrees of freedom, and further normals.

    All from two calls of the generator, because every call is compiled anew.
    """
    kc, kn = jax.random.split(key)
    diagonals = _chi(kc, degrees)
    z = jax.random.normal(kn, (len(ranks) * S * S + normals,), degrees.dtype)
    factors, start = [], 0
    for i, r in enumerate(ranks):
        below = jnp.tril(z[i * S * S : i * S * S + S * r].reshape(S, r), -1)
        diagonal = jnp.diag(diagonals[start : start + r])
        factors.append(below + jnp.pad(diagonal, ((0, S - r), (0, 0))))
        start += r
    return factors, z[len(ranks) * S * S :]


def _chi(key, degrees: Float[Array, " k"]) -> Float[Array, " k"]:
    """Chi variables by rejection, all at once; `jax.random.gamma` is several times slower.

    Reference:
        Marsaglia, Tsang 2000, ACM Trans. Math. Software 26 (acceptance above .95).
    """
    # gamma(a) = gamma(a + 1) U^{1/a}: the rejection needs a >= 1
    a = degrees / 2
    small = a < 1
    b = jnp.where(small, a + 1, a) - 1 / 3
    c = 1 / jnp.sqrt(9 * b)

    def propose(state):
        i, done, g = state
        x, y, e = jax.random.normal(jax.random.fold_in(key, i), (3, len(a)), a.dtype)
        v = (1 + c * x) ** 3
        log_v = jnp.log(jnp.where(v > 0, v, 1))
        log_u, log_w = jnp.log(jax.scipy.special.ndtr(jnp.stack([y, e])))
        good = (v > 0) & (log_u < 0.5 * x * x + b - b * v + b * log_v)
        new = jnp.where(small, b * v * jnp.exp(log_w / a), b * v)
        return i + 1, done | good, jnp.where(done, g, new)

    start = (jnp.uint32(0), jnp.zeros(a.shape, bool), jnp.zeros_like(a))
    g = jax.lax.while_loop(lambda state: ~jnp.all(state[1]), propose, start)[2]
    return jnp.sqrt(2 * g)


def layer(
    key: PRNGKeyArray,
    L: Float[Array, "S r"],
    d: int,
    heads: int,
    qk_std: float = 1.0,
    ov_std: float = 1.0,
    weights: Callable = jax.nn.softmax,
) -> tuple[Float[Array, "heads S S"], Float[Array, "S S"]]:
    """Scores G_h and conditional kernel K' of one layer whose tokens have X^T X / n = L L^T.

    Args:
        d: width of a head.
        weights: zeta, on scores `(heads, S, S)`, along the last axis.
    """
    r = L.shape[1]
    degrees, ranks = _degrees([d] * 2 * heads, r)
    T, z = _bartletts(key, degrees.astype(L.dtype), ranks, r, heads * ranks[0] * r)
    return _layer(T, z, L, jnp.asarray(d, L.dtype), qk_std, ov_std, weights)


def _layer(T, z, L, d, qk_std, ov_std, weights):
    """`layer` from factors T (queries of all heads, then values) and normals z."""
    heads = len(T) // 2
    T = jnp.stack(T) / jnp.sqrt(d)
    G = qk_std * (L @ T[:heads] @ z.reshape(heads, T.shape[-1], L.shape[1]) @ L.T)
    M = weights(G) @ (L @ T[heads:])  # (heads, S, rank)
    M = jnp.moveaxis(M, 0, 1).reshape(L.shape[0], -1)
    return G, M @ M.T * (ov_std**2 / heads)


def finite_width(
    C: Any,
    n: int,
    *,
    heads: int,
    key: PRNGKeyArray,
    runs: int,
    head_width: int | None = None,
    qk_std: float = 1.0,
    ov_std: float = 1.0,
    weights: Callable = jax.nn.softmax,
    coordinates: int = 1,
    fixed: bool = False,
) -> FiniteWidth:
    """Exact draws of a multi-head attention layer of width n on Gaussian tokens, S^3 work a head.

        y = H^{-1/2} sum_h W_O zeta(G) V,    G = Q K^T / sqrt(head width),   scale "sqrt"

    Args:
        C: `(S, S)` covariance over tokens of one coordinate of the inputs, x = W h for example.
        n: width of the inputs and outputs; 10^6 costs what 10 costs.
        key: randomness; run r depends on the key and r alone.
        head_width: of queries, keys and values; None for n.
        qk_std, ov_std: s_QK and s_OV.
        weights: zeta, elementwise or along the last axis.
        coordinates: of each output to draw.
        fixed: the inputs are not random, and C is their Gram matrix X^T X / n.

    Raises:
        ValueError: a C that is not a symmetric positive semidefinite matrix; n, heads, head_width,
            runs or coordinates that are not positive integers; more coordinates than n.

    Example:
        >>> found = finite_width(np.eye(4), 10**6, heads=2, key=jax.random.key(0), runs=100)
        >>> found.scores.shape, found.outputs.shape
        ((100, 2, 4, 4), (100, 4, 1))

    Reference:
        The layer is that of Sakai, Karakida, Imaizumi 2025, arXiv 2506.00846.
    """
    d = n if head_width is None else head_width
    counts = {"n": n, "heads": heads, "head_width": d, "runs": runs, "coordinates": coordinates}
    for name, value in counts.items():
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise ValueError(f"{name}={value!r}; it must be a positive integer")
    if coordinates > n:
        raise ValueError(f"coordinates={coordinates}, and the outputs have only n={n}")
    C = _covariance(C)
    S = len(C)
    batch = max(1, min(runs, _NUMBERS_AT_ONCE // (8 * heads * S * S + S * coordinates)))
    batch = 1 << (batch - 1).bit_length()  # few shapes, few compilations
    with jax.enable_x64(True):
        root = semidefinite_cholesky(jnp.asarray(C))
        scales = jnp.asarray([qk_std, ov_std], root.dtype)
        rest = n - coordinates
        freedom = [n] * (not fixed) + [rest] * (rest > 0) + [d] * 2 * heads
        degrees, ranks = _degrees(freedom, S)
        shape = _Shape(heads, coordinates, fixed, ranks, weights)
        widths = jnp.asarray([n, d], root.dtype)
        parts = []
        for start in range(0, runs, batch):
            index = jnp.arange(start, start + batch, dtype=jnp.uint32)
            found = _runs(key, index, root, degrees, widths, scales, shape)
            parts.append([np.asarray(v)[: runs - start] for v in found])
    return FiniteWidth(n, *(np.concatenate(v) for v in zip(*parts, strict=True)))


class _Shape(NamedTuple):
    """What a compilation depends on; the width is not part of it."""

    heads: int
    coordinates: int
    fixed: bool
    ranks: tuple[int, ...]
    weights: Callable


@functools.partial(jax.jit, static_argnames=("shape",))
def _runs(key, index, root, degrees, widths, scales, shape: _Shape):
    S, (n, d) = len(root), widths
    counts = S * shape.coordinates, shape.heads * shape.ranks[-1] * S

    def run(r):
        T, z = _bartletts(jax.random.fold_in(key, r), degrees, shape.ranks, S, sum(counts))
        L = root if shape.fixed else root @ T.pop(0) / jnp.sqrt(n)
        R = T.pop(0) if len(T) > 2 * shape.heads else jnp.zeros((S, 1), root.dtype)
        y = z[: counts[0]].reshape(S, shape.coordinates)
        L = jnp.pad(L, ((0, 0), (0, S - L.shape[1])))  # n < S
        G, K = _layer(T, z[counts[0] :], L, d, scales[0], scales[1], shape.weights)
        F = semidefinite_cholesky(K)
        # the first coordinates, and the Wishart sum over the others
        return G, K, F @ y, F @ (y @ y.T + R @ R.T) @ F.T / n

    return jax.vmap(run)(index)


def _covariance(C: Any) -> Float[np.ndarray, "S S"]:
    C = np.asarray(C, float)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or not C.size:
        raise ValueError(f"C must be a square matrix, one row per token, got shape {C.shape}")
    size = np.abs(C).max()
    if not np.isfinite(size) or np.abs(C - C.T).max() > 1e-12 * size:
        raise ValueError("C must be finite and symmetric")
    lowest = np.linalg.eigvalsh(C).min()
    if lowest < -1e-10 * size:
        raise ValueError(f"C has eigenvalue {lowest:.3g}; it must be positive semidefinite")
    return C
