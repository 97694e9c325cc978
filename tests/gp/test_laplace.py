"""Laplace's approximation against quadrature, dense algebra and scikit-learn."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_expit, logsumexp, softmax

from limitformer.gp.class_integrals import mean_sigmoid, mean_softmax
from limitformer.gp.laplace_amplitude import calibrate, fit_amplitude
from limitformer.gp.laplace_mode import fit, fit_logistic, fit_softmax


@pytest.fixture(autouse=True)
def one_thread():
    """Matrices here are tiny, and BLAS threads that wait for a busy core cost seconds."""
    threads = pytest.importorskip("threadpoolctl")
    with threads.threadpool_limits(1, user_api="blas"):
        yield


def kernel(x, y):
    return np.exp(-0.5 * np.sum((x[:, None] - y[None]) ** 2, axis=-1))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    labels = np.arange(50) % 3
    points = rng.normal(size=(50, 2)) + np.array([[0, 0], [2, 0], [0, 2]])[labels]
    K = kernel(points, points)
    return K[:30, :30], K[30:, :30], labels


def hessian(p):
    """W of the softmax, classes outermost."""
    n, classes = p.shape
    W = np.zeros((classes, n, classes, n))
    i = np.arange(n)
    for c in range(classes):
        for d in range(classes):
            W[c, i, d, i] = p[:, c] * ((c == d) - p[:, d])
    return W.reshape(classes * n, classes * n)


@pytest.mark.parametrize("amplitude", [0.1, 1.0, 30.0, 1e4])
def test_the_gradient_vanishes_at_the_mode(problem, amplitude):
    K, _, labels = problem
    model = fit(K, labels[:30], amplitude=amplitude)
    Y = np.eye(3)[labels[:30]]
    assert model.converged and model.iterations < 20
    gradient = Y - softmax(model.mode, axis=1) - np.linalg.solve(amplitude * K, model.mode)
    assert np.abs(Y - softmax(model.mode, axis=1) - model.dual).max() < 1e-8
    assert np.abs(gradient).max() < 1e-8 * max(1, amplitude)  # the solve itself loses digits
    np.testing.assert_allclose(model.mode, amplitude * K @ model.dual, atol=1e-9 * amplitude)
    two = fit(K, labels[:30] == 1, amplitude=amplitude)
    y = (labels[:30] == 1)[:, None]
    assert two.converged
    assert np.abs(y - expit(two.mode) - two.dual).max() < 1e-8


def test_evidence_mode_and_covariance_by_dense_algebra(problem):
    K, K_test, labels = problem
    n, classes, a = 30, 3, 5.0
    model = fit_softmax(K, labels[:n], amplitude=a)
    Y = np.eye(classes)[labels[:n]]
    f = np.zeros((n, classes))
    big = np.kron(np.eye(classes), a * K)
    for _ in range(50):  # Newton with the whole matrix
        p = softmax(f, axis=1)
        W = hessian(p)
        b = W @ f.T.ravel() + (Y - p).T.ravel()
        f = np.linalg.solve(np.eye(n * classes) + big @ W, big @ b).reshape(classes, n).T
    np.testing.assert_allclose(model.mode, f, atol=1e-8)
    W = hessian(softmax(f, axis=1))
    log_det = np.linalg.slogdet(np.eye(n * classes) + big @ W)[1]
    likelihood = np.sum(Y * (f - logsumexp(f, axis=1, keepdims=True)))
    fit_term = f.T.ravel() @ np.linalg.solve(big, f.T.ravel())
    assert model.log_evidence == pytest.approx(likelihood - fit_term / 2 - log_det / 2, abs=1e-8)
    mean, covariance = model.latent(K_test, np.ones(20))
    middle = W @ np.linalg.inv(np.eye(n * classes) + big @ W)
    for i in range(20):
        k = np.kron(np.eye(classes), a * K_test[i])
        expected = a * np.eye(classes) - k @ middle @ k.T
        np.testing.assert_allclose(covariance[i], expected, atol=1e-9)
        np.testing.assert_allclose(mean[i], k @ np.linalg.solve(big, f.T.ravel()), atol=1e-7)


def test_two_classes_are_the_logistic_case(problem):
    K, K_test, labels = problem
    y = np.where(labels[:30] == 0, "no", "yes")
    soft = fit_softmax(K, y, amplitude=4.0)
    one = fit(K, y, amplitude=4.0)
    assert one.mode.shape == (30, 1) and one.amplitude == 8.0  # f_2 - f_1 ~ GP(0, 2 K)
    np.testing.assert_allclose(soft.mode[:, 1] - soft.mode[:, 0], one.mode[:, 0], atol=1e-8)
    assert soft.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)
    a, b = soft.predict(K_test, np.ones(20)), one.predict(K_test, np.ones(20))
    assert np.all(np.abs(a.probabilities - b.probabilities) < 5 * a.sem + 1e-6)
    contrast = np.array([-1.0, 1.0])
    variance = np.einsum("c,mcd,d->m", contrast, a.covariance, contrast)
    np.testing.assert_allclose(variance, b.covariance[:, 0, 0], atol=1e-8)
    assert b.labels.tolist() == np.where(b.mean[:, 0] > 0, "yes", "no").tolist()
    left = [m.leave_one_out(K) for m in (soft, one)]
    assert left[0].log_loss == pytest.approx(left[1].log_loss, abs=1e-3)


@pytest.mark.parametrize("amplitude", [1.0, 10.0])
def test_against_scikit_learn(problem, amplitude):
    process = pytest.importorskip("sklearn.gaussian_process")
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels")
    rng = np.random.default_rng(3)
    x, new = rng.normal(size=(40, 2)), rng.normal(size=(15, 2))
    y = x[:, 0] + 0.5 * rng.normal(size=40) > 0
    rbf = kernels.ConstantKernel(amplitude) * kernels.RBF(1.0)
    peer = process.GaussianProcessClassifier(rbf, optimizer=None).fit(x, y)
    model = fit_logistic(kernel(x, x), y, amplitude=amplitude)
    inner = peer.base_estimator_
    # scikit-learn stops Newton when the objective rises by less than 1e-10
    np.testing.assert_allclose(expit(model.mode[:, 0]), inner.pi_, atol=1e-5)
    assert model.log_evidence == pytest.approx(inner.log_marginal_likelihood_value_, abs=1e-6)
    # its probabilities are a sum of five error functions, good to about 1e-3
    found = model.predict(kernel(new, x), np.ones(15)).probabilities
    np.testing.assert_allclose(found, peer.predict_proba(new), atol=2e-3)


def exact_evidence(K, y, nodes=60):
    """log E prod_i sigmoid(+- f_i) for f ~ N(0, K), tensor Gauss-Hermite."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    n = len(K)
    Z = np.stack(np.meshgrid(*[z] * n, indexing="ij"), axis=-1).reshape(-1, n)
    weight = np.prod(np.stack(np.meshgrid(*[w] * n, indexing="ij"), -1).reshape(-1, n), axis=1)
    f = Z @ np.linalg.cholesky(K).T
    log = np.sum(log_expit(np.where(y, f, -f)), axis=1)
    return logsumexp(log, b=weight / np.sqrt(2 * np.pi) ** n)


@pytest.mark.parametrize("y", [[0, 1], [1, 1, 0], [0, 1, 0]])
def test_binary_evidence_against_quadrature(y):
    x = np.array([[0.0], [0.7], [1.5]])[: len(y)]
    K, y = kernel(x, x), np.array(y, bool)
    errors = []
    for amplitude in (0.01, 0.1, 1.0, 4.0):
        exact = exact_evidence(amplitude * K, y)
        errors.append(abs(fit_logistic(K, y, amplitude=amplitude).log_evidence - exact))
    # The neglected terms begin at second order in the amplitude.
    assert errors[0] < 1e-4 and errors[1] < 1e-2 * len(y) and errors[3] < 0.25
    assert errors[0] < 0.03 * errors[1]


def test_softmax_evidence_against_quadrature():
    x = np.array([[0.0], [1.0]])
    K, index = kernel(x, x), np.array([0, 2])
    z, w = np.polynomial.hermite_e.hermegauss(9)
    grid = np.stack(np.meshgrid(*[z] * 6, indexing="ij"), axis=-1).reshape(-1, 2, 3)
    weight = np.ones(1)
    for _ in range(6):
        weight = np.kron(weight, w / np.sqrt(2 * np.pi))
    errors = []
    for amplitude in (0.1, 1.0):
        f = np.einsum("ij,pjc->pic", np.linalg.cholesky(amplitude * K), grid)
        log = np.sum(f[:, [0, 1], index] - logsumexp(f, axis=2), axis=1)
        exact = logsumexp(log, b=weight)
        model = fit_softmax(K, index, classes=[0, 1, 2], amplitude=amplitude)
        errors.append(abs(model.log_evidence - exact))
    assert errors[0] < 2e-3 and errors[1] < 0.06
    assert errors[0] < 0.03 * errors[1]


def test_predictions_against_the_exact_posterior():
    """Importance sampling from the prior, two inputs: Laplace's own error stays small."""
    rng = np.random.default_rng(4)
    x = np.array([[0.0], [1.0], [0.4]])
    K, y = kernel(x, x), np.array([True, False])
    f = rng.normal(size=(200_000, 3)) @ np.linalg.cholesky(K).T
    weight = expit(f[:, 0]) * expit(-f[:, 1])
    exact = np.sum(weight * expit(f[:, 2])) / weight.sum()
    found = fit_logistic(K[:2, :2], y).predict(K[2:, :2], np.ones(1)).probabilities[0, 1]
    assert found == pytest.approx(exact, abs=5e-3)


def test_mean_of_the_sigmoid_to_rounding():
    mean = np.repeat([0.3, 3.0, -20.0], 6)
    variance = np.tile([0.01, 0.999, 1.0, 4.0, 100.0, 1e4], 3)

    def integrand(z, m, v):
        return expit(m + np.sqrt(v) * z) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)

    for m, v, found in zip(mean, variance, mean_sigmoid(mean, variance), strict=True):
        step = float(np.clip(-m / np.sqrt(v), -11, 11))
        expected = quad(
            integrand, -12, 12, (m, v), points=[step], epsabs=1e-14, epsrel=1e-12, limit=400
        )[0]
        assert found == pytest.approx(expected, abs=2e-14)


def test_mean_of_the_softmax_and_its_standard_error():
    rng = np.random.default_rng(5)
    mean = rng.normal(size=(4, 5))
    root = rng.normal(size=(4, 5, 5)) * np.array([0.1, 1, 3, 10])[:, None, None]
    covariance = root @ root.swapaxes(1, 2)
    p, sem, clipped = mean_softmax(mean, covariance)
    again = mean_softmax(mean, covariance)
    assert np.array_equal(p, again[0]) and clipped == 0
    np.testing.assert_allclose(p.sum(axis=1), 1)
    draws = softmax(mean[:, None] + rng.normal(size=(100_000, 5)) @ root.swapaxes(1, 2), axis=-1)
    plain = draws.mean(axis=1)
    plain_sem = draws.std(axis=1) / np.sqrt(100_000)
    assert np.all(np.abs(p - plain) < 5 * np.hypot(sem, plain_sem))
    assert sem.max() < 0.5 * draws.std(axis=1).max() / np.sqrt(2048)  # better than plain draws
    # the standard error is honest: other scramblings scatter as it says
    others = np.stack([mean_softmax(mean, covariance, seed=s)[0] for s in range(1, 21)])
    ratio = np.mean(others.var(axis=0, ddof=1)) / np.mean(sem**2)
    assert 0.3 < ratio < 3
    # what is common to all classes does not matter
    shifted = mean_softmax(mean + 7, covariance + 50.0)[0]
    np.testing.assert_allclose(shifted, p, atol=1e-7)


def test_leave_one_out_is_near_what_leaving_out_gives(problem):
    K, _, labels = problem
    y = labels[:30]
    left = fit(K, y, amplitude=5.0).leave_one_out(K)
    for i in range(0, 30, 4):
        rest = np.delete(np.arange(30), i)
        model = fit(K[np.ix_(rest, rest)], y[rest], amplitude=5.0)
        true = model.predict(K[i : i + 1, rest], np.ones(1))
        np.testing.assert_allclose(left.probabilities[i], true.probabilities[0], atol=0.02)
        scale = np.sqrt(np.trace(true.covariance[0]))
        np.testing.assert_allclose(left.mean[i], true.mean[0], atol=0.05 * scale)
        np.testing.assert_allclose(left.covariance[i], true.covariance[0], atol=0.05 * scale**2)
    p = left.probabilities[np.arange(30), y]
    assert left.log_loss == pytest.approx(-np.log(p).mean())
    assert left.log_loss_sem == pytest.approx(np.log(p).std(ddof=1) / np.sqrt(30))


@pytest.mark.parametrize("two", [False, True])
def test_calibration_lowers_the_left_out_loss(problem, two):
    K, K_test, labels = problem
    y = labels[:30] > 0 if two else labels[:30]
    model = fit(K, y, amplitude=100.0)
    better = calibrate(model, K)
    assert better.calibration < 1  # Laplace is too wide at large amplitudes
    assert better.leave_one_out(K).log_loss < model.leave_one_out(K).log_loss
    np.testing.assert_allclose(
        better.predict(K_test, np.ones(20)).covariance,
        better.calibration**2 * model.predict(K_test, np.ones(20)).covariance,
    )
    assert calibrate(better, K).calibration == better.calibration
    assert better.log_evidence == model.log_evidence


@pytest.mark.parametrize("criterion", ["evidence", "left_out", "calibrated"])
def test_the_amplitude_is_the_best_of_its_candidates(problem, criterion):
    K, _, labels = problem
    best, scores = fit_amplitude(3 * K, labels[:30], [0.1, 3.0, 30.0], criterion=criterion)
    place = int(np.argmax(scores))
    assert best.amplitude == pytest.approx([0.1, 3.0, 30.0][place] / 3)
    score = best.log_evidence if criterion == "evidence" else -best.leave_one_out(3 * K).log_loss
    assert score == scores[place]
    assert (best.calibration != 1) == (criterion == "calibrated")


def test_duplicates_and_missing_classes(problem):
    K, K_test, labels = problem
    twice = np.r_[np.arange(30), 0, 0]
    model = fit(K[np.ix_(twice, twice)], labels[twice], classes=[0, 1, 2, 9])
    found = model.predict(K_test[:, twice], np.ones(20))
    assert model.converged and found.probabilities.shape == (20, 4)
    assert np.all(found.probabilities[:, 3] > 0)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)


def test_many_rows_come_in_chunks(problem, monkeypatch):
    K, K_test, labels = problem
    model = fit(K, labels[:30])
    whole = model.predict(K_test, np.ones(20))
    monkeypatch.setattr("limitformer.gp.laplace.CHUNK", 700)
    parts = model.predict(K_test, np.ones(20))
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, rtol=1e-12)
    np.testing.assert_allclose(parts.covariance, whole.covariance, atol=1e-12)


def test_steps_run_out_honestly(problem):
    K, _, labels = problem
    model = fit(K, labels[:30], amplitude=100.0, max_steps=1)
    assert not model.converged and model.iterations == 1 and model.gradient_norm > 1e-9


def test_bad_input(problem):
    K, K_test, labels = problem
    y = labels[:30]
    with pytest.raises(ValueError, match="differs from its transpose"):
        fit(np.triu(K), y)
    with pytest.raises(ValueError, match="a classifier needs at least two"):
        fit(K, np.zeros(30, int))
    with pytest.raises(ValueError, match="not positive semidefinite"):
        fit(-K, y, amplitude=100.0)
    with pytest.raises(ValueError, match=r"amplitude=-1.0 should be a positive number"):
        fit(K, y, amplitude=-1.0)
    with pytest.raises(ValueError, match=r"takes two classes, not \[0, 1, 2\]; use fit_softmax"):
        fit_logistic(K, y)
    with pytest.raises(ValueError, match="amplitudes is empty"):
        fit_amplitude(K, y, [])
    with pytest.raises(ValueError, match=r"should be \(m, 30\) and \(m,\)"):
        fit(K, y).predict(K_test[:, :-1], np.ones(20))
    with pytest.raises(ValueError, match="points=100 should be a power of two"):
        fit(K, y).predict(K_test, np.ones(20), points=100)
