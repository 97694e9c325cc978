"""Gaussian process classification with a softmax likelihood, by Laplace's approximation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import linalg
from scipy.special import expit, log_expit, logsumexp, softmax

from .class_integrals import integrate, true_log_loss
from .one_vs_rest import _finite, _symmetric, encode

blas: Any = linalg.blas  # names that scipy's stubs do not list
lapack: Any = linalg.lapack
CHUNK = 2**22  # numbers held at once by a prediction


@dataclasses.dataclass(frozen=True)
class ClassPosterior:
    """What a Laplace classifier says about new inputs; made by `Laplace.predict`.

    Attributes:
        classes: the labels that the columns of `probabilities` stand for.
        mean: of the latent functions, one per class; for two classes one, that of the second
            class against the first.
        covariance: of the latent functions of each input.
        probabilities: posterior mean of the softmax.
        sem: standard error of the probabilities as integrals (not of the approximation): 0 for
            two classes, where the quadrature has an error of about 1e-14.
        clipped: how many latent variances were negative by rounding and were set to 0.
    """

    classes: Shaped[np.ndarray, " classes"]
    mean: Float[np.ndarray, "m latents"]
    covariance: Float[np.ndarray, "m latents latents"]
    probabilities: Float[np.ndarray, "m classes"]
    sem: Float[np.ndarray, "m classes"]
    clipped: int

    @property
    def labels(self) -> Shaped[np.ndarray, " m"]:
        """The most probable class."""
        return self.classes[self.probabilities.argmax(axis=1)]


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Every training input predicted from the others; made by `Laplace.leave_one_out`.

    Attributes:
        mean, covariance: of the latent functions at each input when it is left out.
        probabilities: of the classes.
        log_loss, log_loss_sem: mean -log probability of the true class, and its standard error.
        accuracy, accuracy_sem: and its binomial standard error.
    """

    mean: Float[np.ndarray, "n latents"]
    covariance: Float[np.ndarray, "n latents latents"]
    probabilities: Float[np.ndarray, "n classes"]
    log_loss: float
    log_loss_sem: float
    accuracy: float
    accuracy_sem: float


@dataclasses.dataclass(frozen=True)
class Laplace:
    """A Gaussian at the mode of the posterior; made by `fit`, `fit_softmax`, `fit_logistic`.

    Attributes:
        classes: the labels that the columns of probabilities stand for.
        index: the place of every training label among them.
        amplitude: the factor on the kernel that was given.
        mode: latent functions at the training inputs, one per class (two classes: one).
        dual: K^{-1} mode, which at the mode is the target minus its probability.
        log_evidence: Laplace's approximation of log p(labels).
        iterations: Newton steps.
        gradient_norm: largest entry of the gradient of the log posterior at the mode.
        converged: whether it is below the tolerance.
        inverses: E_c = (K + D_c^{-1})^{-1}, D_c = diag(probability of c); in the lower triangles.
        factor: lower Cholesky factor of sum_c E_c; None with one latent function.
        calibration: factor on the latent deviations in `predict`; 1 unless `calibrate` set it.
    """

    classes: Shaped[np.ndarray, " classes"]
    index: Int[np.ndarray, " n"]
    amplitude: float
    mode: Float[np.ndarray, "n latents"]
    dual: Float[np.ndarray, "n latents"]
    log_evidence: float
    iterations: int
    gradient_norm: float
    converged: bool
    inverses: tuple[Float[np.ndarray, "n n"], ...]
    factor: Float[np.ndarray, "n n"] | None
    calibration: float = 1.0

    def latent(
        self, K_test: Float[np.ndarray, "m n"], K_diag: Float[np.ndarray, " m"]
    ) -> tuple[Float[np.ndarray, "m latents"], Float[np.ndarray, "m latents latents"]]:
        """Mean and covariance of the latent functions at new inputs.

            mean_c = k(x) dual_c
            cov_cd = [c = d] (k(x, x) - k(x) E_c k(x)^T) + k(x) E_c (sum_b E_b)^{-1} E_d k(x)^T

        Args:
            K_test: kernel between new and training inputs (before the amplitude).
            K_diag: kernel of each new input with itself.

        Raises:
            ValueError: shapes that do not fit the training set, non-finite numbers.

        Reference:
            Rasmussen, Williams, algorithms 3.2 and 3.4.
        """
        K_test, K_diag = np.asarray(K_test, float), np.asarray(K_diag, float)
        n, latents = self.mode.shape
        m = len(K_test)
        if K_test.ndim != 2 or K_test.shape[1] != n or K_diag.shape != (m,):
            raise ValueError(
                f"K_test {K_test.shape} and K_diag {K_diag.shape} should be (m, {n}) and (m,): the "
                "kernel between m new inputs and the training inputs, and of each with itself."
            )
        _finite(K_test=K_test, K_diag=K_diag)
        covariance = np.zeros((m, latents, latents))
        index = np.arange(latents)
        step = max(1, CHUNK // (n * latents))
        for start in range(0, m, step):
            rows = slice(start, min(start + step, m))
            k = np.asfortranarray(self.amplitude * K_test[rows].T)
            Ek = [blas.dsymm(1.0, E, k, lower=1) for E in self.inverses]
            diagonal = np.stack([np.einsum("nm,nm->m", k, v) for v in Ek], axis=1)
            if self.factor is not None:
                half = np.stack([lapack.dtrtrs(self.factor, v, lower=1)[0] for v in Ek])
                covariance[rows] = np.einsum("cnm,dnm->mcd", half, half, optimize=True)
            prior = self.amplitude * K_diag[rows, None]
            covariance[rows, index, index] += prior - diagonal
        return self.amplitude * (K_test @ self.dual), covariance

    def predict(
        self,
        K_test: Float[np.ndarray, "m n"],
        K_diag: Float[np.ndarray, " m"],
        *,
        points: int = 256,
        replicates: int = 8,
        seed: int = 0,
    ) -> ClassPosterior:
        """Class probabilities, the mean of the softmax under the latent Gaussian.

        Two classes: quadrature (`mean_sigmoid`). More: the average over `replicates` independently
        scrambled Sobol sets of `points` each, the same for every input; its standard error comes
        from the scatter of the replicates. `seed` fixes the scrambling, so that predictions are
        a deterministic function of the kernels.

        Args:
            K_test: kernel between new and training inputs (before the amplitude).
            K_diag: kernel of each new input with itself.
            points: a power of two.
            replicates: at least two.
            seed: of the scrambling.

        Raises:
            ValueError: what `latent` raises; points or replicates out of range.
        """
        if points < 1 or points & (points - 1) or replicates < 2:
            raise ValueError(
                f"points={points} should be a power of two and replicates={replicates} at least 2."
            )
        mean, covariance = self.latent(K_test, K_diag)
        covariance = self.calibration**2 * covariance
        options = (points, replicates, seed)
        return ClassPosterior(
            self.classes, mean, covariance, *integrate(mean, covariance, *options)
        )

    def leave_one_out(self, K: Float[np.ndarray, "n n"]) -> LeftOut:
        """Every training input predicted from the others, without a new fit.

            S = latent covariance,  W = Hessian,  g = y - p,  each of one input at the mode
            left out:  covariance S (I - W S)^{-1},   mean  f - S (I - W S)^{-1} g

        which takes the input's own likelihood, a Gaussian at the mode, out of the approximation.
        It is exact for a Gaussian likelihood; here it neglects how the other inputs' Hessians
        would change. Costs about three Newton steps.

        Args:
            K: the kernel that was fitted (before the amplitude).

        Reference:
            Opper, Winther, *Gaussian processes for classification: mean-field algorithms*, Neural
            Computation 12, 2000; written here for several classes.
        """
        f, S = self.latent(K, np.diagonal(K))
        if f.shape[1] == 1:
            p, y = expit(f), self.index[:, None].astype(float)
            W = (p * (1 - p))[:, :, None]
        else:
            p, y = softmax(f, axis=1), np.eye(len(self.classes))[self.index]
            W = p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])
        cavity = np.linalg.solve(np.eye(f.shape[1]) - S @ W, S)
        cavity = (cavity + cavity.swapaxes(1, 2)) / 2
        mean = f - np.einsum("ncd,nd->nc", cavity, y - p)
        covariance = self.calibration**2 * cavity
        probabilities = integrate(mean, covariance, 256, 8, 0)[0]
        loss = true_log_loss(probabilities, self.index)
        n, right = len(loss), float(np.mean(probabilities.argmax(axis=1) == self.index))
        return LeftOut(
            mean=mean,
            covariance=covariance,
            probabilities=probabilities,
            log_loss=float(loss.mean()),
            log_loss_sem=float(loss.std(ddof=1) / np.sqrt(n)),
            accuracy=right,
            accuracy_sem=float(np.sqrt(right * (1 - right) / n)),
        )


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
