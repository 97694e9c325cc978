"""Inference under the prior of finitely many heads: a mixture over scores, weighted by evidence.

Given the scores of all heads the network is a Gaussian process, so with z the normals behind the
scores

    p(z | y) ~ N(z; 0, I) N(y; 0, K_z + noise),    p(f | y) = E[ p(f | y, K_z) ] over p(z | y)

which is exact Bayesian inference for the infinitely wide network of H heads. z is drawn from its
posterior by `tempering`; the kernel between training and new inputs takes the same z, with further
normals for the features that only the new inputs have.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ..estimate import Estimate
from ..gp.noise import variances
from ..gp.training import check_targets, count, rows, token_rows
from ..kernel.memory import memory_budget
from ..kernel.progress import Progress
from ..layers.base import Layer, choice
from .evidence import Evidence, predict, prior
from .joined import joined
from .prediction import MixturePrediction
from .tempering import Population, temper

DRAWS = 256
_POPULATIONS = 4
_PILOT = 16  # draws whose mean diagonal a relative noise is relative to


@dataclasses.dataclass(frozen=True, eq=False)
class HeadsPosterior:
    """A network of finitely many heads, conditioned on data; made by `lf.condition`.

    Attributes:
        net, x, x_mask, targets: what was given.
        noise: what was added to the diagonal, one variance per target.
        populations: independent sets of posterior draws of the scores.
    """

    net: Layer
    x: Any
    x_mask: Any
    targets: np.ndarray
    noise: np.ndarray
    populations: tuple[Population, ...]
    key: Any
    dtype: Any
    memory: Any

    def __repr__(self) -> str:
        steps = max(len(p.temperatures) for p in self.populations)
        return (
            f"HeadsPosterior({len(self.weight)} draws in {len(self.populations)} populations, "
            f"{steps} temperature(s), effective {self.ess:.0f}, {self.net!r})"
        )

    @functools.cached_property
    def weight(self) -> Float[np.ndarray, " particles"]:
        """Weights of all draws; every population has the same share."""
        return np.concatenate([p.weight for p in self.populations]) / len(self.populations)

    @functools.cached_property
    def ess(self) -> float:
        """Effective sample size: of the weights, or less if the populations differ by more.

        var(l) / var(mean of l), l the log-likelihood of a draw and the mean that of all
        populations, its variance from their differences.
        """
        l = np.stack([p.log_likelihood for p in self.populations])
        w = np.stack([p.weight for p in self.populations])
        means = (w * l).sum(axis=1)
        spread = float((w * (l - means.mean()) ** 2).sum() / len(l))
        of_mean = float(means.var(ddof=1)) / len(means)
        return float(min(1 / np.sum(self.weight**2), spread / max(of_mean, 1e-300)))

    @property
    def prior_ess(self) -> float:
        """What importance sampling from the prior alone would have: why temperatures are needed."""
        return sum(p.prior_ess for p in self.populations)

    @property
    def log_evidence(self) -> Estimate:
        """log p(y) under the prior of finitely many heads, with its error between populations."""
        log = np.array([p.log_evidence for p in self.populations])
        value = float(np.asarray(logsumexp(log))) - math.log(len(log))
        relative = np.exp(log - value)
        return Estimate(value, float(relative.std(ddof=1) / math.sqrt(len(log))))

    def predict(
        self, x, cov: str = "diag", observed: float = 0.0, x_mask=None
    ) -> MixturePrediction:
        """The mixture of Gaussians at new inputs.

        Args:
            x, x_mask: new inputs, with at most as many tokens as the training inputs.
            cov: "diag" for variances, "full" for the covariance of all new inputs together.
            observed: variance of the noise of a new observation, added to variances.
        """
        full = choice("cov", cov, ("full", "diag")) == "full"
        m = count(x)
        size = m if full else max(1, min(m, count(self.x)))
        means, spreads, tokens = [], [], 1
        for i, start in enumerate(range(0, m, size)):
            part = rows(x, x_mask, slice(start, start + size))
            a, b, tokens = self._against(*part, full, jax.random.fold_in(self.key, i))
            means.append(a)
            spreads.append(b)
        mean, spread = np.concatenate(means, axis=1), np.concatenate(spreads, axis=1)
        if observed:
            spread = spread + (observed * np.eye(spread.shape[1]) if full else observed)
        outputs = self.targets.shape[1:] if self.targets.ndim < 3 else self.targets.shape[2:]
        shape = (m, *((tokens,) if self.targets.ndim == 3 else ()), *outputs)
        return MixturePrediction(mean, spread, self.weight, len(self.populations), shape)

    def _against(self, x, x_mask, full: bool, key):
        """Means and spreads of some new inputs over all draws."""
        n, m = count(self.x), count(x)
        with jax.enable_x64(True):
            both, mask = joined((self.x, self.x_mask), (x, x_mask))
            evidence = Evidence.of(
                self.net, both, mask, self.targets, self.noise, self.x_mask, self.key, self.dtype
            )
            out = evidence.size // (n + m)
            new = jnp.arange(n * out, (n + m) * out)
            at_once = evidence.at_once(len(self.weight), self.memory)
            parts = []
            z = jax.tree.map(lambda *a: np.concatenate(a), *(p.z for p in self.populations))
            keys = jax.random.split(key, len(self.weight))
            for start in range(0, len(self.weight), at_once):
                index = np.minimum(np.arange(start, start + at_once), len(self.weight) - 1)
                found = predict(
                    evidence, jax.tree.map(lambda a, i=index: a[i], z), keys[index], new, full
                )
                kept = min(at_once, len(self.weight) - start)
                parts.append([np.asarray(v)[:kept] for v in found])
        mean, spread = (np.concatenate(v) for v in zip(*parts, strict=True))
        return mean, spread, out


def condition_heads(
    net: Layer,
    x,
    y,
    *,
    key,
    noise: Any = 1e-2,
    draws: int = DRAWS,
    moves: int = 5,
    x_mask=None,
    dtype=None,
    memory=None,
    progress=False,
) -> HeadsPosterior:
    """Condition a network of finitely many heads on data; `lf.condition` calls it.

    Args:
        net: the network, with finitely many heads at scale "sqrt" somewhere.
        x, x_mask, y, noise, dtype, memory: as for `lf.condition`.
        key: randomness of the scores; required.
        draws: of the scores, in four independent populations.
        moves: elliptical slices of every draw after a step of temperature.
        progress: True, or a function `(done, total, seconds left)`, in hundredths of a population.

    Example:
        >>> import limitformer as lf
        >>> net = lf.Serial(lf.Dense(), lf.Attention(heads=1), lf.MeanPool(), lf.Dense())
        >>> x = np.random.default_rng(0).normal(size=(6, 3, 2))
        >>> post = lf.condition(net, x, x[:, 0, 0], noise=0.1, key=jax.random.key(0), draws=32)
        >>> mean, cov = post.predict(x[:2])
        >>> mean.shape, len(post.populations)
        ((2,), 4)
    """
    if key is None:
        raise ValueError(
            "a network of finitely many heads is a mixture over its scores: pass key=, for example "
            "key=jax.random.key(0), or take the limit with net.with_heads(lf.inf)"
        )
    if draws < 2 * _POPULATIONS or draws % _POPULATIONS:
        raise ValueError(
            f"draws={draws}; use a multiple of {_POPULATIONS} (the independent populations), at "
            f"least {2 * _POPULATIONS}, better {DRAWS}"
        )
    targets = check_targets(y, count(x))
    report = Progress.of(progress)
    each = draws // _POPULATIONS
    k_start, k_move, k_kernel = jax.random.split(key, 3)
    with jax.enable_x64(True):
        evidence = Evidence.of(net, x, x_mask, targets, 0.0, x_mask, k_kernel, dtype)
        shapes = evidence.shapes()
        token_rows(targets, evidence.size, x_mask)  # the error for targets that do not fit
        own = evidence.own(prior(shapes, k_start, _PILOT))
        added = variances(noise, np.asarray(own))
        evidence = eqx.tree_at(lambda e: e.noise, evidence, jnp.asarray(added))
        size = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes.values())
        if size * draws > memory_budget(memory) // 2:
            raise ValueError(
                f"{draws} draws of {size / 2**20:.0f} MiB of normals do not fit into half of the "
                "memory budget; use fewer draws, fewer inputs or tokens, or memory="
            )
        at_once = evidence.at_once(each, memory)
        found = []
        for p in range(_POPULATIONS):
            z = prior(shapes, jax.random.fold_in(k_start, p), each)
            step = None
            if report is not None:
                step = lambda b, p=p: report(int(100 * (p + b)), 100 * _POPULATIONS)  # noqa: E731
            move = jax.random.fold_in(k_move, p)
            found.append(temper(evidence, z, key=move, moves=moves, at_once=at_once, report=step))
    return HeadsPosterior(net, x, x_mask, targets, added, tuple(found), k_kernel, dtype, memory)
