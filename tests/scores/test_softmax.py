import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limitformer.scores import (
    attention_draws,
    draw_scores,
    joint_features,
    normals,
    ntk_sum,
    rotary_phases,
    score_normals,
    value_sum,
)


def weights(key, *shape):
    return jax.nn.softmax(jax.random.normal(key, shape), axis=-1)


def loops(P, R, K, B, rho=None):
    """S_ab(B) of one draw by its definition, float64."""
    S = np.zeros((P.shape[0], R.shape[0]))
    for a, b in np.ndindex(*S.shape):
        JP = np.diag(P[a]) - np.outer(P[a], P[a])  # [c, g]
        JR = np.diag(R[b]) - np.outer(R[b], R[b])
        for c, g in itertools.product(range(P.shape[1]), repeat=2):
            for d, h in itertools.product(range(R.shape[1]), repeat=2):
                factor = 1.0 if rho is None else rho((a - g) - (b - h))
                S[a, b] += K[c, d] * B[g, h] * JP[c, g] * JR[d, h] * factor
    return S


@pytest.mark.parametrize("chunk", [2, 64])
@pytest.mark.parametrize("rotary", [False, True])
def test_sums_against_loops(key, chunk, rotary):
    """Cross-attention sizes: 3 and 2 queries, 4 and 5 keys, 3 draws."""
    k = jax.random.split(key, 6)
    P, R = weights(k[0], 3, 3, 4), weights(k[1], 3, 2, 5)
    Kv, Tv, Ks, Ts = (jax.random.normal(i, (4, 5)) for i in k[2:])
    frequencies = jnp.asarray([1.0, 0.3])
    rho, phases = None, (None, None)
    if rotary:
        rho = lambda t: np.mean(np.cos(np.asarray(frequencies) * t))  # noqa: E731
        position = lambda n: jnp.arange(n, dtype=jnp.float32)  # noqa: E731
        phases = tuple(
            rotary_phases(frequencies, position(q), position(c)) for q, c in ((3, 4), (2, 5))
        )
    sums = ntk_sum(P, R, Kv, Tv, Ks, Ts, *phases, chunk=chunk)
    p, r, kv, tv, ks, ts = (np.asarray(m, np.float64) for m in (P, R, Kv, Tv, Ks, Ts))
    mean = lambda f: np.mean([f(p[d], r[d]) for d in range(3)], axis=0)  # noqa: E731
    np.testing.assert_allclose(sums.K, mean(lambda p, r: p @ kv @ r.T), atol=1e-6)
    np.testing.assert_allclose(sums.T, mean(lambda p, r: p @ tv @ r.T), atol=1e-6)
    np.testing.assert_allclose(sums.S_K, mean(lambda p, r: loops(p, r, kv, ks, rho)), atol=2e-6)
    np.testing.assert_allclose(sums.S_T, mean(lambda p, r: loops(p, r, kv, ts, rho)), atol=2e-6)
    np.testing.assert_allclose(value_sum(P, R, Kv, chunk=chunk), sums.K, atol=1e-6)


def test_missing_tangents_are_none(key):
    P, K = weights(key, 2, 3, 3), jnp.eye(3)
    sums = ntk_sum(P, P, K, None, K, None)
    assert sums.T is None and sums.S_T is None


def test_batches_broadcast_and_equal_single_pairs(key):
    k = jax.random.split(key, 3)
    P, R = weights(k[0], 2, 1, 4, 3, 3), weights(k[1], 1, 3, 4, 3, 3)
    K = jax.random.normal(k[2], (2, 3, 3, 3))
    sums = ntk_sum(P, R, K, K, K, K, chunk=3)
    for i, j in np.ndindex(2, 3):
        one = ntk_sum(P[i, 0], R[0, j], K[i, j], K[i, j], K[i, j], K[i, j], chunk=4)
        for all_pairs, pair in zip(sums, one, strict=True):
            np.testing.assert_allclose(all_pairs[i, j], pair, atol=1e-6)


def test_masked_rows_are_zero_with_finite_gradient(key):
    scores = 100 * jax.random.normal(key, (2, 3, 4))
    mask = jnp.asarray([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
    A = attention_draws(scores, mask)
    np.testing.assert_allclose(jnp.sum(A, -1), [[1, 0, 1]] * 2, atol=1e-6)
    assert np.all(np.asarray(A)[:, ~np.asarray(mask)] == 0)
    np.testing.assert_allclose(
        A[:, 0][:, [0, 1, 3]], jax.nn.softmax(scores[:, 0][:, [0, 1, 3]]), atol=1e-6
    )
    bad = scores.at[:, 1].set(jnp.inf)  # what is masked may be anything
    gradient = jax.grad(lambda g: jnp.sum(attention_draws(g, mask) ** 2))(bad)
    assert np.all(np.isfinite(gradient)) and np.all(np.asarray(gradient)[:, 1] == 0)


@pytest.mark.parametrize("rotary", [False, True])
def test_covariance_of_scores(key, rotary):
    """Cov(G_ac(x), G_bd(y)) = s^2 K_ab K_cd rho((a-c) - (b-d)) within 5 standard errors."""
    k = jax.random.split(key, 3)
    x, y = (jax.random.normal(i, (3, 4)) / 2 for i in k[:2])
    Fx, Fy = joint_features(x @ x.T, y @ y.T, x @ y.T)
    frequencies, position = jnp.asarray([0.7, 0.2]), jnp.arange(3, dtype=jnp.float32)
    phases = rotary_phases(frequencies, position, position) if rotary else None

    def scores(k):
        Z = score_normals(key=k, draws=16, rows=6, cols=6, terms=4 if rotary else None)
        return (
            draw_scores(Fx, Fx, Z, -1.3, phases)[3],
            draw_scores(Fy, Fy, Z, -1.3, phases)[3],
        )

    G, H = jax.jit(jax.vmap(scores))(jax.random.split(k[2], 8000))
    products = np.einsum("nac,nbd->nacbd", G, H).astype(np.float64)
    Kxy = np.asarray(x @ y.T, np.float64)
    expected = 1.3**2 * np.einsum("ab,cd->acbd", Kxy, Kxy)
    if rotary:
        a, c, b, d = np.indices((3, 3, 3, 3))
        t = (a - c) - (b - d)
        expected = expected * np.mean([np.cos(w * t) for w in (0.7, 0.2)], axis=0)
    sem = products.std(0) / np.sqrt(len(products))
    assert np.all(np.abs(products.mean(0) - expected) < 5 * sem)


def test_padded_equals_truncated(key):
    k = jax.random.split(key, 3)
    x, y = jax.random.normal(k[0], (3, 5)) / 2, jax.random.normal(k[1], (4, 5)) / 2

    @jax.jit
    def layer(x, y, seen_x, seen_y):
        Fx, Fy = joint_features(x @ x.T, y @ y.T, x @ y.T)
        f = Fx.shape[-1]
        Z = score_normals(key=k[2], draws=32, rows=f, cols=f)
        P = attention_draws(draw_scores(Fx, Fx, Z, -2.0), seen_x[:, None] & seen_x)
        R = attention_draws(draw_scores(Fy, Fy, Z, -2.0), seen_y[:, None] & seen_y)
        K = x @ y.T
        return ntk_sum(P, R, K, K, K, K)

    short = layer(x, y, jnp.ones(3, bool), jnp.ones(4, bool))
    pad = lambda v, n: jnp.pad(v, ((0, n), (0, 0)))  # noqa: E731
    long = layer(pad(x, 4), pad(y, 1), jnp.arange(7) < 3, jnp.arange(5) < 4)
    for a, b in zip(short, long, strict=True):
        np.testing.assert_allclose(b[:3, :4], a, atol=2e-6)
        assert np.all(b[3:] == 0) and np.all(b[:, 4:] == 0)


@pytest.mark.parametrize(("s", "expected"), [(2, 0.6364), (4, 0.3918), (8, 0.2317), (16, 0.1322)])
def test_sakai_variance(key, s, expected):
    """C = I, s_QK = 1: E[sum_j softmax_j^2] (theory, section 3), to its 4 digits and 5 sem."""

    def one(k):
        A = attention_draws(normals(key=k, draws=64, dims=s)[:, None])
        return value_sum(A, A, jnp.eye(s))[0, 0]

    v = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(key, 500)), np.float64)
    assert abs(v.mean() - expected) < 5 * v.std() / np.sqrt(len(v)) + 5e-5


def test_gradient_is_finite_at_equal_inputs(key):
    x = jax.random.normal(key, (4, 6)) / 2

    def entry(x, y):
        Kxx, Kyy, Kxy = x @ x.T, y @ y.T, x @ y.T
        Fx, Fy = joint_features(Kxx, Kyy, Kxy)
        Z = score_normals(key=key, draws=16, rows=8, cols=8)
        P, R = (
            attention_draws(draw_scores(F, F, Z, 1.0), jnp.ones((4, 4), bool)) for F in (Fx, Fy)
        )
        return jnp.sum(ntk_sum(P, R, Kxy, Kxy, Kxy, Kxy, chunk=5).S_T)

    for gradient in jax.jit(jax.grad(entry, argnums=(0, 1)))(x, x):
        assert np.all(np.isfinite(gradient))


def test_errors_say_what_to_do():
    F, Z = jnp.eye(3), jnp.zeros((2, 3, 3))
    with pytest.raises(ValueError, match="terms=2"):
        draw_scores(F, F, Z, 1.0, jnp.zeros((2, 3, 3)))
    with pytest.raises(ValueError, match="both sides"):
        ntk_sum(Z, Z, F, None, F, None, jnp.zeros((2, 3, 3)))
