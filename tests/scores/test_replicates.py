import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from limitformer.scores import (
    REPLICATES,
    attention_draws,
    draw_scores,
    draws_each,
    joint_features,
    mean_and_error,
    replicate_keys,
    score_normals,
    value_sum,
)


def pair(key, tokens=3):
    """Joint features of two inputs of tokens with 8 features, K_aa about 1."""
    x, y = jax.random.normal(key, (2, tokens, 8)) / 8**0.5
    return joint_features(x @ x.T, y @ y.T, x @ y.T)


def layer(Fx, Fy, Z):
    P, R = (attention_draws(draw_scores(F, F, Z, 1.0)) for F in (Fx, Fy))
    return value_sum(P, R, Fx @ Fy.T)


def test_standard_errors_are_honest_and_means_unbiased(key):
    """z of 500 runs against a huge plain sample: Student's t with REPLICATES - 1 df."""
    Fx, Fy = pair(key)
    each = draws_each(64 * REPLICATES)

    @jax.jit
    @jax.vmap
    def run(k):
        one = lambda k: layer(Fx, Fy, score_normals(key=k, draws=each, rows=6, cols=6))  # noqa: E731
        return mean_and_error(jax.vmap(one)(replicate_keys(key=k)))

    @jax.jit
    @jax.vmap
    def plain(k):
        return layer(Fx, Fy, jax.random.normal(k, (1000, 6, 6)))

    # The truth is a huge plain sample; its own error is taken out by adding it to that of a run.
    sample = np.asarray(plain(jax.random.split(jax.random.key(5), 500)), np.float64)
    truth, doubt = sample.mean(0), sample.std(0) / np.sqrt(len(sample))
    mean, error = (np.asarray(m, np.float64) for m in run(jax.random.split(key, 500)))
    sem = np.hypot(mean.std(0) / np.sqrt(500), doubt)
    assert np.all(np.abs(mean.mean(0) - truth) < 5 * sem)
    for a, b in ((0, 0), (1, 2)):
        z = (mean - mean.mean(0))[:, a, b] / error[:, a, b]
        assert stats.kstest(z, stats.t(REPLICATES - 1).cdf).pvalue > 1e-3


@pytest.mark.slow
def test_draws_gain_over_plain_ones(key):
    """4 tokens, s_QK = 1, 128 draws: the standard deviation is at least 3 times smaller.

    That holds for kernels of unit variance; larger ones gain less (`benchmarks/draws.py`).
    """
    Fx, Fy = pair(key, 4)
    keys = jax.random.split(key, 200)

    def variance(normals):
        return np.mean(np.var(jax.jit(jax.vmap(lambda k: layer(Fx, Fy, normals(k))))(keys), axis=0))

    plain = variance(lambda k: jax.random.normal(k, (128, 8, 8)))
    assert plain > 9 * variance(lambda k: score_normals(key=k, draws=128, rows=8, cols=8))


def test_mean_and_error():
    mean, error = mean_and_error(jnp.asarray([1.0, 2.0, 6.0]))
    np.testing.assert_allclose([mean, error], [3.0, np.sqrt(14 / 6)], rtol=1e-6)


def test_first_replicates_do_not_depend_on_their_number(key):
    a, b = replicate_keys(key=key, replicates=3), replicate_keys(key=key, replicates=5)
    np.testing.assert_array_equal(jax.random.key_data(a), jax.random.key_data(b[:3]))


def test_errors_say_what_to_do():
    assert draws_each(1024) == 1024 // REPLICATES
    with pytest.raises(ValueError, match="draws=104"):
        draws_each(100, 8)
    with pytest.raises(ValueError, match="draws=8"):
        draws_each(3, 8)
    with pytest.raises(ValueError, match="replicates=2"):
        draws_each(8, 1)
    with pytest.raises(ValueError, match="at least 2"):
        mean_and_error(jnp.ones((1, 3)))
