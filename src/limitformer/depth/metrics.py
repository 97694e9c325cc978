"""How far tokens have collapsed: metrics of activations, of token kernels and of attention maps.

Every function takes activations `(..., tokens, channels)`, or with `kernel=` a token kernel
`(..., tokens, tokens)`, and a mask `(..., tokens)`, True where a token is valid; it computes in
float64 and returns one number per input. Equal tokens are collapsed, also where all of them are
zero: residual 0, cosine 1, ranks 1 (0 if the input is zero). An input with fewer than two valid
tokens is an error.

Notation (theory 4): X `(n, d)` the valid tokens, K = X X^T / d, res X = X - 1 x^T.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from ..layers.base import choice
from .tokens import Tokens, rounding, rows, scaled, tokens, valid_tokens


def relative_residual(x=None, *, kernel=None, mask=None, norm="frobenius", centre="mean") -> Any:
    """Size of what tokens do not have in common, between 0 (collapsed) and 1 (Frobenius).

        ||res X||_F / ||X||_F = sqrt(1 - 1^T K 1 / (n tr K)),
        ||X||_{1,inf} = sqrt(||X||_1 ||X||_inf)    (largest column sum, largest row sum)

    From activations the residual is computed before its norm is taken, so it is right to relative
    rounding of the tokens themselves: residuals down to 1e-15. A kernel holds its square beside 1:
    residuals below 1e-8 in float64, or 3e-4 in float32, are lost (see `resolution`).

    Args:
        x: `(..., tokens, channels)`, or
        kernel: `(..., tokens, tokens)`; Frobenius norm only.
        mask: `(..., tokens)`, True where valid.
        norm: "frobenius" or "1inf".
        centre: "mean", or for "1inf" also "median" of the columns.

    Example:
        >>> relative_residual([[1.0, 1.0], [1.0, -1.0]]) ** 2
        0.5000000000000001
        >>> relative_residual(kernel=[[2.0, 2.0], [2.0, 2.0]])
        0.0

    Reference:
        Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, section 2.
    """
    choice("norm", norm, ("frobenius", "1inf"))
    choice("centre", centre, ("mean", "median"))
    t = tokens(x, kernel, mask)
    if norm == "frobenius":
        if centre == "median":
            raise ValueError('centre="median" belongs to norm="1inf"; the Frobenius centre is mean')
        if t.X is None:
            return _number(_residual_of_kernel(t))
        return _number(_ratio(_frobenius(residual(t.X, t.mask, "mean")), _frobenius(t.X)))
    if t.X is None:
        raise ValueError('norm="1inf" needs activations; a kernel determines the Frobenius norm')
    X = scaled(t.X)
    return _number(_ratio(norm_1inf(residual(X, t.mask, centre)), norm_1inf(X)))


def resolution(x=None, *, kernel=None) -> float:
    """Smallest relative residual that numbers of this type can show: eps, or sqrt(eps) in a kernel.

    Example:
        >>> f"{resolution(kernel=np.eye(2)):.1e}"
        '1.5e-08'
    """
    eps = rounding(np.asarray(kernel if x is None else x))
    return float(np.sqrt(eps)) if x is None else eps


def cosine_gap(x=None, *, kernel=None, mask=None) -> Any:
    """1 - mean token cosine, with all its digits where tokens are nearly parallel.

        1 - cosine = ||res U||_F^2 / (n - 1),    U the tokens divided by their norms

    The cosine of a zero token is 0 with any other token, and 1 with another zero token.
    """
    t = tokens(x, kernel, mask)
    square = t.squares if t.X is None else np.sum(scaled(t.X) ** 2, axis=-1)
    some = square > 0
    m, zeros = some.sum(-1), t.n - some.sum(-1)
    inverse = np.where(some, 1 / np.sqrt(np.where(some, square, 1.0)), 0.0)
    if t.X is not None:
        U = scaled(t.X) * inverse[..., None]
        apart = m * np.sum(residual(U, some, "mean") ** 2, axis=(-2, -1))
    else:
        pairs = some[..., :, None] & some[..., None, :]
        C = t.K * inverse[..., :, None] * inverse[..., None, :]
        apart = np.sum(np.where(pairs, 1 - C, 0.0), axis=(-2, -1))
    return _number((2 * m * zeros + apart) / (t.n * (t.n - 1)))


def mean_cosine(x=None, *, kernel=None, mask=None) -> Any:
    """Mean cosine of two different tokens: 1 where all point the same way.

        1 / (n (n - 1)) sum_{a != b} K_ab / sqrt(K_aa K_bb)

    Example:
        >>> mean_cosine([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]).__round__(4)
        0.3333
    """
    return _number(1 - np.asarray(cosine_gap(x, kernel=kernel, mask=mask)))


def effective_rank(x=None, *, kernel=None, mask=None) -> Any:
    """exp of the entropy of the eigenvalues of K (not centred), between 1 and n; 0 if K = 0.

        exp(-sum_i p_i log p_i),    p_i = lambda_i / tr K

    1 means that all tokens are multiples of one vector. K is not centred, because the residual of
    nearly equal tokens may have any rank.

    Reference:
        Roy, Vetterli 2007, *The effective rank*.
    """
    p = _spectrum(tokens(x, kernel, mask))
    first, rest = p[..., 0], p[..., 1:].sum(axis=-1)
    # log p_1 from the others' sum, which has the digits where p_1 is nearly 1
    top = np.where(rest < 0.5, first * np.log1p(-np.minimum(rest, 0.5)), _plogp(first))
    entropy = -top - _plogp(p[..., 1:]).sum(axis=-1)
    return _number(np.where(first > 0, np.exp(entropy), 0.0))


def stable_rank(x=None, *, kernel=None, mask=None) -> Any:
    """||X||_F^2 / ||X||_2^2 = tr K / lambda_max(K), between 1 and n; 0 if K = 0."""
    p = _spectrum(tokens(x, kernel, mask))
    return _number(_ratio(p.sum(axis=-1), p[..., 0]))


def dirichlet_energy(x=None, *, kernel=None, mask=None, weights=None) -> Any:
    """How much neighbours differ, per token and channel, in the graph of an attention map.

        E = 1 / (2 n) sum_ab A_ab (K_aa + K_bb - 2 K_ab),    K = X X^T / d

    Without `weights` every token is a neighbour of every other, A = 1 1^T / n, and
    E = ||res X||_F^2 / (n d).

    Args:
        x, kernel, mask: as in `relative_residual`.
        weights: `(..., tokens, tokens)` attention map A.
    """
    t = tokens(x, kernel, mask)
    if t.X is not None:
        R = residual(t.X, t.mask, "mean")
        K = np.matmul(R, np.swapaxes(R, -1, -2)) / t.X.shape[-1]
    else:
        K = _centred_kernel(t)
    if weights is None:
        return _number(np.maximum(np.trace(K, axis1=-2, axis2=-1), 0.0) / t.n)
    A = np.asarray(weights, float)
    pairs = t.mask[..., :, None] & t.mask[..., None, :]
    v = np.diagonal(K, axis1=-2, axis2=-1)
    apart = np.maximum(v[..., :, None] + v[..., None, :] - 2 * K, 0.0)
    return _number(np.sum(np.where(pairs, A * apart, 0.0), axis=(-2, -1)) / (2 * t.n))


def attention_entropy(A, *, mask=None) -> Any:
    """Mean entropy in nats of the rows of an attention map, from 0 (one key) to log n (uniform).

    Args:
        A: `(..., queries, keys)` weights; every valid row sums to 1.
        mask: `(..., queries)`, True where a query is valid.

    Example:
        >>> attention_entropy([[0.5, 0.5], [1.0, 0.0]]).__round__(4)
        0.3466
    """
    A, valid = _map(A, mask)
    each = -_plogp(A).sum(axis=-1)
    return _number(np.sum(np.where(valid, each, 0.0), axis=-1) / valid.sum(axis=-1))


def dobrushin(A, *, mask=None) -> Any:
    """Dobrushin's coefficient: 0 where all queries attend alike, 1 where two share no key.

        tau(A) = max_ij ||A_i - A_j||_1 / 2,    diam(A X) <= tau(A) diam(X)

    Args:
        A, mask: as in `attention_entropy`.

    Example:
        >>> dobrushin([[0.5, 0.5], [0.75, 0.25]])
        0.25
    """
    A, valid = _map(A, mask)
    found = np.zeros(valid.shape[:-1])
    for i in np.ndindex(found.shape):
        A_i = A[i][valid[i]]
        found[i] = pdist(A_i, "cityblock").max() / 2 if len(A_i) > 1 else 0.0
    return _number(np.minimum(found, 1.0))


def residual(X: np.ndarray, valid: np.ndarray, centre: str) -> np.ndarray:
    """res X = X - 1 x^T on valid tokens, zero on the others; x the columns' mean or median."""
    at = valid[..., None]
    if centre == "median":
        return np.where(at, X - np.nanmedian(np.where(at, X, np.nan), axis=-2, keepdims=True), 0.0)
    n = np.maximum(valid.sum(axis=-1), 1)[..., None, None]
    R = np.where(at, X - X.sum(axis=-2, keepdims=True) / n, 0.0)
    return np.where(at, R - R.sum(axis=-2, keepdims=True) / n, 0.0)  # rounding of the first mean


def norm_1inf(X: np.ndarray) -> Any:
    """||X||_{1,inf} = sqrt(||X||_1 ||X||_inf)."""
    size = np.abs(X)
    return np.sqrt(size.sum(axis=-2).max(axis=-1)) * np.sqrt(size.sum(axis=-1).max(axis=-1))


def _frobenius(X: np.ndarray) -> Any:
    """||X||_F, also of matrices whose squares would underflow."""
    size = np.frexp(np.abs(X).max(axis=(-2, -1)))[1]
    return np.ldexp(np.sqrt(np.sum(scaled(X) ** 2, axis=(-2, -1))), size)


def _residual_of_kernel(t: Tokens) -> Any:
    """sqrt(tr P K P / tr K)."""
    t = dataclasses.replace(t, K=scaled(t.K))
    square = _ratio(*(np.trace(K, axis1=-2, axis2=-1) for K in (_centred_kernel(t), t.K)))
    return np.sqrt(np.clip(square, 0.0, 1.0))


def _centred_kernel(t: Tokens) -> np.ndarray:
    """P K P with P = I - 1 1^T / n on valid tokens."""
    n = t.n[..., None, None]
    K = np.where(t.mask[..., :, None], t.K - t.K.sum(axis=-2, keepdims=True) / n, 0.0)
    return np.where(t.mask[..., None, :], K - K.sum(axis=-1, keepdims=True) / n, 0.0)


def _spectrum(t: Tokens) -> np.ndarray:
    """Eigenvalues of K over their sum, largest first; zeros if K = 0."""
    if t.X is not None:
        values = np.linalg.svd(scaled(t.X), compute_uv=False) ** 2
    else:
        values = np.maximum(np.linalg.eigvalsh(scaled(t.K))[..., ::-1], 0.0)
    return _ratio(values, values.sum(axis=-1, keepdims=True))


def _map(A, mask) -> tuple[np.ndarray, np.ndarray]:
    """An attention map, with the rows of padded queries set to zero, and its valid rows."""
    given = np.asarray(A)
    eps, A = rounding(given), given.astype(float)
    if A.ndim < 2:
        raise ValueError(f"an attention map has shape (..., queries, keys), got {given.shape}")
    valid = valid_tokens(mask, A.shape[:-2], A.shape[-2])
    empty = ~valid.any(axis=-1)
    if empty.any():
        raise ValueError(f"{rows(empty)} have no valid query")
    A = np.where(valid[..., None], A, 0.0)
    wrong = (A < 0).any(-1) | ~(np.abs(A.sum(-1) - 1) <= np.sqrt(eps) + 2 * eps * A.shape[-1])
    if (wrong & valid).any():
        raise ValueError(
            "rows of an attention map must be weights that sum to 1; for rows that do not "
            "(ReLU or identity attention, padded queries) pass mask= or leave the metric out"
        )
    return A, valid


def _plogp(p: Any) -> np.ndarray:
    return np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0)


def _ratio(above: Any, below: Any) -> np.ndarray:
    """Zero where nothing is divided by nothing."""
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)


def _number(value) -> Any:
    value = np.asarray(value)
    return value if value.ndim else float(value)
