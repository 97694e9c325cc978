"""NTK dynamics under the softmax cross-entropy, by an ODE solver."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp, softmax

from limitformer.extras import optional
from limitformer.gp.one_vs_rest import _finite, _symmetric

SOLVERS = {"tsit5": "Tsit5", "dopri8": "Dopri8", "kvaerno5": "Kvaerno5"}


@dataclasses.dataclass(frozen=True)
class CrossEntropyFlow:
    """Logits along the training time; made by `flow`.

    Attributes:
        times: as given.
        dual: a(t), from which every output follows: f_*(t) = f_*(0) + T_* a(t).
        train_logits: outputs at the training inputs.
        test_logits: outputs at the test inputs; None where no T_test was given.
        loss: summed cross-entropy on the training set.
        penalty: noise / 2 ||w - w0||^2 = noise / 2 tr(a^T T a).
        steps: accepted steps of the solver.
        rejected: steps that were too long and were tried again.
        succeeded: whether the last time was reached within the tolerances.
        message: of the solver where it was not; times that it did not reach hold NaN.
    """

    times: Float[np.ndarray, " times"]
    dual: Float[np.ndarray, "times n classes"]
    train_logits: Float[np.ndarray, "times n classes"]
    test_logits: Float[np.ndarray, "times m classes"] | None
    loss: Float[np.ndarray, " times"]
    penalty: Float[np.ndarray, " times"]
    steps: int
    rejected: int
    succeeded: bool
    message: str

    def predict(
        self,
        T_test: Float[np.ndarray, "m n"],
        start: Float[np.ndarray, "m classes"] | None = None,
    ) -> Float[np.ndarray, "times m classes"]:
        """Outputs at other inputs along the same training, f_*(t) = f_*(0) + T_* a(t).

        Args:
            T_test: NTK between these and the training inputs.
            start: outputs before training; None means 0.

        Raises:
            ValueError: shapes that do not fit the training set.
        """
        T_test = np.asarray(T_test, float)
        n, classes = self.dual.shape[1:]
        if T_test.ndim != 2 or T_test.shape[1] != n:
            raise ValueError(f"T_test has shape {T_test.shape}; expected (m, {n}), the training n.")
        moved = T_test @ self.dual
        return moved if start is None else _start(start, len(T_test), classes) + moved

    @property
    def train_probabilities(self) -> Float[np.ndarray, "times n classes"]:
        """Softmax of the training logits."""
        return softmax(self.train_logits, axis=-1)

    @property
    def test_probabilities(self) -> Float[np.ndarray, "times m classes"]:
        """Softmax of the test logits."""
        if self.test_logits is None:
            raise ValueError("There are no test inputs: give T_test to flow, or use predict.")
        return softmax(self.test_logits, axis=-1)


def flow(
    T: Float[np.ndarray, "n n"],
    targets: Float[np.ndarray, "n classes"],
    times: Sequence[float] | Float[np.ndarray, " times"],
    *,
    T_test: Float[np.ndarray, "m n"] | None = None,
    start: Float[np.ndarray, "n classes"] | None = None,
    test_start: Float[np.ndarray, "m classes"] | None = None,
    noise: float = 0.0,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    solver: Literal["tsit5", "dopri8", "kvaerno5"] = "tsit5",
    max_steps: int = 100_000,
) -> CrossEntropyFlow:
    """Gradient flow on the cross-entropy, summed over inputs, plus noise / 2 ||w - w0||^2.

    In weights dw/dt = - J^T (softmax(f) - Y) - noise (w - w0). With a constant Jacobian J (infinite
    width) and T = J J^T, w - w0 = J^T a stays in the span of the training gradients:

        da/dt = - (softmax(f_X) - Y) - noise a,   f_X = f_X(0) + T a,   f_* = f_*(0) + T_* a
        df_X/dt = - T (softmax(f_X) - Y) - noise (f_X - f_X(0)),    and so for f_* with T_*

    f_X and a are integrated together (one product with T each time), so that the tolerances hold
    for both. Every class has the same kernel T. As t grows without noise, separable training
    logits diverge; with noise they tend to the mode of
    `laplace_mode.fit_softmax(T / noise, labels)`.

    Args:
        T: NTK of the training inputs.
        targets: a probability vector per input, one-hot for labels.
        times: nonnegative and finite, in any order.
        T_test: NTK between test and training inputs.
        start, test_start: outputs before training; None means 0, the mean of the ensemble.
        noise: variance, absolute, of the conventions for the squared loss.
        rtol, atol: tolerances of the solver, per step, on outputs and a.
        solver: `"tsit5"` and `"dopri8"` are explicit: at most about time * (largest eigenvalue of
            T) / 4 steps, usually far fewer, each several products with T. `"kvaerno5"` is
            implicit, with a dense Jacobian: for stiff problems with n * classes up to a thousand.
        max_steps: accepted and rejected together.

    Returns:
        `CrossEntropyFlow`; look at `succeeded`.

    Raises:
        ValueError: targets that are no probabilities, times out of range, negative noise, shapes.
        ModuleNotFoundError: diffrax is missing; the message has the pip command.

    Example:
        >>> T, Y = np.array([[2.0, 1.0], [1.0, 2.0]]), np.eye(2)
        >>> result = flow(T, Y, [0.0, 1.0, 10.0], T_test=T[:1])
        >>> result.succeeded, result.loss.round(3).tolist()
        (True, [1.386, 0.747, 0.108])
        >>> bool(np.allclose(result.test_logits, result.train_logits[:, :1]))
        True

    Reference:
        Lee, Xiao, Schoenholz et al., *Wide neural networks of any depth evolve as linear models
        under gradient descent*, 2019; the noise term follows from the weights as above.
    """
    T, Y = np.asarray(T, float), np.asarray(targets, float)
    t = np.asarray(times, float)
    n, classes = Y.shape
    _check(T, Y, t, noise)
    if solver not in SOLVERS:
        raise ValueError(f"solver={solver!r} should be one of {sorted(SOLVERS)}.")
    f0 = np.zeros_like(Y) if start is None else _start(start, n, classes)
    ordered, place = np.unique(t, return_inverse=True)
    states, stats, message = _integrate(
        T, Y, f0, float(noise), ordered, rtol, atol, solver, max_steps
    )
    f, a = (np.where(np.isfinite(s), s, np.nan)[place] for s in states)
    loss = np.sum(logsumexp(f, axis=-1) - np.sum(Y * f, axis=-1), axis=-1)
    result = CrossEntropyFlow(
        times=t,
        dual=a,
        train_logits=f,
        test_logits=None,
        loss=loss,
        penalty=0.5 * noise * np.sum(a * (f - f0), axis=(1, 2)),
        steps=int(stats["num_accepted_steps"]),
        rejected=int(stats["num_rejected_steps"]),
        succeeded=not message,
        message=message,
    )
    if T_test is None:
        return result
    return dataclasses.replace(result, test_logits=result.predict(T_test, test_start))


def _velocity(t: Any, state: tuple, args: tuple) -> tuple:
    """Of the outputs at the training inputs and of a."""
    f, a = state
    T, Y, noise = args
    da = Y - jax.nn.softmax(f, axis=-1) - noise * a
    return T @ da, da


def _integrate(
    T: np.ndarray,
    Y: np.ndarray,
    f0: np.ndarray,
    noise: float,
    ordered: np.ndarray,
    rtol: float,
    atol: float,
    solver: str,
    max_steps: int,
) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, Any], str]:
    """Outputs and a at increasing times, the solver's counts and its complaint."""
    diffrax = optional("diffrax", "ode")
    if ordered[-1] == 0.0:
        stats = {"num_accepted_steps": 0, "num_rejected_steps": 0}
        return (f0[None], np.zeros_like(Y)[None]), stats, ""
    # diffrax mixes dtypes inside; the 64-bit scope and the promotion rule end with this block.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(_velocity),
            getattr(diffrax, SOLVERS[solver])(),
            t0=0.0,
            t1=float(ordered[-1]),
            dt0=None,
            y0=(jnp.asarray(f0), jnp.zeros_like(jnp.asarray(Y))),
            args=(jnp.asarray(T), jnp.asarray(Y), jnp.asarray(noise)),
            saveat=diffrax.SaveAt(ts=jnp.asarray(ordered)),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
            max_steps=max_steps,
            throw=False,
        )
        f, a = (np.asarray(state) for state in solution.ys)
        good = bool(solution.result == diffrax.RESULTS.successful)
        message = "" if good else diffrax.RESULTS[solution.result]
    return (f, a), solution.stats, message


def _check(T: np.ndarray, Y: np.ndarray, t: np.ndarray, noise: float) -> None:
    n = len(Y)
    if T.shape != (n, n):
        raise ValueError(
            f"T has shape {T.shape} and there are {n} rows of targets; T must be n x n."
        )
    _finite(T=T, targets=Y)
    _symmetric(T=T)
    if Y.min() < 0 or np.abs(Y.sum(axis=1) - 1).max() > 1e-6:
        row = int(np.argmax(np.maximum(-Y.min(axis=1), np.abs(Y.sum(axis=1) - 1))))
        raise ValueError(
            f"targets should be probabilities, one vector per input; row {row} is "
            f"{Y[row].tolist()}. One-hot from integer labels: np.eye(classes)[labels]."
        )
    if t.ndim != 1 or not len(t) or not np.all(np.isfinite(t)) or t.min() < 0:
        raise ValueError(
            f"times={t.tolist()} should be a list of finite numbers >= 0. At infinity, with noise: "
            "laplace_mode.fit_softmax(T / noise, labels).mode."
        )
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise={noise} is a variance and should be a finite number >= 0.")


def _start(start: Any, rows: int, classes: int) -> np.ndarray:
    start = np.asarray(start, float)
    if start.shape != (rows, classes):
        raise ValueError(f"start has shape {start.shape}; expected {(rows, classes)}.")
    return start
