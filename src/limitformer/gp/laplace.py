"""Gaussian process classification with a softmax likelihood, by Laplace's approximation."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import linalg
from scipy.special import expit, softmax

from .class_integrals import integrate, true_log_loss
from .one_vs_rest import _finite

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
