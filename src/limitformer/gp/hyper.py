"""Learn hyper-parameters by the gradient of the evidence or of the leave-one-out density.

The gradient is taken in two steps, so that memory does not grow with the data: W = dL/dK of the
objective in the Gram matrix (n^3), then sum_ij W_ij dK_ij/dtheta through the network, tile by tile.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ..kernel.gram import DRAWS
from ..kernel.inputs import as_arrays
from ..kernel.memory import memory_budget
from ..kernel.progress import Progress
from ..layers.base import Layer, choice, leaves
from .noise import variances
from .training import check_targets, count, rows

_LARGEST_TILE = 256
_SPREAD = 1.0  # standard deviation of a restart's start, in log units


@dataclasses.dataclass(frozen=True)
class Learned:
    """A network with learned hyper-parameters; made by `learn`.

    Attributes:
        net: the best network found.
        noise: its noise variance.
        value: the objective there (log evidence, or log leave-one-out density, in total).
        start: the objective before learning.
        parameters: every learned hyper-parameter by its place in the network.
        values: the objective at the end of each start, the given network first.
        converged: whether the best start met the optimiser's test.
        at_bounds: learned hyper-parameters that ended at a bound.
        evaluations: kernels computed.
        message: the optimiser's own words.
    """

    net: Layer
    noise: float
    value: float
    start: float
    parameters: dict[str, float]
    values: tuple[float, ...]
    converged: bool
    at_bounds: tuple[str, ...]
    evaluations: int
    message: str

    def __str__(self) -> str:
        lines = [f"objective {self.start:.2f} -> {self.value:.2f} ({self.message})"]
        lines += [f"  {name:40s} {value:.4g}" for name, value in self.parameters.items()]
        return "\n".join([*lines, f"  {'noise':40s} {self.noise:.4g}"])


def learn(
    net: Layer,
    x,
    y,
    *,
    free: Sequence[str] | Callable[[str, float], bool] = ("*_std",),
    noise: Any = 1e-2,
    learn_noise: bool = True,
    objective: str = "evidence",
    kind: str = "nngp",
    bounds: tuple[float, float] = (1e-3, 1e3),
    restarts: int = 0,
    key: Any = None,
    steps: int = 50,
    x_mask=None,
    draws: int = DRAWS,
    memory=None,
    progress: bool | Callable = False,
) -> Learned:
    """Maximise the evidence (or the leave-one-out density) over hyper-parameters and noise.

    Positive hyper-parameters are moved on a logarithmic scale by L-BFGS; one that is exactly zero
    (no bias) stays zero. Scores that are drawn use common random numbers, so that the objective is
    a smooth function.

    Args:
        net, x, y, x_mask: as for `condition`; the network needs a readout.
        free: patterns of names (`"*_std"`, `"*layers[0].w_std"`, see `hyper_parameters`), or a
            function of name and value.
        noise: where the noise starts: a variance or `lf.relative(...)`.
        objective: "evidence", or "loo": sum_i log p(y_i | the others).
        kind: "nngp", or "ntkgp" for the tangent kernel.
        bounds: of every learned hyper-parameter, and of the noise relative to the mean diagonal
            (its lower bound is squared).
        restarts: further starts, scattered around the given values; needs `key`.
        steps: iterations of the optimiser for each start, at most.
        progress: True, or a function `(done, total, seconds left)` of the steps.

    Example:
        >>> import limitformer as lf
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(12, 2)), rng.normal(size=12)
        >>> best = learn(lf.Serial(lf.Dense(), lf.Erf(), lf.Dense()), x, y, steps=5)
        >>> best.value > best.start
        True
    """
    choice("objective", objective, ("evidence", "loo"))
    choice("kind", kind, ("nngp", "ntkgp"))
    if restarts and key is None:
        raise ValueError(f"restarts={restarts} scatters starts at random: give key=")
    field = "nngp" if kind == "nngp" else "ntk"
    targets = check_targets(y, count(x))
    if targets.ndim == 3:
        raise ValueError("learn takes targets (n,) or (n, outputs), not token by token")
    targets = targets.reshape(len(targets), -1)
    names, params, rebuild = _free(net, free)
    options: dict = {"kinds": (field,), "draws": draws, "dtype": np.float64}
    K = np.asarray(getattr(net.kernel(x, x_mask=x_mask, memory=memory, **options), field))
    if K.ndim != 2:
        raise ValueError("learn needs a network with a readout, such as lf.MeanPool()")
    level = float(np.mean(np.diagonal(K)))
    start = float(np.mean(variances(noise, np.diagonal(K))))
    if start <= 0:
        raise ValueError("learning starts from a positive noise; give for example noise=1e-2")
    low, high = bounds
    limits = [(math.log(low), math.log(high))] * len(params)
    limits.append((math.log(level * low**2), math.log(level * high)))
    if not learn_noise:
        limits[-1] = (math.log(start), math.log(start))
    first = np.clip(np.log([*params, start]), *np.array(limits).T)
    count_of = [0]
    slopes = GramGradient(rebuild, field, draws=draws, memory=memory)
    report = Progress.of(progress)
    total = steps * (1 + restarts)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        count_of[0] += 1
        values = np.exp(theta)
        found = rebuild(values[:-1].tolist())
        K = getattr(found.kernel(x, x_mask=x_mask, memory=memory, **options), field)
        value, W, slope = _objective(np.asarray(K), values[-1], targets, objective)
        if not np.isfinite(value):
            return math.inf, np.zeros_like(theta)
        gradient = slopes(values[:-1], x, x_mask, W)
        if report is not None:
            report(min(count_of[0], total), max(total, count_of[0]))
        return -value, -np.append(gradient, slope) * values

    before = -loss(first)[0]
    starts = [first]
    if restarts:
        noise_of = np.asarray(jax.random.normal(key, (restarts, len(first))))
        starts += [np.clip(first + _SPREAD * z, *np.array(limits).T) for z in noise_of]
    ends = [
        scipy.optimize.minimize(
            loss, s, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": steps}
        )
        for s in starts
    ]
    best = min(ends, key=lambda end: end.fun)
    values = np.exp(best.x)
    edge: Any = np.isclose(best.x[:-1, None], np.array(limits)[:-1]).any(axis=1)
    return Learned(
        net=rebuild(values[:-1].tolist()),
        noise=float(values[-1]),
        value=-float(best.fun),
        start=before,
        parameters=dict(zip(names, values[:-1].tolist(), strict=True)),
        values=tuple(-float(end.fun) for end in ends),
        converged=bool(best.success),
        at_bounds=tuple(name for name, at in zip(names, edge.tolist(), strict=True) if at),
        evaluations=count_of[0],
        message=str(best.message),
    )


def hyper_parameters(net: Layer) -> dict[str, float]:
    """Every hyper-parameter of a network by its place in it.

    Example:
        >>> import limitformer as lf
        >>> hyper_parameters(lf.Serial(lf.Dense(1.5), lf.Relu()))
        {'.layers[0].w_std': 1.5, '.layers[0].b_std': 0.0}
    """
    found = jax.tree_util.tree_flatten_with_path(net)[0]
    return {
        jax.tree_util.keystr(path): float(leaf)
        for path, leaf in found
        if isinstance(leaf, float) or (eqx.is_inexact_array(leaf) and np.ndim(leaf) == 0)
    }


def _free(net: Layer, free) -> tuple[list[str], list[float], Callable]:
    """Names and values of what is learned, and the network as a function of the values."""
    paths, structure = jax.tree_util.tree_flatten_with_path(net)
    known = hyper_parameters(net)
    names = []
    for name, value in known.items():
        if callable(free):
            wanted = bool(free(name, value))
        else:
            wanted = any(fnmatch.fnmatch(name, f"*{_escaped(pattern)}") for pattern in free)
        if wanted and value != 0:
            if value < 0:
                raise ValueError(f"{name} is {value}; only positive hyper-parameters are learned")
            names.append(name)
    if not names:
        raise ValueError(
            f"free={free!r} matches no hyper-parameter that is not zero; there are "
            + ", ".join(known)
        )

    def rebuild(values):
        new = dict(zip(names, values, strict=True))
        kept = [new.get(jax.tree_util.keystr(path), leaf) for path, leaf in paths]
        return jax.tree_util.tree_unflatten(structure, kept)

    return names, [known[name] for name in names], rebuild


def _escaped(pattern: str) -> str:
    return pattern.replace("[", "[[]")


def _objective(K: np.ndarray, noise: float, Y: np.ndarray, objective: str):
    """The objective, its gradient W in K, and its derivative in the noise."""

    def value(K, noise):
        n, outputs = Y.shape
        M = K + noise * jnp.eye(n)
        L = jnp.linalg.cholesky(M)
        alpha = jax.scipy.linalg.cho_solve((L, True), jnp.asarray(Y))
        if objective == "evidence":
            logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(L)))
            return -0.5 * jnp.sum(Y * alpha) - 0.5 * outputs * (logdet + n * math.log(2 * math.pi))
        v = 1 / jnp.diagonal(jax.scipy.linalg.cho_solve((L, True), jnp.eye(n)))
        squared = jnp.sum(alpha**2, axis=1) * v
        return -0.5 * jnp.sum(outputs * jnp.log(2 * math.pi * v) + squared)

    with jax.enable_x64(True):
        found, (W, slope) = jax.value_and_grad(value, argnums=(0, 1))(
            jnp.asarray(K, jnp.float64), jnp.asarray(noise, jnp.float64)
        )
        return float(found), np.asarray(W), float(slope)


class GramGradient:
    """sum_ij W_ij dK_ij / dvalues, tile by tile; compiled once for all values.

    Args:
        rebuild: the network as a function of a list of hyper-parameters.
        kind: "nngp" or "ntk".
        draws, memory: as for `net.kernel`.
    """

    def __init__(self, rebuild: Callable, kind: str = "nngp", *, draws: int = DRAWS, memory=None):
        self.rebuild, self.memory = rebuild, memory

        def gradient(values, xi, mi, xj, mj, W):
            def value(values):
                net = rebuild([values[i] for i in range(len(values))])
                k = net.kernel(xi, xj, mi, mj, kinds=(kind,), draws=draws)
                return jnp.sum(W * getattr(k, kind))

            return jax.grad(value)(values)

        self._tile = jax.jit(gradient)

    def __call__(self, values, x, x_mask, W: np.ndarray) -> np.ndarray:
        """The gradient at `values`, for inputs x and weights W `(n, n)`."""
        n = len(W)
        W = (W + W.T) / 2
        net = self.rebuild(list(values))
        tokens = max(math.prod(a.shape[1:-1]) for a in as_arrays(x, "x"))
        depth = 10 * sum(1 for _ in leaves(net))
        fits = memory_budget(self.memory) // 4 // (8 * tokens * tokens * depth)
        tile = min(n, _LARGEST_TILE, max(1, math.isqrt(max(fits, 1))))
        total = np.zeros(len(values))
        with jax.enable_x64(True):
            at = jnp.asarray(values, jnp.float64)
            for i in range(0, n, tile):
                for j in range(i, n, tile):
                    rows_i, rows_j = (np.minimum(np.arange(s, s + tile), n - 1) for s in (i, j))
                    part = np.zeros((tile, tile))
                    high, wide = min(tile, n - i), min(tile, n - j)
                    part[:high, :wide] = (1 if i == j else 2) * W[i : i + high, j : j + wide]
                    xi, mi = _wide(*rows(x, x_mask, rows_i))
                    xj, mj = (None, None) if i == j else _wide(*rows(x, x_mask, rows_j))
                    total += np.asarray(self._tile(at, xi, mi, xj, mj, jnp.asarray(part)))
        return total


def _wide(x, mask) -> tuple[Any, Any]:
    """Inputs in float64 (token ids as they are)."""

    def to(a):
        a = np.asarray(a)
        return a.astype(np.float64) if np.issubdtype(a.dtype, np.floating) else a

    return (tuple(to(a) for a in x) if isinstance(x, tuple) else to(x)), mask
