"""Pure attention as mean and residual, so that doubly exponential decay is seen to the end.

In float64 the tokens of a pure attention network are equal after three layers, although their
differences go on shrinking. Split arithmetic never adds the two, and carries the residual with an
integer exponent, so that it neither rounds off nor underflows.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from .metrics import norm_1inf

_LOG2 = math.log(2.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """X = 1 x^T + 2^exponent R before the first layer and after every layer.

    Attributes:
        x: `(L + 1, d)` the part that all tokens share.
        R: `(L + 1, n, d)` residual, its largest entry between 1/2 and 1 (0 if there is none).
        exponent: `(L + 1,)` whole numbers.
        D: `(L, H, n)` ranges max_j E_ij - min_j E_ij of the score residuals, as logarithms.
        r: `(L, H, n)` the attention row that all tokens share.
    """

    x: Float[np.ndarray, "depth d"]
    R: Float[np.ndarray, "depth n d"]
    exponent: Float[np.ndarray, " depth"]
    D: Float[np.ndarray, "layers H n"]
    r: Float[np.ndarray, "layers H n"]

    def log_residual(self, norm: str = "frobenius") -> Float[np.ndarray, " depth"]:
        """log ||res X|| around the column mean, "frobenius" or "1inf"; -inf for equal tokens."""
        R = self.R - self.R.mean(axis=1, keepdims=True)
        return self._log(R, norm)

    def log_distance(self, norm: str = "1inf") -> Float[np.ndarray, " depth"]:
        """log ||X - 1 x^T|| around the centre that is carried, which is what the bounds bound."""
        return self._log(self.R, norm)

    def log_relative_residual(self) -> Float[np.ndarray, " depth"]:
        """log of ||res X||_F / ||X||_F."""
        mean = np.stack(
            [_ldexp(R.mean(axis=0), int(e)) for R, e in zip(self.R, self.exponent, strict=True)]
        )
        with np.errstate(divide="ignore"):
            shared = np.log(np.sum((self.x + mean) ** 2, axis=-1) * self.R.shape[1])
        rest = 2 * self.log_residual()
        return 0.5 * (rest - np.logaddexp(shared, rest))

    @property
    def exponents(self) -> Float[np.ndarray, " layers"]:
        """log ||res X_{l+1}||_F / log ||res X_l||_F, which tends to 3 for pure attention."""
        log = self.log_residual()
        return log[1:] / log[:-1]

    def _log(self, R: np.ndarray, norm: str) -> np.ndarray:
        if norm not in ("frobenius", "1inf"):
            raise ValueError(f'norm={norm!r} is not known; choose "frobenius" or "1inf"')
        size = norm_1inf(R) if norm == "1inf" else np.sqrt(np.sum(R**2, axis=(1, 2)))
        with np.errstate(divide="ignore"):
            return np.log(size) + _LOG2 * self.exponent


def split(X, W_QK, W, d_qk: int | None = None) -> Split:
    """Tokens of a pure attention network, layer by layer, as mean and residual.

        X' = sum_h softmax(X W_QK,h X^T / sqrt(d_qk)) X W_h
        x' = sum_h (x + R^T r_h)^T W_h,    R' = sum_h Delta_h R W_h,
        r = softmax(R W_QK^T x / sqrt(d_qk)),    E = R W_QK R^T / sqrt(d_qk),
        Delta_ij = r_j (expm1(E_ij) - m_i) / (1 + m_i),    m_i = sum_k r_k expm1(E_ik)

    Args:
        X: `(n, d)` tokens.
        W_QK: `(L, H, d, d)` products W_Q W_K^T.
        W: `(L, H, d, d)` products W_V W_O.
        d_qk: channels of queries and keys; d by default.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, (A, B) = rng.normal(size=(4, 8)), rng.normal(size=(2, 6, 1, 8, 8)) / 8**0.5
        >>> (split(0.3 * X, A, B).log_residual() / np.log(10)).round().tolist()
        [0.0, -1.0, -5.0, -18.0, -54.0, -163.0, -491.0]

    Reference:
        Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, theorem 2.2.
    """
    X, A, B = checked(X, W_QK, W)
    scale = 1 / math.sqrt(d_qk or X.shape[1])
    x, (R, e) = X.mean(axis=0), _normal(_centred(X), 0)
    kept: tuple[list, ...] = ([x], [R], [e], [], [])
    for W_QK_l, W_l in zip(A, B, strict=True):
        new_x, new_R = np.zeros_like(x), np.zeros_like(R)
        D_l, r_l = [], []
        for Q, V in zip(W_QK_l, W_l, strict=True):
            r = _softmax(_ldexp(R @ (Q.T @ x), e) * scale)
            E = (R @ Q @ R.T) * scale  # times 2^(2 e)
            with np.errstate(divide="ignore"):
                D_l.append(np.log(np.ptp(E, axis=1)) + 2 * e * _LOG2)
            full = _ldexp(E, 2 * e)
            grown = E * _expm1_over(full)
            m = grown @ r
            # Delta = 2^(2 e) (...), so that nothing underflows
            Delta = r * (grown - m[:, None]) / (1 + _ldexp(m, 2 * e))[:, None]
            new_x += (x + _ldexp(r @ R, e)) @ V
            new_R += Delta @ R @ V
            r_l.append(r)
        x, (R, e) = new_x, _normal(new_R, 3 * e)
        for values, value in zip(kept, (x, R, e, D_l, r_l), strict=True):
            values.append(value)
    return Split(*(np.asarray(values, float) for values in kept))


def checked(X, W_QK, W) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens and weights of a pure attention network in float64, with their shapes checked."""
    X, A, B = (np.asarray(a, float) for a in (X, W_QK, W))
    if X.ndim != 2 or len(X) < 2:
        raise ValueError(f"X must have shape (tokens, channels), two tokens or more, got {X.shape}")
    d = X.shape[1]
    for name, M in (("W_QK", A), ("W", B)):
        if M.ndim != 4 or M.shape[2:] != (d, d) or M.shape[:2] != A.shape[:2]:
            raise ValueError(
                f"{name} must have shape (layers, heads, {d}, {d}), the same layers and heads in "
                f"both, got {M.shape}"
            )
    if not all(np.isfinite(a).all() for a in (X, A, B)):
        raise ValueError("X, W_QK and W must be finite")
    return X, A, B


def _centred(X: np.ndarray) -> np.ndarray:
    R = X - X.mean(axis=0)
    return R - R.mean(axis=0)


def _normal(R: np.ndarray, exponent: int) -> tuple[np.ndarray, int]:
    """R and its exponent with the largest entry between 1/2 and 1."""
    shift = int(np.frexp(np.abs(R).max())[1])
    return _ldexp(R, -shift), exponent + shift


def _ldexp(a: np.ndarray, exponent: int) -> np.ndarray:
    """a 2^exponent, for exponents of any size."""
    return np.ldexp(a, max(-5000, min(5000, exponent)))


def _softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max())
    return e / e.sum()


def _expm1_over(a: np.ndarray) -> np.ndarray:
    """expm1(a) / a, which is 1 at 0."""
    return np.where(a == 0, 1.0, np.expm1(a) / np.where(a == 0, 1.0, a))
