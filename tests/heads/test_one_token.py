"""One token's output: against networks made of matrices, the sampler of all tokens, the limit."""

import math

import jax
import numpy as np
import pytest
import scipy.stats

from limitformer.heads.one_token import (
    fixed_inputs,
    gaussian_inputs,
    linear_inputs,
    one_token,
    relu_inputs,
)
from limitformer.heads.wishart import finite_width

C = np.array([[1.0, 0.4, 0.0], [0.4, 1.5, -0.3], [0.0, -0.3, 0.7]])


def networks(rng, psi, n, d, heads, qk_std, ov_std, runs, S=3):
    """Matrices and vectors as they are: a score, y_11 and the second moment of token 1."""
    h = rng.normal(size=(runs, 1, n, 1))
    X = psi(rng.normal(size=(runs, S, n, n)) @ h / np.sqrt(n))[..., 0]  # (runs, S, n)
    Y = 0.0
    for head in range(heads):
        Q, K, V = (X @ W for W in rng.normal(size=(3, runs, n, d)) / np.sqrt(n))
        G = qk_std * Q @ np.swapaxes(K, 1, 2) / np.sqrt(d)
        A = np.exp(G) / np.exp(G).sum(axis=-1, keepdims=True)
        Y = Y + ov_std * A @ V @ rng.normal(size=(runs, d, n)) / np.sqrt(d * heads)
        first = G if head == 0 else first
    return first[:, 0, 0], first[:, 0, 1], Y[:, 0, 0], (Y[:, 0] ** 2).mean(axis=1)


@pytest.mark.parametrize(
    ("inputs", "psi"),
    [(linear_inputs, lambda u: np.clip(u, -100, 100)), (relu_inputs, lambda u: np.maximum(u, 0))],
    ids=["linear", "relu"],
)
def test_networks(key, inputs, psi):
    n, runs, options = 7, 6000, {"heads": 2, "qk_std": 1.2, "ov_std": 0.8}
    found = one_token(inputs(3, n), n, key=key, runs=runs, head_width=4, **options)
    want = networks(np.random.default_rng(0), psi, n, 4, runs=runs, **options)
    numbers = found.scores[:, 0], found.scores[:, 1], found.outputs, found.second_moment
    for name, u, v in zip(("own", "other", "output", "moment"), numbers, want, strict=True):
        assert scipy.stats.ks_2samp(u, v).pvalue > 1e-4, name
        second = (u**2).mean() - (v**2).mean()
        assert abs(second) < 5 * np.hypot((u**2).std(), (v**2).std()) / np.sqrt(runs), name
    joint = [u[2] ** 2 * u[3] for u in (numbers, want)]
    gap = joint[0].mean() - joint[1].mean()
    assert abs(gap) < 5 * np.hypot(joint[0].std(), joint[1].std()) / np.sqrt(runs)


def test_all_tokens_together(key):
    """The marginal of the sampler of all tokens, with correlated ones and narrow heads."""
    options = {"heads": 2, "head_width": 3, "qk_std": 1.5, "runs": 8000}
    one = one_token(gaussian_inputs(C, 9), 9, key=key, **options)
    both = finite_width(C, 9, key=jax.random.fold_in(key, 1), **options)
    pairs = {
        "score": (one.scores[:, 1], both.scores[:, 0, 0, 1]),
        "kernel": (one.variance, both.kernel[:, 0, 0]),
        "output": (one.outputs, both.outputs[:, 0, 0]),
        "moment": (one.second_moment, both.second_moment[:, 0, 0]),
    }
    for name, (u, v) in pairs.items():
        assert scipy.stats.ks_2samp(u, v).pvalue > 1e-4, name


@pytest.mark.parametrize(("s", "mean"), [(2, 0.6364), (4, 0.3918), (8, 0.2317), (16, 0.1322)])
def test_the_limit(key, s, mean):
    """E[v], excess kurtosis 3 CV^2 / H and the spread CV / sqrt H of theory 3."""
    runs, H = 100_000, 2
    v = one_token(fixed_inputs(np.eye(s)), math.inf, heads=H, key=key, runs=runs).variance
    assert abs(v.mean() - mean) < 5 * v.std() / np.sqrt(runs) + 5e-5
    if s == 4:
        spread, u = v.std() / v.mean(), v / v.mean() - 1
        sem = (u * u / (2 * spread) - spread * u).std() / np.sqrt(runs)
        assert abs(spread - 0.285 / np.sqrt(H)) < 5 * sem + 0.0005
        assert abs(3 * spread**2 - 0.243 / H) < 5 * 6 * spread * sem + 0.0005


def test_widths_to_a_million(key):
    """Moments at width n: E[y^2] against its limit, Var of a score exactly (1 + 2/n)^2."""
    runs = 40_000
    for n in (16, 10**6):
        found = one_token(linear_inputs(4, n), n, heads=1, key=key, runs=runs)
        g2 = found.scores[:, 0] ** 2
        assert abs(g2.mean() - (1 + 2 / n) ** 2) < 5 * g2.std() / np.sqrt(runs)
    assert abs(found.variance.mean() - 0.3918) < 5 * found.variance.std() / np.sqrt(runs) + 5e-5
    np.testing.assert_allclose(found.second_moment, found.variance, rtol=0.02)


def test_same_key_same_numbers(key):
    short, long = (
        one_token(linear_inputs(4, 64), 64, heads=1, key=key, runs=runs) for runs in (4096, 5000)
    )
    np.testing.assert_array_equal(short.outputs, long.outputs[:4096])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"heads": 0}, "heads=0; it must be a positive whole number"),
        ({"n": 2.5}, "n=2.5; it must be"),
        ({"head_width": -1}, "head_width=-1; it must be"),
        ({"runs": True}, "runs=True; it must be"),
    ],
)
def test_refusals(key, options, says):
    options = {"n": 8, "heads": 1, "runs": 10} | options
    with pytest.raises(ValueError, match=says):
        one_token(fixed_inputs(np.eye(2)), options.pop("n"), key=key, **options)


def test_fewer_dimensions_than_tokens():
    with pytest.raises(ValueError, match="n=2 dimensions for 3 tokens"):
        gaussian_inputs(C, 2)
