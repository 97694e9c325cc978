"""The mode of a Gaussian process classifier's latent functions, by Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import linalg
from scipy.special import expit, log_expit, logsumexp, softmax

from .laplace import Laplace
from .one_vs_rest import _finite, _symmetric, encode

blas: Any = linalg.blas  # names that scipy's stubs do not list
lapack: Any = linalg.lapack


def fit(
    K: Float[np.ndarray, "n n"],
    labels: Shaped[np.ndarray, " n"],
    *,
    classes: Any = None,
    amplitude: float = 1.0,
    tolerance: float = 1e-9,
    max_steps: int = 100,
) -> Laplace:
    """Laplace's approximation: every class has a latent function f_c ~ GP(0, amplitude K).

        p(label_i = c | f) = exp f_c(x_i) / sum_b exp f_b(x_i)

    With two classes only f_2 - f_1 ~ GP(0, 2 amplitude K) matters, and `fit_logistic` is used with
    that kernel: a third of the cost, and the same probabilities and evidence as `fit_softmax`.
    More classes: `fit_softmax`. K may be singular (duplicates are no problem); there is no noise.

    Args:
        K: kernel of the training inputs.
        labels: the class of each, of any dtype that sorts.
        classes: all classes, where the training labels lack some; None: those that occur.
        amplitude: factor on the kernel; it decides how sure a prediction can be, and
            `fit_amplitude` chooses it by the evidence.
        tolerance: on the largest entry of the gradient of the log posterior.
        max_steps: of Newton's method.

    Returns:
        `Laplace`; look at `converged`.

    Raises:
        ValueError: a single class, an unknown label, non-finite numbers, a kernel that is not
            positive semidefinite.

    Example:
        >>> x = np.array([-2.0, -1.0, 1.0, 2.0, 5.0])
        >>> k = lambda x, y: np.exp(-0.5 * (x[:, None] - y) ** 2)
        >>> model = fit(k(x, x), np.array(["a", "a", "b", "b", "c"]), amplitude=9.0)
        >>> model.converged, bool(model.log_evidence > -5 * np.log(3))
        (True, True)
        >>> new = np.array([-1.5, 1.5, 5.0])
        >>> model.predict(k(new, x), np.ones(3)).labels.tolist()
        ['a', 'b', 'c']

    Reference:
        Rasmussen, Williams, *Gaussian processes for machine learning*, 2006, chapter 3.
    """
    names, _ = encode(labels, classes)
    two = len(names) == 2
    return (fit_logistic if two else fit_softmax)(
        K,
        labels,
        classes=names,
        amplitude=2 * amplitude if two else amplitude,
        tolerance=tolerance,
        max_steps=max_steps,
    )


def fit_logistic(
    K: Float[np.ndarray, "n n"],
    labels: Shaped[np.ndarray, " n"],
    *,
    classes: Any = None,
    amplitude: float = 1.0,
    tolerance: float = 1e-9,
    max_steps: int = 100,
) -> Laplace:
    """Two classes, one latent function f ~ GP(0, amplitude K), p(second class) = 1 / (1 + e^{-f}).

        D = diag(p (1 - p)),    E = (K + D^{-1})^{-1} = D^{1/2} B^{-1} D^{1/2}
        B = I + D^{1/2} K D^{1/2}
        Newton:  dual <- b - E K b,  b = D f + y - p;    f = K dual
        log evidence = - dual^T f / 2 + log p(y | f) - log|B| / 2

    Steps are halved until the log posterior rises (it is concave).

    Args, Returns, Raises: as `fit`, with exactly two classes.

    Reference:
        Rasmussen, Williams, algorithms 3.1 and 3.2.
    """
    names, index = encode(labels, classes)
    if len(names) != 2:
        raise ValueError(f"fit_logistic takes two classes, not {names.tolist()}; use fit_softmax.")
    K = _kernel(K, index, amplitude)
    y = index.astype(float)[:, None]

    def log_likelihood(f: np.ndarray) -> float:
        return float(np.sum(log_expit(np.where(y > 0, f, -f))))

    def newton(f: np.ndarray) -> tuple[np.ndarray, float, tuple, None]:
        p = expit(f)
        D = p * (1 - p)
        half, E = _inverse(K, D[:, 0])
        b = D * f + y - p
        return b - blas.dsymm(1.0, E, K @ b, lower=1), half, (E,), None

    climbed = _climb(K, y, expit, log_likelihood, newton, tolerance, max_steps)
    return Laplace(classes=names, index=index, amplitude=float(amplitude), **climbed)


def fit_softmax(
    K: Float[np.ndarray, "n n"],
    labels: Shaped[np.ndarray, " n"],
    *,
    classes: Any = None,
    amplitude: float = 1.0,
    tolerance: float = 1e-9,
    max_steps: int = 100,
) -> Laplace:
    """A latent function per class, f_c ~ GP(0, amplitude K) independent.

    The Hessian of -log p(y | f) is W = D - Pi Pi^T, D = diag(p), Pi the (n classes, n) stack of
    diag(p_c). With E_c = D_c^{1/2} B_c^{-1} D_c^{1/2}, B_c = I + D_c^{1/2} K D_c^{1/2}, Woodbury's
    identity and Pi^T D^{-1} Pi = I leave one more n x n matrix, sum_c E_c:

        Newton:  dual_c <- b_c - E_c (K b_c - (sum_d E_d)^{-1} sum_d E_d K b_d),  b = W f + y - p
        log|I + K W| = sum_c log|B_c| + log|sum_c E_c|
        log evidence = - dual^T f / 2 + log p(y | f) - log|I + K W| / 2

    One Newton step costs `classes` Cholesky factorisations and inversions, n^3 flops each, and one
    more factorisation; memory is that of classes + 3 Grams. Steps are halved until the log
    posterior rises (it is concave).

    Args, Returns, Raises: as `fit`; two classes are allowed here too.

    Reference:
        Rasmussen, Williams, algorithms 3.3 and 3.4; the determinant is derived above, and includes
        the factor |sum_c E_c|.
    """
    names, index = encode(labels, classes)
    K = _kernel(K, index, amplitude)
    Y = np.eye(len(names))[index]

    def probability(f: np.ndarray) -> np.ndarray:
        return softmax(f, axis=1)

    def log_likelihood(f: np.ndarray) -> float:
        return float(np.sum(f[np.arange(len(f)), index] - logsumexp(f, axis=1)))

    def newton(f: np.ndarray) -> tuple[np.ndarray, float, tuple, np.ndarray]:
        p = probability(f)
        b = p * (f - np.sum(p * f, axis=1, keepdims=True)) + Y - p
        Kb = K @ b
        half = 0.0
        inverses = []
        total = np.zeros(K.shape, order="F")
        for c in range(len(names)):
            part, E = _inverse(K, p[:, c])
            half += part
            total += E
            inverses.append(E)
        factor, info = lapack.dpotrf(total, lower=1, overwrite_a=1, clean=1)
        if info:
            raise ValueError(_INDEFINITE)
        EKb = np.stack(
            [blas.dsymv(1.0, E, v, lower=1) for E, v in zip(inverses, Kb.T, strict=True)], axis=1
        )
        shift, _ = lapack.dpotrs(factor, EKb.sum(axis=1), lower=1)
        shift = np.stack([blas.dsymv(1.0, E, shift, lower=1) for E in inverses], axis=1)
        half += float(np.sum(np.log(np.diagonal(factor))))
        return b - EKb + shift, half, tuple(inverses), factor

    climbed = _climb(K, Y, probability, log_likelihood, newton, tolerance, max_steps)
    return Laplace(classes=names, index=index, amplitude=float(amplitude), **climbed)


_INDEFINITE = (
    "The kernel is not positive semidefinite: I + D^{1/2} K D^{1/2} has no Cholesky factor. If K "
    "was estimated by sampling, use more draws, or add a multiple of the identity to it."
)


def _kernel(K: Any, index: Int[np.ndarray, " n"], amplitude: float) -> Float[np.ndarray, "n n"]:
    K = np.asarray(K, float)
    if K.shape != (len(index), len(index)):
        raise ValueError(
            f"K has shape {K.shape} and there are {len(index)} labels; K must be n x n."
        )
    if not (np.isfinite(amplitude) and amplitude > 0):
        raise ValueError(f"amplitude={amplitude} should be a positive number.")
    _finite(K=K)
    _symmetric(K=K)
    return amplitude * K


def _inverse(
    K: Float[np.ndarray, "n n"], D: Float[np.ndarray, " n"]
) -> tuple[float, Float[np.ndarray, "n n"]]:
    """log|B| / 2, B = I + D^{1/2} K D^{1/2}, and D^{1/2} B^{-1} D^{1/2} in a lower triangle."""
    root = np.sqrt(D)
    B = np.empty(K.shape, order="F")
    np.multiply(K.T, root, out=B)  # K is symmetric, and its transpose lies as B does
    B *= root[:, None]
    B[np.diag_indices_from(B)] += 1.0
    B, info = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=0)
    if info:
        raise ValueError(_INDEFINITE)
    half = float(np.sum(np.log(np.diagonal(B))))
    B, _ = lapack.dpotri(B, lower=1, overwrite_c=1)
    B *= root
    B *= root[:, None]
    return half, B


def _climb(
    K: Float[np.ndarray, "n n"],
    Y: Float[np.ndarray, "n latents"],
    probability: Callable[[np.ndarray], np.ndarray],
    log_likelihood: Callable[[np.ndarray], float],
    newton: Callable[[np.ndarray], tuple],
    tolerance: float,
    max_steps: int,
) -> dict[str, Any]:
    """Newton's method with halved steps from f = 0; the factors are those at the mode."""
    dual, f = np.zeros_like(Y), np.zeros_like(Y)
    value = log_likelihood(f)
    iterations = 0
    while True:
        target, half, inverses, factor = newton(f)
        gradient = float(np.abs(Y - probability(f) - dual).max())
        if gradient <= tolerance or iterations == max_steps:
            break
        direction = target - dual
        change = K @ direction
        slope = float(np.sum((Y - probability(f) - dual) * change))
        step = 1.0
        while True:
            new_dual, new_f = dual + step * direction, f + step * change
            new_value = log_likelihood(new_f) - 0.5 * float(np.sum(new_dual * new_f))
            # Near the mode the rise is below rounding, and the full step the best there is.
            slack = 1e-12 * max(1.0, abs(value))
            if new_value >= value + 1e-4 * step * slope - slack or step < 1e-10:
                break
            step /= 2
        dual, f, value = new_dual, new_f, new_value
        iterations += 1
    return dict(
        mode=f,
        dual=dual,
        log_evidence=value - half,
        iterations=iterations,
        gradient_norm=gradient,
        converged=gradient <= tolerance,
        inverses=inverses,
        factor=factor,
    )
