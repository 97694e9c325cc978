"""Upper bounds on what is left of the residual after layers of attention, in log scale.

||.||_{1,inf} = sqrt(||.||_1 ||.||_inf) has no triangle inequality, so sums over heads are bounded
in the two norms separately, and combined at the end. Bounds hold for the distance to the centre
that attention itself carries on, x' = (x + R^T r) W, hence for the smallest residual over centres;
the residual around the mean is at most 2 (1 - 1/n) times as large.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.distance import pdist
from scipy.special import logsumexp

from .metrics import dobrushin
from .split import Split, checked, split

LARGEST_RANGE = 1.256
"""exp(D) - 1 <= 2 D up to here: what Dong's theorems ask of the score residuals."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bound:
    """A bound after every layer, beside what it bounds.

    Attributes:
        name: whose bound.
        log: `(L,)` logarithm of the bound after each layer.
        log_actual: `(L,)` logarithm of the quantity itself.
        violated: `(L,)` the hypothesis does not hold in this layer or an earlier one: the number
            is then no bound.
        vacuous: `(L,)` the bound is no smaller than what the values alone allow, maps of any kind.
    """

    name: str
    log: Float[np.ndarray, " layers"]
    log_actual: Float[np.ndarray, " layers"]
    violated: Bool[np.ndarray, " layers"]
    vacuous: Bool[np.ndarray, " layers"]

    @property
    def informative(self) -> Bool[np.ndarray, " layers"]:
        """The hypothesis holds and the bound says something."""
        return ~self.violated & ~self.vacuous

    def __str__(self) -> str:
        lines = [f"{self.name}\n{'layer':>5} {'log10 bound':>12} {'log10 actual':>13}  flags"]
        ten = math.log(10)
        for i, (bound, actual) in enumerate(zip(self.log, self.log_actual, strict=True)):
            flags = [
                word
                for word, on in (
                    ("hypothesis violated", self.violated[i]),
                    ("vacuous", self.vacuous[i]),
                )
                if on
            ]
            lines.append(f"{i + 1:>5} {bound / ten:12.4g} {actual / ten:13.4g}  {', '.join(flags)}")
        return "\n".join(lines)


def dong(X, W_QK, W, d_qk: int | None = None, lipschitz: float = 1.0) -> Bound:
    """Dong's bound of L layers and H heads; its first entry is the bound of one layer.

        log ||R_L|| <= (3^L - 1)/2 log(4 gamma beta H lambda / sqrt(d_qk)) + 3^L log ||R_0||,
        beta = max ||W_QK||_1 sqrt(max ||W||_1 max ||W||_inf),
        gamma^2 = max ||D 1||_1 ||r||_inf / ||D 1||_inf,    if D <= 1.256

    in ||.||_{1,inf}, with maxima over the heads and layers so far. The layers of the tokens
    themselves give D and r.

    Args:
        X, W_QK, W, d_qk: as in `limitformer.depth.split.split`.
        lipschitz: lambda, a constant of the MLP after every layer in ||.||_{1,inf}. Without MLPs 1;
            otherwise `log_actual`, D and r are those of the attention alone.

    Reference:
        Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, theorems 2.1 to 2.3.
    """
    X, A, B = checked(X, W_QK, W)
    s = split(X, A, B, d_qk)
    d = d_qk or X.shape[1]
    L, H = A.shape[:2]
    one, infinity = _norms(B)
    beta = _so_far(_norms(A)[0]) + 0.5 * (_so_far(one) + _so_far(infinity))
    gamma = _so_far(_log_gamma(s))
    constant = math.log(4 * H * lipschitz / math.sqrt(d)) + gamma + beta
    start, layer = s.log_distance()[0], np.arange(1, L + 1, dtype=float)
    log = (3**layer - 1) / 2 * constant + 3**layer * start
    return _bound("Dong 2021", log, s, B, lipschitz)


def measured(X, W_QK, W, d_qk: int | None = None) -> Bound:
    """Dong's argument with every layer's own numbers in place of their maxima.

        ||R'||_1   <= sum_h 2 ||D_h 1||_1 ||r_h||_inf ||W_h||_1 ||R||_1,
        ||R'||_inf <= sum_h 2 ||D_h 1||_inf ||W_h||_inf ||R||_inf,    if D <= 1.256

    multiplied along the layers, then combined to ||.||_{1,inf}.

    Args:
        X, W_QK, W, d_qk: as in `limitformer.depth.split.split`.
    """
    X, A, B = checked(X, W_QK, W)
    s = split(X, A, B, d_qk)
    one, infinity = _norms(B)
    with np.errstate(divide="ignore"):
        rows = np.log(2) + _log_sum(s.D, axis=-1) + np.log(s.r.max(axis=-1)) + one
    columns = np.log(2) + s.D.max(axis=-1) + infinity
    both = 0.5 * (_log_sum(rows, axis=1) + _log_sum(columns, axis=1))
    log = s.log_distance()[0] + np.cumsum(both)
    return _bound("measured", log, s, B, 1.0)


def dobrushin_bound(A, W, X=None) -> Bound:
    """Dobrushin's bound on the diameter of the tokens; it needs no hypothesis.

        diam(sum_h A_h X W_h) <= sum_h tau(A_h) ||W_h||_2 diam(X),
        diam(X) = max_ij ||x_i - x_j||_2

    Args:
        A: `(L, H, n, n)` attention maps.
        W: `(L, H, d, d)` products W_V W_O.
        X: `(n, d)` tokens at the input; None: relative to a diameter of 1, and nothing actual. With
            X, the maps are applied to it as they are.
    """
    A, W = np.asarray(A, float), np.asarray(W, float)
    if A.ndim != 4 or W.ndim != 4 or A.shape[:2] != W.shape[:2]:
        raise ValueError(
            f"A must be (layers, heads, n, n) and W (layers, heads, d, d), got {A.shape}, {W.shape}"
        )
    with np.errstate(divide="ignore"):
        tau = np.log(np.asarray(dobrushin(A)))
        norms = np.log(np.linalg.norm(W, 2, axis=(-2, -1)))
    log, free = (np.cumsum(_log_sum(v, axis=1)) for v in (tau + norms, norms))
    start, actual = 0.0, np.full(len(A), np.nan)
    if X is not None:
        X = np.asarray(X, float)
        start = _log_diameter(X)
        for l, (A_l, W_l) in enumerate(zip(A, W, strict=True)):
            X = np.einsum("hij,jc,hcd->id", A_l, X, W_l)
            actual[l] = _log_diameter(X)
    none = np.zeros(len(A), bool)
    return Bound("Dobrushin", start + log, actual, none, log >= free - 1e-12 * np.abs(free))


def _bound(name: str, log, s: Split, W: np.ndarray, lipschitz: float) -> Bound:
    violated = np.maximum.accumulate(s.D.max(axis=(1, 2)) > math.log(LARGEST_RANGE))
    one, infinity = (_log_sum(v, axis=1) for v in _norms(W))
    free = s.log_distance()[0] + np.cumsum(0.5 * (one + infinity) + math.log(lipschitz))
    return Bound(name, log, s.log_distance()[1:], violated, log >= free)


def _norms(W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log ||W||_1 and log ||W||_inf of every layer and head."""
    size = np.abs(W)
    with np.errstate(divide="ignore"):
        return tuple(np.log(size.sum(axis=a).max(axis=-1)) for a in (-2, -1))  # type: ignore[return-value]


def _log_gamma(s: Split) -> np.ndarray:
    """log gamma of every layer and head."""
    top = s.D.max(axis=-1)
    shape = np.where(np.isfinite(top), _log_sum(s.D, axis=-1) - top, 0.0)
    return 0.5 * (shape + np.log(s.r.max(axis=-1)))


def _log_sum(values: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(logsumexp(values, axis=axis))


def _so_far(values: np.ndarray) -> np.ndarray:
    """Largest over heads, and over layers up to each."""
    return np.maximum.accumulate(values.max(axis=1))


def _log_diameter(X: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(pdist(X).max()))
