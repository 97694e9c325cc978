"""Condition an infinite network on data: the exact posterior, or the trained network's law."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from ..kernel.memory import memory_budget
from ..layers.base import Layer, choice, leaves
from . import evidence
from .flow import Modes
from .noise import variances
from .prediction import Prediction, check_variances, semidefinite_root
from .replicates import error_of
from .solve import Factor, warn_if_imprecise
from .training import (
    KINDS,
    KernelOptions,
    Replicated,
    check_targets,
    count,
    kernels,
    own_kernels,
    rows,
    token_rows,
)

_AHEAD = 256  # test inputs at a time, at least


@dataclasses.dataclass(frozen=True, eq=False)
class Posterior:
    """A network conditioned on data; made by `condition`. Factorised once, asked often.

    Attributes:
        net, x, x_mask, targets: what was given.
        kind: "nngp", "ntk" or "ntkgp".
        noise: what was added to the diagonal, one variance per target.
        options: how kernels are computed.
        K: NNGP of the training inputs (kinds "nngp" and "ntk").
        T: NTK of the training inputs (kinds "ntk" and "ntkgp").
    """

    net: Layer
    x: Any
    x_mask: Any
    targets: np.ndarray
    kind: str
    noise: np.ndarray
    options: KernelOptions
    K: Replicated | None
    T: Replicated | None

    def __repr__(self) -> str:
        n, outputs = self.y.shape
        return f"Posterior(kind={self.kind!r}, {n} targets, {outputs} output(s), {self.net!r})"

    @functools.cached_property
    def _rows(self) -> np.ndarray | None:
        size = count(self.x) * (self.targets.shape[1] if self.targets.ndim == 3 else 1)
        return token_rows(self.targets, size, self.x_mask)

    @functools.cached_property
    def y(self) -> np.ndarray:
        """Targets as `(n, outputs)`, without those of padded tokens."""
        y = self.targets
        y = y[:, None] if y.ndim == 1 else y.reshape(-1, y.shape[-1])
        return y if self._rows is None else y[self._rows]

    @property
    def gram(self) -> Replicated:
        """The kernel that is inverted: K for the NNGP, T otherwise."""
        found = self.K if self.kind == "nngp" else self.T
        assert found is not None
        return found

    @functools.cached_property
    def factor(self) -> Factor:
        """Cholesky factor of the kernel with noise."""
        return Factor(self.gram.value, self.noise)

    @functools.cached_property
    def alpha(self) -> np.ndarray:
        """(kernel + noise)^{-1} targets, `(n, outputs)`."""
        return self.factor.solve(self.y)

    @functools.cached_property
    def modes(self) -> Modes:
        """Eigenvectors of the tangent kernel, for training times."""
        return Modes(self.gram.value, self.noise)

    @property
    def residual(self) -> float:
        """Relative residual of the solve: |(kernel + noise) alpha - y| / |y|."""
        return self.factor.residual(self.gram.value, self.alpha, self.y)

    def predict(
        self, x, t: Any = None, cov: str | None = "full", observed: Any = False, x_mask=None
    ) -> Prediction:
        """Mean and covariance at new inputs.

        NNGP (and "ntkgp", with T for K): mean = K_*X M^{-1} y, cov = K_** - K_*X M^{-1} K_X*.
        NTK at time t: A = T_*X M^{-1} (I - exp(-t M)), mean = A y,
        cov = K_** + A K A^T - A K_X* - K_*X A^T, over the ensemble of initialisations.

        Args:
            x, x_mask: new inputs.
            t: training time, a number or an array (a leading axis in the result); None is the end.
            cov: "full", "diag" or None.
            observed: add the noise of a new observation to the covariance; True if the training
                noise is one number, else its variance.
            x_mask: valid tokens of the new inputs.

        Raises:
            ValueError: the kernel is so imprecise (too few draws, float32) that a variance comes
                out below zero.
        """
        if cov is not None:
            choice("cov", cov, ("full", "diag"))
        times = self._times(t)
        extra = self._observed(observed)
        m = count(x)
        size = m if cov == "full" else self._ahead()
        parts = [
            self._predict(*rows(x, x_mask, slice(i, i + size)), times, cov, extra)
            for i in range(0, m, size)
        ]
        join = lambda arrays, axis: None if arrays[0] is None else np.concatenate(arrays, axis)  # noqa: E731
        mean: Any
        mean, spread, error = zip(*parts, strict=True)
        mean, spread, error = join(mean, 1), join(spread, 1), join(error, 1)
        tokens = mean.shape[1] // m
        if np.ndim(t) == 0:
            mean, spread, error = (None if a is None else a[0] for a in (mean, spread, error))
        error = None if error is None else self._shaped(error, m, tokens)
        return Prediction(self._shaped(mean, m, tokens), spread, error, cov == "full")

    def sample(self, x, *, key, samples: int = 1, t: Any = None, x_mask=None) -> np.ndarray:
        """Joint draws of the outputs at new inputs, `(samples, *shape of the mean)`."""
        if np.ndim(t):
            raise ValueError("sample takes one time t; call it once per time")
        mean, cov = self.predict(x, t=t, x_mask=x_mask)
        flat = mean.reshape(len(cov), -1)
        half = semidefinite_root(cov)
        with jax.enable_x64(True):
            z = np.asarray(jax.random.normal(key, (samples, *flat.shape), "float64"))
        return (flat + half @ z).reshape(samples, *mean.shape)

    @functools.cached_property
    def log_evidence(self) -> float:
        """Log marginal likelihood of the targets, summed over outputs."""
        if self.kind == "ntk":
            raise ValueError(
                'a trained ensemble has no evidence; use kind="nngp" (the prior of the network) or '
                'kind="ntkgp" (the tangent kernel as a prior)'
            )
        return evidence.log_evidence(self.factor, self.alpha, self.y)

    @functools.cached_property
    def log_evidence_sem(self) -> float | None:
        """Its standard error where the kernel is an estimate, else None."""
        if self.gram.deviations is None:
            return None
        _ = self.log_evidence  # the error for kind="ntk"
        slope = self.alpha @ self.alpha.T - self.y.shape[1] * self.factor.inverse
        return float(error_of(0.5 * np.vdot(slope, dK) for dK in self.gram.deviations))

    @functools.cached_property
    def leave_one_out(self) -> evidence.LeaveOneOut:
        """Predictions of every training target from all the others, in closed form.

        For kind="ntk" the means are those of the trained ensemble, and the variances those of the
        tangent kernel as a prior.
        """
        loo = evidence.leave_one_out(self.factor, self.alpha, self.y)
        if self.gram.deviations is None:
            return loo
        inverse, v, deviations = self.factor.inverse, loo.variance[:, None], self.gram.deviations

        def changes():
            for dK in deviations:
                moved = inverse @ dK
                down = np.sum(moved * inverse, axis=1)[:, None]
                yield moved @ self.alpha * v - self.alpha * v * v * down

        return dataclasses.replace(loo, mean_sem=error_of(changes()))

    def save(self, path) -> None:
        """Write the fit into a new folder; see `limitformer.gp.store`."""
        from .store import save

        save(self, path)

    def _times(self, t) -> list[float]:
        if t is None:
            return [math.inf]
        if self.kind != "ntk":
            raise ValueError(f't={t!r} is a training time, which only kind="ntk" has')
        times = np.atleast_1d(np.asarray(t, dtype=float))
        if times.ndim != 1 or not times.size or np.isnan(times).any() or (times < 0).any():
            raise ValueError(f"t={t!r}: give a time of at least 0, or a list of them")
        return times.tolist()

    def _observed(self, observed) -> float:
        if observed is False:
            return 0.0
        if observed is True:
            if np.ptp(self.noise):
                raise ValueError(
                    "observed=True needs one noise for all points, and this fit has one per point; "
                    "give the variance of a new observation, observed=0.1"
                )
            return float(self.noise[0])
        return float(observed)

    def _ahead(self) -> int:
        """Test inputs whose kernels fit into a quarter of the memory budget."""
        replicas = 1 if self.gram.deviations is None else 1 + len(self.gram.deviations)
        row = 8 * len(self.y) * replicas * (2 if self.kind == "ntk" else 1)
        if self.targets.ndim == 3:
            row *= self.targets.shape[1]
        return max(_AHEAD, memory_budget(self.options.memory) // 4 // row)

    def _against(self, x, x_mask) -> dict[str, Replicated]:
        found = kernels(self.net, x, x_mask, self.x, self.x_mask, KINDS[self.kind], self.options)
        if self._rows is None:
            return found
        return {kind: e.take(slice(None), self._rows) for kind, e in found.items()}

    def _prior(self, x, x_mask, cov) -> np.ndarray:
        kind = "ntk" if self.kind == "ntkgp" else "nngp"
        if cov == "diag":
            return own_kernels(self.net, x, x_mask, (kind,), self.options)[kind]
        return kernels(self.net, x, x_mask, None, None, (kind,), self.options)[kind].value

    def _predict(self, x, x_mask, times, cov, extra):
        """Means, covariances and errors with a leading axis of times."""
        against = self._against(x, x_mask)
        read = against["nngp" if self.kind == "nngp" else "ntk"]
        means, spreads, errors = [], [], []
        prior = None if cov is None else np.asarray(self._prior(x, x_mask, cov), float)
        if prior is not None and extra:
            prior = prior + extra if cov == "diag" else prior + extra * np.eye(len(prior))
        for t in times:
            Kx = read.value.astype(np.float64, copy=False)
            means.append(Kx @ self.alpha if np.isinf(t) else self.modes.weights(Kx, t) @ self.y)
            if read.deviations is not None:
                errors.append(self._mean_error(Kx, read.deviations, t))
            if prior is not None:
                spread = self._spread(prior, against, Kx, t, cov)
                check_variances(spread, prior, read, self.options.draws)
                spreads.append(spread)
        stack = lambda parts: np.stack(parts) if parts else None  # noqa: E731
        return stack(means), stack(spreads), stack(errors)

    def _mean_error(self, Kx, deviations, t: float) -> np.ndarray:
        own = self.gram.deviations
        assert own is not None
        if np.isinf(t):
            A = self.factor.solve(Kx.T).T
            return error_of(
                dKx @ self.alpha - A @ (dK @ self.alpha)
                for dKx, dK in zip(deviations, own, strict=True)
            )
        return error_of(
            self.modes.weights(dKx, t) @ self.y + self.modes.derivative(Kx, dK, self.y, t)
            for dKx, dK in zip(deviations, own, strict=True)
        )

    def _spread(self, prior, against, Kx, t: float, cov) -> np.ndarray:
        if self.kind != "ntk":
            V = self.factor.half(Kx.T)
            return prior - (np.sum(V * V, axis=0) if cov == "diag" else V.T @ V)
        A = self.factor.solve(Kx.T).T if np.isinf(t) else self.modes.weights(Kx, t)
        Kx = against["nngp"].value.astype(np.float64, copy=False)
        assert self.K is not None
        AK = A @ self.K.value
        if cov == "diag":
            return prior + np.sum((AK - 2 * Kx) * A, axis=1)
        half = (AK / 2 - Kx) @ A.T
        return prior + half + half.T

    def _shaped(self, values: np.ndarray, m: int, tokens: int) -> np.ndarray:
        """Means in the shape of the targets."""
        lead = values.shape[:-2]
        if self.targets.ndim == 3:
            return values.reshape(*lead, m, tokens, values.shape[-1])
        return values[..., 0] if self.targets.ndim == 1 else values


def condition(
    net: Layer,
    x,
    y,
    *,
    noise: Any = 1e-2,
    kind: str = "nngp",
    x_mask=None,
    dtype=None,
    key=None,
    draws: int | None = None,
    memory=None,
    progress=False,
) -> Any:
    """Condition a network on data.

    kind="nngp": the Bayesian posterior of the infinitely wide network. kind="ntk": mean and
    covariance, over initialisations, of the network trained by gradient flow. kind="ntkgp": the
    tangent kernel as if it were a prior covariance. A network with finitely many heads gives the
    mixture over its scores, `limitformer.heads.posterior.HeadsPosterior`, and needs a key.

    Args:
        net: the network.
        x, x_mask: training inputs, as for `net.kernel`.
        y: targets `(n,)`, `(n, outputs)`, or `(n, tokens, outputs)` for a network without readout.
        noise: variance of the targets' noise: one number, one per target, or `lf.relative(1e-6)`
            of the mean diagonal. For the NTK it is the pull of weight decay (theory 6).
        dtype, key, draws, memory: as for `net.kernel`, used for new inputs as well. Solves are in
            float64 whatever the kernel's type.
        progress: True, or a function `(done, total, seconds left)`.

    Returns:
        A `Posterior`, or a `HeadsPosterior`.

    Raises:
        ValueError: targets that do not fit, a kernel that is singular with this noise.

    Example:
        >>> import numpy as np, limitformer as lf
        >>> net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
        >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> post = lf.condition(net, x, np.array([1.0, -1.0, 0.5]), noise=1e-4)
        >>> mean, cov = post.predict(x)
        >>> mean.round(2).tolist(), cov.shape
        ([1.0, -1.0, 0.5], (3, 3))

    Reference:
        Lee et al. 2019, arXiv 1902.06720 (the trained ensemble).
    """
    choice("kind", kind, tuple(KINDS))
    if (path := _finite_heads(net)) is not None:
        if kind != "nngp":
            raise ValueError(
                f"{path} has finitely many heads, and its scores move during training: a tangent "
                'kernel would be a linearisation only; use kind="nngp" (the exact mixture), or the '
                "limit net.with_heads(lf.inf)"
            )
        from ..heads.posterior import DRAWS, condition_heads

        shared = {"x_mask": x_mask, "dtype": dtype, "memory": memory, "progress": progress}
        return condition_heads(net, x, y, noise=noise, key=key, draws=draws or DRAWS, **shared)
    targets = check_targets(y, count(x))
    defaults = KernelOptions()
    options = KernelOptions(dtype, key, defaults.draws if draws is None else draws, memory)
    found = kernels(net, x, x_mask, None, None, KINDS[kind], options, progress)
    size = len(next(iter(found.values())).value)
    valid = token_rows(targets, size, x_mask)
    if valid is not None:
        found = {k: e.take(valid[:, None], valid[None, :]) for k, e in found.items()}
    gram = found["nngp" if kind == "nngp" else "ntk"].value
    added = variances(noise, np.diagonal(gram))
    warn_if_imprecise(gram, added)
    post = Posterior(
        net, x, x_mask, targets, kind, added, options, found.get("nngp"), found.get("ntk")
    )
    _ = post.alpha  # fails here rather than at the first question
    return post


def _finite_heads(net: Layer) -> str | None:
    """The first layer of finitely many heads whose scores are random, if any."""
    for path, leaf in leaves(net):
        heads = getattr(leaf, "heads", math.inf)
        if math.isfinite(heads) and getattr(leaf, "scale", "") == "sqrt":
            return path
    return None
