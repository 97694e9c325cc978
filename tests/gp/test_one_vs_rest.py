"""One-vs-rest regression: closed forms against the long way round, and bad input."""

import dataclasses
import itertools

import numpy as np
import pytest

from limitformer.gp.one_vs_rest import encode, fit, largest, log_largest


def kernel(x, y):
    return np.exp(-0.5 * np.sum((x[:, None] - y[None]) ** 2, axis=-1))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    points = rng.normal(size=(60, 3)) + 1.5 * np.eye(3)[labels]
    return kernel(points[:40], points[:40]), kernel(points[40:], points[:40]), labels


def noises():
    return [1e-2, np.random.default_rng(1).uniform(1e-3, 0.5, size=40)]


@pytest.mark.parametrize("noise", noises(), ids=["scalar", "vector"])
def test_leave_one_out_is_what_leaving_out_gives(problem, noise):
    K, _, labels = problem
    model = fit(K, labels[:40], noise)
    A = K + np.diag(noise * np.ones(40))
    Y = np.eye(3)[labels[:40]]
    mean = Y.mean(axis=0)  # the one quantity that stays in
    for i in range(40):
        rest = np.delete(np.arange(40), i)
        solved = np.linalg.solve(A[np.ix_(rest, rest)], np.c_[Y[rest] - mean, A[rest, i]])
        np.testing.assert_allclose(model.loo_scores[i], mean + A[i, rest] @ solved[:, :3])
        variance = A[i, i] - A[i, rest] @ solved[:, 3]
        expected = model.calibration * np.sqrt(model.scale * variance)
        np.testing.assert_allclose(model.loo_deviation[i], expected)
    assert model.loo_error == pytest.approx(np.mean((Y - model.loo_scores) ** 2))
    assert model.loo_accuracy == np.mean(model.loo_scores.argmax(axis=1) == labels[:40])


@pytest.mark.parametrize("noise", noises(), ids=["scalar", "vector"])
@pytest.mark.parametrize("prior", ["frequency", "uniform"])
def test_scores_and_deviations_are_those_of_the_gaussian_process(problem, noise, prior):
    K, K_test, labels = problem
    model = fit(K, labels[:40], noise, prior=prior)
    found = model.predict(K_test, np.ones(20))
    Y = np.eye(3)[labels[:40]]
    mean = Y.mean(axis=0) if prior == "frequency" else np.full(3, 1 / 3)
    inverse = np.linalg.inv(K + np.diag(noise * np.ones(40)))
    np.testing.assert_allclose(found.scores, mean + K_test @ inverse @ (Y - mean), atol=1e-10)
    scale = np.trace((Y - mean).T @ inverse @ (Y - mean)) / Y.size
    assert model.scale == pytest.approx(scale)
    variance = 1 - np.einsum("ij,jk,ik->i", K_test, inverse, K_test) + np.mean(noise)
    np.testing.assert_allclose(found.deviation**2, model.calibration**2 * scale * variance)
    noiseless = model.predict(K_test, np.ones(20), noise=0.0)
    assert np.all(noiseless.deviation < found.deviation)
    assert found.clipped == 0


def test_calibration_minimises_the_left_out_loss(problem):
    K, _, labels = problem
    model = fit(K, labels[:40], 1e-2)
    plain = fit(K, labels[:40], 1e-2, calibrate=False)
    assert plain.calibration == 1.0
    assert plain.loo_log_loss == plain.loo_log_loss_before == model.loo_log_loss_before
    assert model.loo_log_loss < model.loo_log_loss_before

    mean = model.mean[labels[:40]]

    def right(g, lapse):
        log_p = log_largest(model.loo_scores, g * plain.loo_deviation, labels[:40])
        return np.log((1 - lapse) * np.exp(log_p) + lapse * mean)

    def objective(g, lapse):
        return -right(g, lapse).sum() + np.log(g) ** 2 / 2 - np.log(lapse) / 2

    best = objective(model.calibration, model.lapse)
    grid = itertools.product(np.geomspace(0.05, 20, 30), np.geomspace(1e-6, 0.9, 30))
    assert all(best <= objective(g, lapse) + 1e-5 for g, lapse in grid)
    found = right(model.calibration, model.lapse)
    assert model.loo_log_loss == pytest.approx(-found.mean(), rel=1e-8)
    assert model.loo_log_loss_sem == pytest.approx(found.std(ddof=1) / np.sqrt(40))


def test_a_copy_with_another_label_is_not_impossible():
    points = np.concatenate([np.linspace(-5, -3, 20), np.linspace(3, 5, 20)])[:, None]
    labels = (points[:, 0] > 0).astype(int)
    model = fit(kernel(points, points), labels, 1e-8)
    assert model.loo_accuracy == 1
    assert 0.2 / 40 < model.lapse < 3 / 40  # half an input that the scores do not explain
    own = model.predict(kernel(points, points), np.ones(40)).probabilities
    wrong = own[np.arange(40), 1 - labels]
    np.testing.assert_allclose(wrong.min(), model.lapse / 2, rtol=1e-6)
    plain = fit(kernel(points, points), labels, 1e-8, calibrate=False)
    assert plain.lapse == 0
    assert plain.predict(kernel(points, points), np.ones(40)).probabilities.min() == 0


def test_calibration_stays_finite_where_every_prediction_is_right():
    points = np.array([[0.0], [0.1], [0.2], [10.0], [10.1], [10.2]])
    model = fit(kernel(points, points), np.repeat([0, 1], 3), 1.0)
    assert model.loo_accuracy == 1
    assert 0.05 < model.calibration < 1


@pytest.mark.parametrize("nodes", [64, 128])
def test_probabilities_of_the_largest_against_draws(nodes):
    rng = np.random.default_rng(1)
    mean, deviation, draws = rng.normal(size=(3, 5)), np.array([0.3, 1.0, 4.0]), 40_000
    winner = (mean + deviation[:, None] * rng.normal(size=(draws, 3, 5))).argmax(axis=-1)
    counted = np.stack([(winner == c).mean(axis=0) for c in range(5)], axis=1)
    sem = np.sqrt(np.maximum(counted * (1 - counted), 1 / draws) / draws)
    P = largest(mean, deviation, nodes)
    assert np.all(np.abs(P - counted) < 5 * sem)
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-12)


def test_two_gaussians_have_a_closed_form():
    from scipy.special import log_ndtr

    mean, deviation = np.array([[0.0, 1.0], [3.0, -9.0]]), np.array([0.5, 1.0])
    expected = log_ndtr((mean[:, 1] - mean[:, 0]) / (deviation * np.sqrt(2)))
    found = log_largest(mean, deviation, np.array([1, 1]))
    np.testing.assert_allclose(found, expected, rtol=1e-8)  # down to exp(-38)


def test_no_deviation_is_certainty():
    P = largest(np.array([[0.0, 1.0, 0.5], [1.0, 1.0, 0.0]]), np.zeros(2))
    np.testing.assert_allclose(P, [[0, 1, 0], [0.5, 0.5, 0]], atol=1e-9)


@pytest.mark.parametrize(
    "names", [np.array([0, 1, 2]), np.array([7, -3, 10]), np.array(["b", "a", "ç"]), [1.5, 0, 2]]
)
def test_labels_of_any_kind(problem, names):
    K, K_test, labels = problem
    given = np.asarray(names)[labels]
    model = fit(K, given[:40], 1e-2)
    found = model.predict(K_test, np.ones(20))
    assert model.classes.tolist() == sorted(np.asarray(names).tolist())
    reference = fit(K, labels[:40], 1e-2).predict(K_test, np.ones(20))
    assert found.labels.tolist() == np.asarray(names)[reference.labels].tolist()
    order = np.argsort(names)
    np.testing.assert_allclose(found.scores, reference.scores[:, order], atol=1e-12)
    assert found.labels.dtype == given.dtype


def test_a_class_without_examples_has_a_column(problem):
    K, K_test, labels = problem
    model = fit(K, labels[:40] * 2, 1e-2, classes=[0, 1, 2, 3, 4])  # 1 and 3 do not occur
    found = model.predict(K_test, np.ones(20))
    few = fit(K, labels[:40] * 2, 1e-2)
    assert few.classes.tolist() == [0, 2, 4] and model.classes.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(found.scores[:, [1, 3]], 0, atol=1e-15)
    np.testing.assert_allclose(found.scores[:, ::2], few.predict(K_test, np.ones(20)).scores)
    assert set(found.labels.tolist()) <= {0, 2, 4}


def test_duplicates_with_noise_average(problem):
    K, _, labels = problem
    twice = np.r_[np.arange(40), 0]
    K2 = K[np.ix_(twice, twice)]
    other = (labels[0] + 1) % 3  # the same input with two labels
    model = fit(K2, np.r_[labels[:40], other], 1e-3)
    scores = model.predict(K2[:1], np.ones(1)).scores[0]
    assert scores[labels[0]] == pytest.approx(0.5, abs=0.02)
    assert scores[other] == pytest.approx(0.5, abs=0.02)


def test_singular_gram_says_what_to_do(problem):
    K, _, labels = problem
    twice = np.r_[np.arange(40), 7]
    with pytest.raises(ValueError, match=r"inputs 7 and 40 have equal rows. Give a larger noise"):
        fit(K[np.ix_(twice, twice)], labels[twice], 0.0)
    features = np.arange(1.0, 5.0)[:, None]  # rank one, no two rows equal
    with pytest.raises(ValueError, match=r"not positive definite to working precision"):
        fit(features @ features.T, np.array([0, 1, 0, 1]), 0.0)
    assert fit(K, labels[:40], 0.0).noise.max() == 0  # regular: no noise is needed


def test_bad_input(problem):
    K, K_test, labels = problem
    y = labels[:40]
    with pytest.raises(ValueError, match="differs from its transpose"):
        fit(np.triu(K), y, 0.1)
    with pytest.raises(ValueError, match=r"hold the classes \[1\]; a classifier needs at least"):
        fit(K, np.ones(40, int), 0.1)
    with pytest.raises(ValueError, match=r"Labels \[2\] are not among the classes \[0, 1\]"):
        fit(K, y, 0.1, classes=[0, 1])
    with pytest.raises(ValueError, match="without repetition"):
        fit(K, y, 0.1, classes=[0, 1, 2, 2])
    with pytest.raises(ValueError, match="noise is a variance; the smallest given is -1"):
        fit(K, y, -1.0)
    with pytest.raises(ValueError, match="labels is not finite"):
        fit(K, np.where(y == 0, np.nan, y), 0.1)
    with pytest.raises(ValueError, match=r"labels have shape \(2, 2\)"):
        encode(np.eye(2))
    broken = K.copy()
    broken[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"K is not finite at \[3, 4\]"):
        fit(broken, y, 0.1)
    with pytest.raises(ValueError, match=r"K_test \(20, 39\).*should be \(m, 40\)"):
        fit(K, y, 0.1).predict(K_test[:, 1:], np.ones(20))


def test_negative_variances_are_counted(problem):
    K, K_test, labels = problem
    model = fit(K, labels[:40], 1e-2)
    found = model.predict(K_test, np.zeros(20))
    assert found.clipped == 20
    assert np.all(found.deviation > 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.scale = 2.0
