"""Generalisation error of kernel regression from eigenvalues and targets: the self-consistent
theory, for a population and for subsets of a finite set."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy.optimize import root_scalar


@dataclasses.dataclass(frozen=True)
class Predicted:
    """Errors that the theory predicts for `n` training points.

    Attributes:
        n: training points.
        kappa: the effective ridge; modes with eigenvalues above it are learned.
        learnability: the part of every mode's coefficient that is recovered, 0 to 1; they sum to at
            most n.
        test_mse: mean squared error at points outside the training set, averaged over outputs.
        train_mse: the same on the training set.
    """

    n: int
    kappa: float
    learnability: Float[np.ndarray, " modes"]
    test_mse: float
    train_mse: float


def population_error(
    eigenvalues: Float[np.ndarray, " modes"],
    coefficients: Float[np.ndarray, "rows *outputs"],
    n: int,
    noise: float,
    *,
    label_noise: float = 0.0,
) -> Predicted:
    """Errors on n independent points of a population whose Mercer decomposition is known.

        k(x, y) = sum_i l_i phi_i(x) phi_i(y),    f = sum_i v_i phi_i,    E phi_i phi_j = [i = j],
        n = sum_i L_i + noise / kappa,            L_i = l_i / (l_i + kappa),
        test  = n / (n - sum_i L_i^2) * (sum_i (1 - L_i)^2 v_i^2 + label_noise),
        train = (noise / (n kappa))^2 * test

    for regression with K + noise I. Exact as n and the number of modes grow together, if
    the phi_i(x) behave like independent standard Gaussians. Both errors include the noise of the
    labels.

    Args:
        eigenvalues: of the integral operator (not of a Gram matrix, which has n times them), none
            negative, one of them positive.
        coefficients: (modes,) or (modes, outputs).
        n: training points.
        noise: the ridge on the Gram matrix, not negative.
        label_noise: variance of independent noise on the labels.

    Returns:
        `Predicted`. Without noise and with exactly as many points as positive eigenvalues the
        errors are infinite.

    Raises:
        ValueError: what is negative or not finite, or shapes that do not match.

    Example:
        >>> p = population_error(np.ones(4), np.ones(4), n=2, noise=0.0)
        >>> round(p.kappa, 6), round(p.test_mse, 6)
        (1.0, 2.0)

    Reference:
        Bordelon, Canatar, Pehlevan 2020 (arXiv 2002.02561); Simon, Dickens, Karkada, DeWeese 2021
        (arXiv 2110.03922), sections 3 and 4.
    """
    l, power = _modes(eigenvalues, coefficients, n, noise)
    if np.min(l) < 0:
        raise ValueError(
            f"eigenvalues go down to {np.min(l):.3g}; those of an integral operator are not "
            "negative. Leave out what is rounding"
        )
    if not label_noise >= 0:
        raise ValueError(f"label_noise={label_noise} is a variance; give 0 or more")
    rank = np.count_nonzero(l)
    if noise == 0 and n >= rank:
        kappa, L = 0.0, (l > 0).astype(float)
        over = n / (n - rank) if n > rank else float("inf")
        return Predicted(n, kappa, L, over * (float(power[l == 0].sum()) + label_noise), 0.0)
    kappa = _root(l, n, noise)
    L = l / (l + kappa)
    rest = float(np.sum((1 - L) ** 2 * power)) + label_noise
    # n - sum L^2, with n from its own equation: no cancellation.
    test = n * rest / (float(np.sum(L * (1 - L))) + noise / kappa)
    return Predicted(n, kappa, L, test, (noise / (n * kappa)) ** 2 * test)


def subset_error(
    eigenvalues: Float[np.ndarray, " N"],
    coefficients: Float[np.ndarray, "rows *outputs"],
    n: int,
    noise: float,
) -> Predicted:
    """Errors of training on n of N given points, from the eigenvectors of all N.

    With the eigenvalues d_i of the (N, N) Gram matrix K, the targets' coefficients c_i = v_i^T y,
    and e_i = d_i + noise,

        n     = sum_i L_i,    L_i = e_i / (e_i + kappa),
        test  = sum_i (1 - L_i)^2 c_i^2 / (N - n) * n / (n - sum_i L_i^2),
        train = (noise / n * sum_i 1 / (e_i + kappa))^2 * test

    where test is the error on the N - n other points. This is `population_error` for the empirical
    distribution, with two things made exact: points are drawn without replacement, and those of the
    training set are not counted as test points. (A subset's K + noise I is a block of the whole
    set's, so the ridge joins the eigenvalues.) At n = N the test error becomes that of generalised
    cross-validation.

    Transductive: eigenvectors and coefficients use the inputs and targets of all N points. Assumed:
    for the choice of a subset, eigenvectors are like random orthogonal ones. Points that differ
    much in how well they are represented break this; compare with `learning_curve`.

    Args:
        eigenvalues, coefficients: of `spectrum(K, targets)`.
        n: training points, 1 to N.
        noise: the ridge; K + noise I must be positive definite.

    Returns:
        `Predicted`.

    Raises:
        ValueError: K + noise I is not positive definite; what is not finite; shapes that do not
            match.

    Example:
        >>> d, c = np.array([4.0, 1.0]), np.array([2.0, 1.0])
        >>> gcv = np.mean((c / (d + 1)) ** 2) / np.mean(1 / (d + 1)) ** 2
        >>> bool(np.isclose(subset_error(d, c, n=2, noise=1.0).test_mse, gcv))
        True

    Reference:
        Canatar, Bordelon, Pehlevan 2021 (Nature Communications 12, 2914) for the use of empirical
        eigenfunctions. The form here follows from the S-transform of a random projection in place
        of that of a Wishart matrix (as in Atanasov, Zavatone-Veth, Pehlevan 2024, arXiv
        2405.00592).
    """
    d, power = _modes(eigenvalues, coefficients, n, noise)
    N = len(d)
    e = d + noise
    if np.min(e) <= 0:
        raise ValueError(
            f"the smallest eigenvalue of K + noise I is {np.min(e):.3g} with noise {noise:g}; it "
            f"must be positive. Use a noise above {max(0.0, -float(np.min(d))):.3g}"
        )
    if n > N:
        raise ValueError(f"n={n} training points out of {N}; n is at most {N}")
    kappa = 0.0 if n == N else _root(e, n, 0.0)
    inverse = 1 / (e + kappa)
    # N - n = kappa sum 1/(e + kappa) and n - sum L^2 = kappa sum e/(e + kappa)^2: kappa cancels.
    P = float(np.sum(inverse))
    test = n * float(np.sum(power * inverse**2)) / (P * float(np.sum(e * inverse**2)))
    return Predicted(n, kappa, e * inverse, test, (noise * P / n) ** 2 * test)


def _modes(eigenvalues, coefficients, n, noise) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, and the squares of the coefficients averaged over outputs."""
    l, v = np.asarray(eigenvalues, float), np.asarray(coefficients, float)
    if l.ndim != 1 or not len(l) or v.ndim not in (1, 2) or len(v) != len(l):
        raise ValueError(
            f"eigenvalues must be (modes,) and coefficients (modes,) or (modes, outputs), got "
            f"shapes {l.shape} and {v.shape}"
        )
    if not (np.all(np.isfinite(l)) and np.all(np.isfinite(v))):
        raise ValueError("eigenvalues and coefficients must be finite")
    if not np.max(l) > 0:
        raise ValueError(f"the largest eigenvalue is {np.max(l):.3g}; one must be positive")
    if n < 1:
        raise ValueError(f"n={n}; there is at least one training point")
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise={noise} is a variance; give a finite number, 0 or more")
    return l, np.mean(v.reshape(len(l), -1) ** 2, axis=1)


def _root(l: np.ndarray, n: int, noise: float) -> float:
    """kappa with sum l / (l + kappa) + noise / kappa = n, which has one root above zero."""
    high = (float(l.sum()) + noise) / n  # sum l / (l + kappa) <= sum l / kappa

    def excess(log: float) -> float:
        kappa = np.exp(log)
        return float(np.sum(l / (l + kappa)) + noise / kappa) - n

    top = np.log(high) + 1e-9
    step, bottom = 1.0, top
    while excess(bottom) <= 0:
        step, bottom = 2 * step, bottom - step
    found = root_scalar(excess, bracket=(bottom, top), method="brentq", xtol=1e-13, rtol=1e-14)
    return float(np.exp(found.root))
