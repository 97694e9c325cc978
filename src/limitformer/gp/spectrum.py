"""Eigenvalues of a Gram matrix, and where its targets lie among the eigenvectors."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Array, Float, Num

JACKKNIFE = 10


@dataclasses.dataclass(frozen=True)
class Decay:
    """A power law through ordered eigenvalues, eigenvalue_i ~ scale * i^-exponent.

    Attributes:
        exponent: minus the slope of log eigenvalue on log rank.
        sem: its standard error from a jackknife over ten stretches of ranks, equally long on the
            logarithmic axis. Neighbouring eigenvalues are not independent, so single ones are never
            left out alone; curvature (no power law) makes it large. That the eigenvalues are those
            of a sample is no part of it.
        scale: eigenvalue of rank 1 on the fitted line.
        first, last: ranks of the fit, from 1, both included.
        r2: the part of the variance of log eigenvalues that the line explains.
    """

    exponent: float
    sem: float
    scale: float
    first: int
    last: int
    r2: float

    def __call__(self, rank: Num[np.ndarray, " ranks"]) -> Float[np.ndarray, " ranks"]:
        """The fitted eigenvalues at these ranks."""
        return self.scale * np.asarray(rank, float) ** -self.exponent


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """What `spectrum` finds in a Gram matrix. Nothing is clipped.

    Attributes:
        eigenvalues: descending, negative ones included.
        negative: the eigenvalues below zero. Those above -`floor` are rounding; below it, K is no
            Gram matrix of any kernel (or one with sampling noise).
        floor: n eps(dtype of K) * largest |eigenvalue|; eigenvalues below it carry no information.
        asymmetry: largest |K - K^T| relative to the largest |K|; eigenvalues are those of
            (K + K^T) / 2.
        decay: the power law, None if fewer than ten eigenvalues are above `floor` in its range.
        coefficients: v_i^T y, targets in the eigenvectors; None without targets.
        alignment: centred kernel-target alignment with all outputs; None without targets, nan if
            the centred kernel or targets vanish.
        output_alignment: the same for every output alone.
    """

    eigenvalues: Float[np.ndarray, " n"]
    negative: Float[np.ndarray, " negative"]
    floor: float
    asymmetry: float
    decay: Decay | None
    coefficients: Float[np.ndarray, "n outputs"] | None = None
    alignment: float | None = None
    output_alignment: Float[np.ndarray, " outputs"] | None = None

    @property
    def condition(self) -> float:
        """Largest by smallest eigenvalue; infinite unless all are positive."""
        smallest = self.eigenvalues[-1]
        return float(self.eigenvalues[0] / smallest) if smallest > 0 else float("inf")

    @property
    def rank(self) -> int:
        """The number of eigenvalues whose size is above the floor."""
        return int(np.count_nonzero(np.abs(self.eigenvalues) > self.floor))

    @property
    def effective_rank(self) -> float:
        """exp of the entropy of |eigenvalues| / sum |eigenvalues| (Roy and Vetterli 2007)."""
        size = np.abs(self.eigenvalues)
        p = size[size > 0] / size.sum()
        return float(np.exp(-np.sum(p * np.log(p))))

    @property
    def participation_ratio(self) -> float:
        """(sum of eigenvalues)^2 / sum of squares: n if all are equal, 1 if there is one."""
        return float(self.eigenvalues.sum() ** 2 / np.sum(self.eigenvalues**2))

    @property
    def power(self) -> Float[np.ndarray, "n outputs"] | None:
        """The part of y^T y in the leading 1, 2, .. n eigenvectors; nan for an output of zeros."""
        if self.coefficients is None:
            return None
        return _cumulative(self.coefficients**2)

    @property
    def total_power(self) -> Float[np.ndarray, " n"] | None:
        """The same for all outputs together."""
        if self.coefficients is None:
            return None
        return _cumulative(np.sum(self.coefficients**2, axis=1))

    def effective_dimension(self, noise) -> float | np.ndarray:
        """Degrees of freedom at these noise variances: tr K (K + noise I)^{-1}.

        Args:
            noise: a number, or an array of them.

        Returns:
            A float, or an array of the same shape.

        Raises:
            ValueError: K + noise I is not positive definite.
        """
        noise = np.asarray(noise, float)
        smallest = self.eigenvalues[-1]
        # Every noise has to be finite, and to lift the smallest eigenvalue above zero.
        bad = ~(np.isfinite(noise) & (noise >= 0) & (noise + smallest > 0))
        if np.any(bad):
            given = float(noise[bad].flat[0]) if noise.ndim else float(noise)
            raise ValueError(
                f"noise {given:g} with a smallest eigenvalue of {smallest:.3g}: K + noise I must "
                f"be positive definite; use a finite noise above {max(0.0, -smallest):.3g}"
            )
        value = np.sum(self.eigenvalues / (self.eigenvalues + noise[..., None]), axis=-1)
        return float(value) if value.ndim == 0 else value


def spectrum(
    K: Num[Array | np.ndarray, "rows columns"],
    targets: Num[Array | np.ndarray, "samples *outputs"] | None = None,
    *,
    fit: tuple[int, int] | None = None,
) -> Spectrum:
    """Eigenvalues, their decay, and the alignment of targets with the eigenvectors.

        K = V diag(eigenvalues) V^T,    coefficients = V^T Y,
        alignment = <Kc, Yc Yc^T> / (||Kc|| ||Yc Yc^T||),    Kc = H K H, Yc = H Y, H = I - 11^T / n

    Everything is computed in float64, whatever the type of K, and describes the given inputs as a
    whole; nothing is held out. Targets are used as they are in `coefficients` and centred in the
    alignment.

    Args:
        K: (n, n), symmetric up to sqrt(eps) of its type; take `k.nngp` or `k.ntk`.
        targets: (n,) or (n, outputs); classes as one-hot columns.
        fit: first and last rank of the power law; None: from n^(1/4) (at least 2, the first
            eigenvalue is often that of the constant) to n / 2 (the last ones of a sample lie below
            the power law of the population). Eigenvalues below the floor are never used.

    Returns:
        A `Spectrum`.

    Raises:
        ValueError: K is not square, not symmetric or not finite; targets of another length or not
            finite; ranks that do not exist.

    Example:
        >>> s = spectrum(np.diag([4.0, 1.0]), np.array([2.0, 1.0]))
        >>> s.eigenvalues, s.condition, s.effective_dimension(1.0)
        (array([4., 1.]), 4.0, 1.3)
        >>> s.total_power
        array([0.8, 1. ])

    Reference:
        Cortes, Mohri, Rostamizadeh 2012, *Algorithms for learning kernels based on centered
        alignment*, definition 4; Canatar, Bordelon, Pehlevan 2021 (cumulative power).
    """
    K, floor_of, asymmetry = checked_gram(K)
    n = len(K)
    Y = None if targets is None else checked_targets(targets, n)
    if Y is None:
        eigenvalues, V = np.linalg.eigvalsh(K)[::-1], None
    else:
        eigenvalues, V = np.linalg.eigh(K)
        eigenvalues, V = eigenvalues[::-1], V[:, ::-1]
    floor = floor_of * float(np.max(np.abs(eigenvalues)))
    result = Spectrum(
        eigenvalues=eigenvalues.copy(),
        negative=eigenvalues[eigenvalues < 0],
        floor=floor,
        asymmetry=asymmetry,
        decay=_decay(eigenvalues, floor, fit),
    )
    if Y is None or V is None:
        return result
    each, together = _alignment(K, Y)
    return dataclasses.replace(
        result, coefficients=V.T @ Y, alignment=together, output_alignment=each
    )


def checked_gram(K) -> tuple[np.ndarray, float, float]:
    """A symmetric float64 copy of K, n eps of its own type, and its asymmetry."""
    given = np.asarray(K)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not len(given):
        raise ValueError(
            f"K must be a Gram matrix (n, n), got shape {given.shape}; take k.nngp or k.ntk of "
            "net.kernel(x) with y=None"
        )
    if not np.all(np.isfinite(given)):
        bad = np.argwhere(~np.isfinite(given))
        i, j = bad[0]
        raise ValueError(
            f"K has {len(bad)} entries that are not finite, the first at [{i}, {j}]; look for "
            "non-finite inputs, or compute the kernel in float64"
        )
    eps = float(np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps)
    full = given.astype(np.float64)
    largest = float(np.max(np.abs(full)))
    difference = float(np.max(np.abs(full - full.T)))
    asymmetry = difference / largest if largest else 0.0
    if asymmetry > np.sqrt(eps):
        raise ValueError(
            f"K is not symmetric: K - K^T has an entry of {difference:.3g}, {asymmetry:.1g} of the "
            "largest entry; a Gram matrix is net.kernel(x) without y"
        )
    return (full + full.T) / 2, len(full) * eps, asymmetry


def checked_targets(targets, n: int) -> np.ndarray:
    """Targets as a float64 matrix (n, outputs)."""
    Y = np.asarray(targets).astype(np.float64)
    if Y.ndim not in (1, 2) or len(Y) != n:
        raise ValueError(
            f"targets must be ({n},) or ({n}, outputs) to match K, got shape {Y.shape}"
        )
    if not np.all(np.isfinite(Y)):
        raise ValueError(
            f"targets have {np.count_nonzero(~np.isfinite(Y))} values that are not finite; drop "
            "those rows from the targets and from K"
        )
    return Y.reshape(n, -1)


def _cumulative(power: np.ndarray) -> np.ndarray:
    total = power.sum(axis=0)
    return np.cumsum(power, axis=0) / np.where(total > 0, total, np.nan)


def _alignment(K: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, float]:
    rows = K.mean(axis=0)
    Kc = K - rows[:, None] - rows[None, :] + rows.mean()
    Yc = Y - Y.mean(axis=0)
    # A constant leaves rounding behind, which has no direction.
    eps = np.finfo(float).eps
    Kc = np.where(np.max(np.abs(Kc)) > len(K) * eps * np.max(np.abs(K)), Kc, 0.0)
    Yc = np.where(np.max(np.abs(Yc), 0) > len(K) * eps * np.max(np.abs(Y), 0), Yc, 0.0)
    KY = Kc @ Yc
    norm = np.linalg.norm(Kc)
    sizes = norm * np.sum(Yc**2, axis=0)
    each = np.sum(Yc * KY, axis=0) / np.where(sizes > 0, sizes, np.nan)
    size = norm * np.linalg.norm(Yc.T @ Yc)
    return each, float(np.sum(Yc * KY) / size) if size > 0 else float("nan")


def _decay(eigenvalues: np.ndarray, floor: float, fit: tuple[int, int] | None) -> Decay | None:
    n = len(eigenvalues)
    if fit is None:
        first, last = max(2, round(n**0.25)), n // 2
    else:
        first, last = fit
        if not 1 <= first < last <= n:
            raise ValueError(
                f"fit={fit}: give the first and the last rank, 1 <= first < last <= {n}"
            )
    last = min(last, int(np.count_nonzero(eigenvalues > floor)))
    if last - first + 1 < JACKKNIFE:
        return None
    x = np.log(np.arange(first, last + 1))
    y = np.log(eigenvalues[first - 1 : last])
    # 1/i: every stretch of the logarithmic axis counts the same.
    weight = np.exp(-x)
    slope, level = _line(x, y, weight)
    edges = np.linspace(x[0], x[-1], JACKKNIFE + 1)
    group = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, JACKKNIFE - 1)
    groups = np.unique(group)
    slopes = np.array([_line(x[group != g], y[group != g], weight[group != g])[0] for g in groups])
    count = len(groups)
    sem = np.sqrt((count - 1) / count * np.sum((slopes - slopes.mean()) ** 2))
    spread = np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)
    rest = np.average((y - level - slope * x) ** 2, weights=weight)
    r2 = 1 - rest / spread if spread > 0 else 1.0
    return Decay(float(-slope), float(sem), float(np.exp(level)), first, last, float(r2))


def _line(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Slope and level of a weighted least-squares line."""
    x0, y0 = np.average(x, weights=weight), np.average(y, weights=weight)
    slope = np.sum(weight * (x - x0) * (y - y0)) / np.sum(weight * (x - x0) ** 2)
    return float(slope), float(y0 - slope * x0)
