"""The exact sampler of one layer: against brute force at small width, and to the limit at 10^6."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from limitformer.heads.wishart import bartlett, finite_width, layer

C = np.array([[1.0, 0.4, 0.0], [0.4, 1.5, -0.3], [0.0, -0.3, 0.7]])


def brute_force(rng, C, n, d, heads, qk_std, ov_std, runs, fixed=False):
    """Matrices and vectors as they are: scores of all heads, first two coordinates, Y^T Y / n."""
    S = len(C)
    X = rng.normal(size=(runs, n, S)) @ np.linalg.cholesky(C).T
    if fixed:  # any X with X^T X / n = C
        basis = np.linalg.qr(rng.normal(size=(n, S)))[0]
        X = np.sqrt(n) * np.broadcast_to(basis @ np.linalg.cholesky(C).T, X.shape)
    scores, Y = [], 0.0
    for _ in range(heads):
        Q, K, V = (W @ X for W in rng.normal(size=(3, runs, d, n)) / np.sqrt(n))
        G = qk_std * np.swapaxes(Q, 1, 2) @ K / np.sqrt(d)
        A = np.exp(G) / np.exp(G).sum(axis=-1, keepdims=True)
        O = rng.normal(size=(runs, n, d)) / np.sqrt(d)
        Y = Y + ov_std * O @ V @ np.swapaxes(A, 1, 2) / np.sqrt(heads)
        scores.append(G)
    return np.stack(scores, axis=1), np.swapaxes(Y[:, :2], 1, 2), np.swapaxes(Y, 1, 2) @ Y / n


@pytest.mark.parametrize(
    ("n", "d", "fixed"),
    [(6, 2, False), (2, 1, False), pytest.param(5, 3, True, marks=pytest.mark.slow)],
)
def test_brute_force(key, n, d, fixed):
    """Also with fewer dimensions than tokens, where the Gram matrices are singular."""
    runs, options = 6000, {"heads": 2, "qk_std": 1.2, "ov_std": 0.8}
    rng = np.random.default_rng(0)
    G, y, M = brute_force(rng, C, n, d, runs=runs, fixed=fixed, **options)
    found = finite_width(
        C, n, key=key, runs=runs, head_width=d, coordinates=2, fixed=fixed, **options
    )

    def numbers(G, y, M):
        a, b, c, e = G[:, 0, 0, 1], G[:, 1, 2, 2], y[:, 0, 0], y[:, 2, 1]
        return {
            "score": a,
            "own score": G[:, 0, 0, 0],
            "output": c,
            "second moment": M[:, 1, 1],
            "cross moment": M[:, 0, 2],
            "two heads": a**2 * b**2,
            "two keys": a * G[:, 0, 1, 1],
            "two queries": G[:, 0, 0, 0] * G[:, 0, 1, 1],
            "two tokens": c * y[:, 1, 0],
            "two coordinates": c**2 * e**2,
            "score and output": a * c**2,
            "moment and output": M[:, 0, 0] * c**2,
            "moment and score": M[:, 0, 0] * a**2,
        }

    first, second = numbers(G, y, M), numbers(found.scores, found.outputs, found.second_moment)
    for name, u in first.items():
        v = second[name]
        assert abs(u.mean() - v.mean()) < 5 * np.hypot(u.std(), v.std()) / np.sqrt(runs), name
        assert scipy.stats.ks_2samp(u, v).pvalue > 1e-4, name


def test_bartlett(key, x64):
    T = jax.jit(jax.vmap(lambda k: bartlett(k, 2, 3)))(jax.random.split(key, 4000))
    assert T.shape == (4000, 3, 2)
    for i in range(2):
        assert scipy.stats.kstest(T[:, i, i], scipy.stats.chi(2 - i).cdf).pvalue > 1e-3
    for below in (T[:, 1, 0], T[:, 2, 0], T[:, 2, 1]):
        assert scipy.stats.kstest(below, scipy.stats.norm.cdf).pvalue > 1e-3
    assert (T[:, 0, 1] == 0).all()


def test_convergence_to_a_million(key):
    """s = 4, C = I: second moment with relative spread .285 / sqrt H, kurtosis .243 / H."""
    runs, H, gaps = 30_000, 2, []
    for n in (16, 128, 1024, 10**6):
        found = finite_width(np.eye(4), n, heads=H, key=key, runs=runs)
        v = found.second_moment[:, 0, 0]
        spread = v.std() / v.mean()
        x = v / v.mean() - 1  # delta method for the standard deviation over the mean
        sem = (x**2 / (2 * spread) - spread * x).std() / np.sqrt(runs)
        gaps.append(spread - 0.285 / np.sqrt(H))
    assert gaps[0] > 4 * gaps[1] > 16 * gaps[2] > 0  # O(1/n)
    assert abs(gaps[3]) < 5 * sem + 0.0005
    K = found.kernel[:, 0, 0]
    kurtosis = 3 * ((K**2).mean() / K.mean() ** 2 - 1)
    assert abs(kurtosis - 0.243 / H) < 5 * 6 * spread * sem + 0.0005
    assert abs(K.mean() - 0.3918) < 5 * K.std() / np.sqrt(runs) + 0.00005
    p = found.scores[:, 0, 0, 1]
    assert abs((p**2).mean() - 1) < 5 * np.sqrt(2 / runs)
    np.testing.assert_allclose(v, K, rtol=0.02)  # given the scores it concentrates


@pytest.mark.slow
def test_layers_compose(key, x64):
    """Y^T Y / n of one layer is the X^T X / n of the next: depth 2 of theory 0, at width 10^6."""
    K0 = np.array([[1.05, -0.20, 0.16, 0.21], [-0.20, 1.75, 0.60, -0.09],
                   [0.16, 0.60, 1.51, -0.08], [0.21, -0.09, -0.08, 0.72]])  # fmt: skip
    n, runs = 10**6, 20_000
    first = finite_width(K0, n, heads=2, key=key, runs=runs, qk_std=1.5)
    L = jnp.linalg.cholesky(jnp.asarray(first.second_moment))
    keys = jax.random.split(jax.random.fold_in(key, 1), runs)
    _, second = jax.jit(jax.vmap(lambda k, L: layer(k, L, n, 2, qk_std=1.5)))(keys, L)
    for K, truth in ((first.kernel, 0.827), (np.asarray(second), 0.0581)):
        gap = K[:, 0, 0] + K[:, 1, 1] - 2 * K[:, 0, 1]
        assert abs(gap.mean() - truth) < 5 * np.sqrt(2) * gap.std() / np.sqrt(runs) + truth / 1e3


@pytest.mark.slow
def test_runs_do_not_depend_on_their_number(key):
    long = finite_width(C, 50, heads=1, key=key, runs=9)
    short = finite_width(C, 50, heads=1, key=key, runs=4)
    np.testing.assert_allclose(long.outputs[:4], short.outputs, rtol=1e-12)


def test_duplicate_tokens_and_large_scores(key):
    found = finite_width(np.ones((3, 3)), 100, heads=2, key=key, runs=20, qk_std=1e4)
    assert np.isfinite(found.outputs).all()
    np.testing.assert_allclose(found.outputs[:, 0], found.outputs[:, 1], rtol=1e-5)


@pytest.mark.parametrize(
    ("C", "options", "says"),
    [
        (np.eye(2), {"heads": 0}, "heads=0; it must be a positive integer"),
        (np.eye(2), {"n": 0}, "n=0; it must be a positive integer"),
        (np.eye(2), {"head_width": -1}, "head_width=-1; it must be a positive integer"),
        (np.eye(2), {"coordinates": 9}, "coordinates=9, and the outputs have only n=8"),
        (np.ones((2, 3)), {}, r"square matrix, one row per token, got shape \(2, 3\)"),
        (-np.eye(2), {}, "C has eigenvalue -1; it must be positive semidefinite"),
        ([[1.0, 0.5], [0.0, 1.0]], {}, "C must be finite and symmetric"),
    ],
)
def test_refusals(key, C, options, says):
    options = {"n": 8, "heads": 1, "runs": 2} | options
    with pytest.raises(ValueError, match=says):
        finite_width(C, options.pop("n"), key=key, **options)
