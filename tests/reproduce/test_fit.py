import numpy as np

from limitformer.reproduce.fit import FIXED, binomial_error, fit


def problem(outputs):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 4))
    labels = np.argmax(x[:, :3], axis=1) if outputs > 1 else (x[:, 0] > 0).astype(int)
    targets = np.eye(3)[labels] - 0.1 if outputs > 1 else (labels - 0.5)[:, None]
    K = np.exp(-0.2 * np.sum((x[:, None] - x) ** 2, -1))
    return K, targets, labels


def test_leave_one_out_is_what_leaving_one_out_gives():
    for outputs in (3, 1):
        K, targets, labels = problem(outputs)
        found = fit(K, targets, (1e-3, 0.1))
        for r, ridge in enumerate(found.ridges):
            noise = ridge * np.trace(K) / len(K)
            left = np.empty_like(targets)
            for i in range(len(K)):
                rest = np.arange(len(K)) != i
                M = K[np.ix_(rest, rest)] + noise * np.eye(len(K) - 1)
                left[i] = K[i, rest] @ np.linalg.solve(M, targets[rest])
            np.testing.assert_allclose(found.loo_error[r], np.mean((left - targets) ** 2))
            guess = np.argmax(left, 1) if outputs > 1 else left[:, 0] > 0
            assert found.loo_accuracy[r] == np.mean(guess == labels)


def test_predictions_are_those_of_a_plain_solve():
    K, targets, labels = problem(3)
    found = fit(K[:20, :20], targets[:20])
    noise = FIXED * np.trace(K[:20, :20]) / 20
    want = K[20:, :20] @ np.linalg.solve(K[:20, :20] + noise * np.eye(20), targets[:20])
    right = np.sum(np.argmax(want, axis=1) == labels[20:])
    assert found.ridges[found.fixed] == FIXED
    assert found.correct(K[20:, :20], labels[20:])[found.fixed] == right


def test_a_singular_kernel_leaves_the_ridges_that_are_large_enough():
    K = np.ones((5, 5)) + 1e-3 * np.eye(5)
    K[0, 0] -= 1e-2  # one negative eigenvalue
    found = fit(K, np.array([[0.5], [-0.5], [0.5], [0.5], [-0.5]]), (1e-6, 0.5))
    assert found.loo_error[0] == np.inf
    assert found.loo_accuracy[0] == 0
    assert found.chosen == 1


def test_binomial_error():
    assert binomial_error(0.2, 400) == 0.02
    assert binomial_error(1.0, 7) == 0
