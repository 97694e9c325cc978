"""Classification by regression: closed forms against the long way round."""

import numpy as np
import pytest

from limitformer.report.classify import classify


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    points = rng.normal(size=(60, 3)) + 3 * np.eye(3)[labels]
    distance = np.sum((points[:, None] - points[None]) ** 2, axis=-1)
    return np.exp(-distance / 2), labels


def split(K, n):
    return K[:n, :n], K[n:, :n], np.diagonal(K)[n:]


def test_leave_one_out_is_what_leaving_out_gives(problem):
    K, labels = problem
    n = 40
    result = classify(*split(K, n), labels[:n], labels[n:], ridges=[1e-2])
    noise = 1e-2 * np.trace(K[:n, :n]) / n
    Y = np.eye(3)[labels[:n]]
    mean = Y.mean(axis=0)  # the one quantity that stays in
    errors, right = [], []
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        solved = np.linalg.solve(K[np.ix_(rest, rest)] + noise * np.eye(n - 1), Y[rest] - mean)
        score = mean + K[i, rest] @ solved
        errors.append((score - Y[i]) ** 2)
        right.append(score.argmax() == labels[i])
    assert result.loo_error == pytest.approx(np.mean(errors), rel=1e-10)
    assert result.loo_accuracy == np.mean(right)


def test_scores_and_deviations_are_those_of_the_gaussian_process(problem):
    K, labels = problem
    n = 40
    result = classify(*split(K, n), labels[:n], labels[n:], ridges=[1e-3])
    noise = 1e-3 * np.trace(K[:n, :n]) / n
    Y = np.eye(3)[labels[:n]]
    mean = Y.mean(axis=0)
    inverse = np.linalg.inv(K[:n, :n] + noise * np.eye(n))
    np.testing.assert_allclose(result.scores, mean + K[n:, :n] @ inverse @ (Y - mean), rtol=1e-8)
    scale = np.trace((Y - mean).T @ inverse @ (Y - mean)) / Y.size
    variance = np.diagonal(K)[n:] - np.einsum("ij,jk,ik->i", K[n:, :n], inverse, K[n:, :n]) + noise
    wide = result.calibration**2 * scale * variance
    np.testing.assert_allclose(result.deviation**2, wide, rtol=1e-7)


def test_the_ridge_does_not_depend_on_held_out_labels(problem):
    K, labels = problem
    n = 40
    one = classify(*split(K, n), labels[:n], labels[n:])
    two = classify(*split(K, n), labels[:n], np.zeros_like(labels[n:]))
    assert one.ridge == two.ridge
    np.testing.assert_array_equal(one.scores, two.scores)
    assert one.accuracy > 0.8


def test_counts_agree(problem):
    K, labels = problem
    result = classify(*split(K, 40), labels[:40], labels[40:])
    assert result.confusion.sum() == 20
    assert np.trace(result.confusion) == result.correct.sum()
    assert result.accuracy == result.correct.mean()
