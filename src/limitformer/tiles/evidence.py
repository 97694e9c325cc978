"""Log-determinant and evidence of a stored kernel by stochastic Lanczos quadrature."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.linalg

from ..gp.noise import variances
from .cg import RANK
from .matrix import as_matrix
from .nystrom import nystrom
from .product import stored_product
from .schedule import runner
from .solve import solve
from .solver import diagonal


@dataclasses.dataclass(frozen=True)
class LogDeterminant:
    """log det (K + D).

    Attributes:
        value: the estimate.
        sem: its standard error over the probes.
        probes, steps: random vectors, and products with K of each.
    """

    value: float
    sem: float
    probes: int
    steps: int


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Log marginal likelihood of targets, summed over outputs.

    Attributes:
        value: -1/2 tr(y^T (K + D)^{-1} y) - outputs/2 log det (K + D) - n outputs/2 log 2 pi.
        sem: its standard error, from the log-determinant.
        logdet: log det (K + D).
        residual: of the solve.
    """

    value: float
    sem: float
    logdet: LogDeterminant
    residual: float


def log_determinant(
    K: Any,
    *,
    noise: Any = 1e-2,
    probes: int = 16,
    steps: int = 30,
    rank: int = RANK,
    seed: int = 0,
    scheduler: Any = None,
) -> LogDeterminant:
    """log det (K + D) by Lanczos quadrature on random signs, all at once.

    With P a Nystrom approximation of K + D, log det (K + D) = log det P + tr log(P^{-1/2} (K + D)
    P^{-1/2}); only the second, small term is estimated: z^T log(A) z = n sum_k t_k^2 log(l_k) with
    l, t the eigenvalues and first components of the Lanczos matrix of A started at z.

    Args:
        K, noise: as for `solve`, with noise above 0.
        probes: random vectors, at least 2; the standard error falls with their root.
        steps: Lanczos steps; each reads K once.
        rank, seed: of the approximation and of the probes.
        scheduler: as for `lf.gram`, to multiply on workers.

    Example:
        >>> import numpy as np
        >>> from limitformer.tiles import log_determinant
        >>> found = log_determinant(np.diag(np.arange(1.0, 9.0)), noise=1.0, rank=8)
        >>> round(found.value, 6), round(float(np.log(np.arange(2.0, 10.0)).sum()), 6)
        (12.801827, 12.801827)

    Reference:
        Ubaru, Chen, Saad 2017 (quadrature); Gardner et al. 2018, arXiv 1809.11165.
    """
    if probes < 2 or steps < 1:
        raise ValueError(f"probes={probes}, steps={steps}: use at least 2 probes and 1 step")
    matrix = as_matrix(K, square=True)
    D = variances(noise, diagonal(matrix))
    if not (D > 0).all():
        raise ValueError("the noise must be above 0, for example noise=lf.relative(1e-6)")
    order = matrix.orders[0]
    D = D if order is None else D[order]
    n = len(D)
    P = nystrom(matrix, D, rank, seed)
    root = np.sqrt(D)[:, None]

    signs = np.random.default_rng([seed, 1]).integers(0, 2, (n, probes)) * 2.0 - 1.0
    with runner(scheduler) as run:
        shared = None if scheduler is None else run

        def times(V: np.ndarray) -> np.ndarray:
            V = P.half_solve(V)
            return P.half_solve(stored_product(matrix, V / root, shared) / root + V)

        traces = _lanczos_log(times, signs, min(steps, n))
    sem = float(traces.std(ddof=1) / math.sqrt(probes))
    return LogDeterminant(P.logdet + float(traces.mean()), sem, probes, min(steps, n))


def _lanczos_log(times, Z: np.ndarray, steps: int) -> np.ndarray:
    """z^T log(A) z of every column z, with full reorthogonalisation."""
    n, k = Z.shape
    norms = np.linalg.norm(Z, axis=0)
    Q = np.zeros((steps, n, k))
    a, b = np.zeros((steps, k)), np.zeros((steps, k))
    q = Z / norms
    for s in range(steps):
        Q[s] = q
        w = times(q)
        a[s] = np.sum(q * w, axis=0)
        for _ in range(2):  # once loses digits where vectors are nearly dependent
            w = w - np.einsum("snk,sk->nk", Q[: s + 1], np.einsum("snk,nk->sk", Q[: s + 1], w))
        b[s] = np.linalg.norm(w, axis=0)
        alive = b[s] > 1e-12 * np.abs(a[0])
        b[s] = np.where(alive, b[s], 0.0)  # an invariant subspace: what follows has no weight
        q = np.where(alive, w / np.where(alive, b[s], 1.0), 0.0)
        if not alive.any():
            break
    out = np.empty(k)
    for c in range(k):
        size = 1 + int(np.argmax(b[:, c] == 0.0)) if (b[:, c] == 0.0).any() else steps
        l, T = scipy.linalg.eigh_tridiagonal(a[:size, c], b[: size - 1, c])
        if l[0] <= 0:
            raise ValueError(
                f"the kernel with noise has the eigenvalue {l[0]:.2g} (preconditioned), below 0: "
                "it is not positive definite; use more noise"
            )
        out[c] = norms[c] ** 2 * np.sum(T[0] ** 2 * np.log(l))
    return out


def evidence(
    K: Any, y, *, noise: Any = 1e-2, probes: int = 16, steps: int = 30, **options
) -> Evidence:
    """The log evidence of targets under a stored kernel, with its standard error.

    Args:
        K, y, noise: as for `solve`.
        probes, steps: of the log-determinant.
        options: others of `solve`.

    Returns:
        An `Evidence`; a Cholesky factor, where it fits, gives the log-determinant exactly (sem 0).
    """
    found = solve(K, y, noise=noise, **options)
    targets = np.asarray(y, np.float64).reshape(len(found.noise), -1)
    if found.logdet is not None:
        logdet = LogDeterminant(found.logdet, 0.0, 0, 0)
    else:
        own = {name: options[name] for name in ("rank", "seed", "scheduler") if name in options}
        logdet = log_determinant(K, noise=found.noise, probes=probes, steps=steps, **own)
    n, outputs = targets.shape
    fit = float(np.vdot(targets, found.alpha.reshape(n, outputs)))
    value = -0.5 * (fit + outputs * (logdet.value + n * math.log(2 * math.pi)))
    return Evidence(value, 0.5 * outputs * logdet.sem, logdet, found.residual)
