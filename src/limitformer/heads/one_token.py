"""One token's output of an attention layer of width n, exactly: S normals and two chi's a head.

With tokens X (n x S), X^T X / n = L L^T, and heads of width d, all draws independent, z iid normal:

    q_1 . k_c / sqrt d = s_QK |L_1| (chi_d / sqrt d) (L z)_c      the scores of token 1: given the
                         query only its length matters, |W_Q x_1| = |x_1| chi_d / sqrt n
    K'_11 = (s_OV^2 / H) sum_h |L^T a_h|^2 chi^2_d / d            a_h = softmax of these scores
    y_1i  = sqrt(K'_11) z_i,   i = 1, ..., n

As n -> inf, chi^2 / n -> 1 and L L^T -> C: the mixture of theory 3. `wishart` has all tokens
together; this has the marginal law of one at a small part of the cost.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

_BLOCK = 4096

Inputs = Callable[[np.random.Generator, int], np.ndarray]
"""`(rng, runs) -> L`, factors `(runs, S, S)` with L L^T = X^T X / n."""


@dataclasses.dataclass(frozen=True, eq=False)
class OneToken:
    """Draws of the first token; made by `one_token`.

    Attributes:
        scores: of the first head, `(runs, S)`.
        variance: K'_11, of a coordinate given everything but W_O.
        outputs: the coordinate y_11.
        second_moment: (1/n) sum_i y_1i^2 over all coordinates, y_11 among them.
    """

    scores: Float[np.ndarray, "runs S"]
    variance: Float[np.ndarray, " runs"]
    outputs: Float[np.ndarray, " runs"]
    second_moment: Float[np.ndarray, " runs"]


def one_token(
    inputs: Inputs,
    n: float,
    *,
    heads: int,
    key: PRNGKeyArray,
    runs: int,
    head_width: int | None = None,
    qk_std: float = 1.0,
    ov_std: float = 1.0,
) -> OneToken:
    """Exact draws of the first token's output of a softmax attention layer at scale "sqrt".

    Args:
        inputs: the law of the tokens: `fixed_inputs`, `gaussian_inputs`,
            `linear_inputs` or `relu_inputs`.
        n: width; math.inf for the limit.
        heads: H.
        key: randomness.
        runs: independent draws of inputs and weights.
        head_width: of queries, keys and values; None for n.
        qk_std, ov_std: s_QK and s_OV.

    Raises:
        ValueError: heads, runs, n or head_width that are not positive whole numbers.

    Example:
        >>> limit = one_token(
        ...     fixed_inputs(np.eye(4)), math.inf, heads=2, key=jax.random.key(0), runs=40_000
        ... )
        >>> print(round(limit.variance.mean(), 2))
        0.39

    Reference:
        The layer is that of Sakai, Karakida, Imaizumi 2025, arXiv 2506.00846.
    """
    d = n if head_width is None else head_width
    for name, value in {"n": n, "heads": heads, "head_width": d, "runs": runs}.items():
        limit = name in ("n", "head_width") and value == math.inf
        if not limit and (isinstance(value, bool) or value != value // 1 or value < 1):
            raise ValueError(f"{name}={value!r}; it must be a positive whole number")
    seeds = np.random.SeedSequence(np.asarray(jax.random.key_data(key)).ravel().tolist())
    parts = []
    for start, seed in zip(
        range(0, runs, _BLOCK), seeds.spawn(math.ceil(runs / _BLOCK)), strict=True
    ):
        rng = np.random.default_rng(seed)
        L = inputs(rng, min(_BLOCK, runs - start))
        parts.append(_block(rng, L, n, d, int(heads), qk_std, ov_std))
    return OneToken(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _block(rng, L, n: float, d: float, heads: int, qk_std: float, ov_std: float) -> tuple:
    runs, S, _ = L.shape
    length = (
        qk_std * np.linalg.norm(L[:, 0], axis=-1)[:, None] * np.sqrt(_chi2(rng, d, runs, heads))
    )
    G = length[..., None] * (rng.standard_normal((runs, heads, S)) @ np.swapaxes(L, 1, 2))
    A = np.exp(G - G.max(axis=-1, keepdims=True))
    A /= A.sum(axis=-1, keepdims=True)
    v = np.sum((A @ L) ** 2, axis=-1) * _chi2(rng, d, runs, heads)
    K = ov_std**2 * v.mean(axis=1)
    z2, y = 1.0, rng.standard_normal(runs)
    if n < math.inf:
        rest = rng.chisquare(n - 1, runs) if n > 1 else 0.0
        z2 = (y * y + rest) / n
    return G[:, 0], K, np.sqrt(K) * y, K * z2


def _chi2(rng, d: float, *shape: int) -> Any:
    """chi^2 with d degrees of freedom over d; 1 in the limit."""
    return np.ones(shape) if d == math.inf else rng.chisquare(d, shape) / d


def fixed_inputs(C: Any) -> Inputs:
    """Tokens with X^T X / n = C in every run: of the limit, or given."""
    L = np.linalg.cholesky(np.asarray(C, float))
    return lambda rng, runs: np.broadcast_to(L, (runs, *L.shape))


def gaussian_inputs(C: Any, n: int) -> Inputs:
    """Tokens with n iid coordinates N(0, C): a dense layer on fixed inputs. Bartlett's factor."""
    root = np.linalg.cholesky(np.asarray(C, float))
    S = len(root)
    if n < S:
        raise ValueError(f"n={n} dimensions for {S} tokens; Bartlett's factor needs n >= {S}")
    diagonal = np.arange(S)

    def draw(rng: np.random.Generator, runs: int) -> np.ndarray:
        T = np.tril(rng.standard_normal((runs, S, S)), -1)
        T[:, diagonal, diagonal] = np.sqrt(rng.chisquare(n - diagonal, (runs, S)))
        return root @ T / math.sqrt(n)

    return draw


def linear_inputs(S: int, n: int) -> Inputs:
    """S tokens x_i = W_i h of one random vector h ~ N(0, I), with a W_i of its own for each.

    Given h the tokens are iid N(0, |h|^2 / n I): C = I, times chi^2_n / n.
    """
    given_h = gaussian_inputs(np.eye(S), n)

    def draw(rng: np.random.Generator, runs: int) -> np.ndarray:
        return given_h(rng, runs) * np.sqrt(_chi2(rng, n, runs))[:, None, None]

    return draw


def relu_inputs(S: int, n: int) -> Inputs:
    """S tokens x_i = relu(W_i h): as `linear_inputs`, then the rectified ones' Gram matrix.

    A mean over n iid coordinates of S normals each, C = 1/2 on and 1 / (2 pi) off the diagonal:
    n S normals a run, no n x n matrices.
    """

    def draw(rng: np.random.Generator, runs: int) -> np.ndarray:
        gram = np.empty((runs, S, S))
        for part in np.array_split(np.arange(runs), math.ceil(runs * n * S / 2**20)):
            x = rng.standard_normal((len(part), S, n), dtype=np.float32)
            np.maximum(x, 0, out=x)
            gram[part] = x @ np.swapaxes(x, 1, 2)
        gram *= (_chi2(rng, n, runs) / n)[:, None, None]
        return _root(gram)

    return draw


def _root(gram: np.ndarray) -> np.ndarray:
    """A factor of matrices that may be singular: a token can be rectified to zero."""
    w, U = np.linalg.eigh(gram)
    return U * np.sqrt(np.maximum(w, 0.0))[:, None, :]
