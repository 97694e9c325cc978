"""NTK dynamics under the cross-entropy against SciPy, trained weights and closed forms."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from limitformer.gp.cross_entropy import flow
from limitformer.gp.laplace_mode import fit_softmax

pytest.importorskip("diffrax")
TIMES = [0.0, 0.1, 1.0, 5.0]


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(17, 40)) / 3  # wide: more features than inputs
    labels = np.arange(12) % 3
    return features[:12], features[12:], labels, np.eye(3)[labels]


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("solver", ["tsit5", "dopri8", "kvaerno5"])
def test_against_scipy(problem, noise, solver):
    X, Z, _, Y = problem
    T, T_test = X @ X.T, Z @ X.T
    rng = np.random.default_rng(1)
    start, test_start = rng.normal(size=(12, 3)), rng.normal(size=(5, 3))
    options = dict(start=start, test_start=test_start, noise=noise, solver=solver)
    found = flow(T, Y, TIMES, T_test=T_test, rtol=1e-8, atol=1e-10, **options)
    both, begin = np.r_[T, T_test], np.r_[start, test_start]

    def velocity(_, f):
        f = f.reshape(17, 3)
        return (-both @ (softmax(f[:12], axis=1) - Y) - noise * (f - begin)).ravel()

    peer = solve_ivp(
        velocity, (0, 5), begin.ravel(), method="DOP853", t_eval=TIMES, rtol=1e-11, atol=1e-11
    )
    expected = peer.y.T.reshape(4, 17, 3)
    assert found.succeeded and found.message == "" and found.steps > 0
    np.testing.assert_allclose(found.train_logits, expected[:, :12], atol=1e-6)
    np.testing.assert_allclose(found.test_logits, expected[:, 12:], atol=1e-6)
    loss = -np.sum(Y * log_softmax(expected[:, :12], axis=-1), axis=(1, 2))
    np.testing.assert_allclose(found.loss, loss, atol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_against_a_linear_model_trained_in_its_weights(problem, noise):
    X, Z, _, Y = problem
    rng = np.random.default_rng(2)
    w0 = rng.normal(size=(40, 3)) / 4

    with jax.enable_x64(True):
        x, y, start = jnp.asarray(X), jnp.asarray(Y), jnp.asarray(w0)

        def objective(w):
            loss = -jnp.sum(y * jax.nn.log_softmax(x @ w, axis=-1))
            return loss + noise / 2 * jnp.sum((w - start) ** 2)

        gradient = jax.jit(jax.grad(objective))

        def velocity(_, w):
            return -np.asarray(gradient(jnp.asarray(w.reshape(40, 3)))).ravel()

        trained = solve_ivp(
            velocity, (0, 5), w0.ravel(), method="DOP853", t_eval=TIMES, rtol=1e-9, atol=1e-10
        )
    weights = trained.y.T.reshape(4, 40, 3)
    found = flow(
        X @ X.T, Y, TIMES, T_test=Z @ X.T, start=X @ w0, test_start=Z @ w0, noise=noise, rtol=1e-8
    )
    np.testing.assert_allclose(found.train_logits, X @ weights, atol=1e-6)
    np.testing.assert_allclose(found.test_logits, Z @ weights, atol=1e-6)
    moved = np.sum((weights - w0) ** 2, axis=(1, 2))
    np.testing.assert_allclose(found.penalty, noise / 2 * moved, atol=1e-6)


def test_gradient_descent_with_small_steps_follows_the_flow(problem):
    X, Z, _, Y = problem
    w, rate, steps = np.zeros((40, 3)), 1e-3, 1000
    for _ in range(steps):
        w -= rate * X.T @ (softmax(X @ w, axis=1) - Y)
    found = flow(X @ X.T, Y, [rate * steps], T_test=Z @ X.T)
    np.testing.assert_allclose(found.test_logits[0], Z @ w, atol=5e-3)  # O(rate)


def test_two_inputs_have_a_closed_form():
    """The margin g of orthogonal-but-for-1 inputs obeys g + exp g = 1 + 2 t."""
    times = [0.5, 2.0, 20.0]
    found = flow(np.array([[2.0, 1.0], [1.0, 2.0]]), np.eye(2), times, rtol=1e-9, atol=1e-11)
    for t, logits in zip(times, found.train_logits, strict=True):
        g = brentq(lambda g, t=t: g + np.exp(g) - 1 - 2 * t, 0, 50, xtol=1e-13)
        assert logits[0, 0] - logits[0, 1] == pytest.approx(g, abs=1e-7)


def test_starts_at_the_start_and_descends(problem):
    X, Z, _, Y = problem
    times = np.linspace(0, 3, 13)
    found = flow(X @ X.T, Y, times, T_test=Z @ X.T, noise=0.1)
    assert np.all(found.train_logits[0] == 0) and np.all(found.test_logits[0] == 0)
    assert found.loss[0] == pytest.approx(12 * np.log(3))
    assert found.penalty[0] == 0
    assert np.all(np.diff(found.loss + found.penalty) < 0)
    only = flow(X @ X.T, Y, [0.0, 0.0])
    assert only.steps == 0 and only.train_logits.shape == (2, 12, 3) and only.test_logits is None
    assert np.all(only.train_probabilities == 1 / 3)


def test_times_in_any_order_and_later_test_inputs(problem):
    X, Z, _, Y = problem
    T = X @ X.T
    one = flow(T, Y, [2.0, 0.5, 2.0], T_test=Z @ X.T)
    two = flow(T, Y, [0.5, 2.0])
    np.testing.assert_allclose(one.train_logits, two.train_logits[[1, 0, 1]], atol=1e-12)
    np.testing.assert_allclose(one.test_logits, one.predict(Z @ X.T))
    np.testing.assert_allclose(one.predict(T), one.train_logits, atol=1e-9)
    np.testing.assert_allclose(one.test_probabilities.sum(axis=-1), 1)


def test_with_noise_it_tends_to_the_mode_of_the_softmax_process(problem):
    X, _, labels, Y = problem
    T, noise = X @ X.T, 0.5
    found = flow(T, Y, [60.0], noise=noise)
    np.testing.assert_allclose(
        found.train_logits[0], fit_softmax(T / noise, labels).mode, atol=1e-4
    )


def test_soft_targets_are_reached():
    Y = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    found = flow(np.eye(2), Y, [100.0])
    np.testing.assert_allclose(found.train_probabilities[0], Y, atol=1e-5)


def test_the_global_switch_is_left_alone(problem):
    X, _, _, Y = problem
    before = jax.config.jax_enable_x64
    found = flow(X @ X.T, Y, [0.1])
    assert jax.config.jax_enable_x64 == before
    assert isinstance(found.train_logits, np.ndarray) and found.train_logits.dtype == np.float64


def test_running_out_of_steps_is_said(problem):
    X, _, _, Y = problem
    found = flow(X @ X.T, Y, [0.01, 100.0], max_steps=20)
    assert not found.succeeded and "maximum number of solver steps" in found.message
    assert np.all(np.isfinite(found.train_logits[0])) and np.all(np.isnan(found.train_logits[1]))
    assert found.steps + found.rejected == 20


def test_bad_input(problem, monkeypatch):
    X, Z, _, Y = problem
    T = X @ X.T
    with pytest.raises(ValueError, match="differs from its transpose"):
        flow(np.triu(T), Y, [1.0])
    with pytest.raises(
        ValueError, match=r"row 0 is \[2.0, 0.0, 0.0\].*np.eye\(classes\)\[labels\]"
    ):
        flow(T, 2 * Y, [1.0])
    for times in ([], [-1.0], [np.inf], [np.nan]):
        with pytest.raises(ValueError, match="list of finite numbers >= 0"):
            flow(T, Y, times)
    with pytest.raises(ValueError, match=r"noise=-1.0 is a variance"):
        flow(T, Y, [1.0], noise=-1.0)
    with pytest.raises(ValueError, match="not finite"):
        flow(T * np.nan, Y, [1.0])
    found = flow(T, Y, [0.1])
    with pytest.raises(ValueError, match=r"T_test has shape \(5, 11\); expected \(m, 12\)"):
        found.predict((Z @ X.T)[:, 1:])
    with pytest.raises(ValueError, match=r"start has shape \(5, 4\); expected \(5, 3\)"):
        found.predict(Z @ X.T, np.zeros((5, 4)))
    with pytest.raises(ValueError, match="give T_test to flow, or use predict"):
        _ = found.test_probabilities
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "limitformer\[ode\]"'):
        flow(T, Y, [1.0])
