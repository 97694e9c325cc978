import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from limitformer.scores import normals, score_normals, shell_index, square


def test_more_dimensions_leave_the_first_ones_alone(key, draws=300):
    z = normals(key=key, draws=draws, dims=300)
    assert z.shape == (draws, 300)
    for dims in (1, 65, 299):
        np.testing.assert_array_equal(normals(key=key, draws=draws, dims=dims), z[:, :dims])


def test_a_larger_matrix_keeps_its_corner(key):
    Z = score_normals(key=key, draws=32, rows=9, cols=12, terms=4)
    assert Z.shape == (32, 4, 9, 12)
    np.testing.assert_array_equal(
        score_normals(key=key, draws=32, rows=5, cols=3, terms=4), Z[:, :, :5, :3]
    )
    np.testing.assert_array_equal(
        score_normals(key=key, draws=32, rows=5, cols=3),
        score_normals(key=key, draws=32, rows=7, cols=8)[:, :5, :3],
    )


def test_shells_count_every_entry_once():
    np.testing.assert_array_equal(np.sort(shell_index(6, 6).ravel()), np.arange(36))
    np.testing.assert_array_equal(np.sort(shell_index(3, 3).ravel()), np.arange(9))


@pytest.mark.parametrize("draws", [7])
def test_every_entry_is_normal_and_draws_are_not_biased(key, draws):
    """Marginals against N(0, 1), and E[z_j z_k] = [j = k] within 5 standard errors over keys."""
    z = jax.vmap(lambda k: normals(key=k, draws=draws, dims=20))(jax.random.split(key, 2000))
    z = np.asarray(z, np.float64)
    for draw, dim in ((0, 0), (1, 0), (draws - 1, 7), (0, 19)):
        assert stats.kstest(z[:, draw, dim], "norm").pvalue > 1e-4
    moments = z[:, :, :, None] * z[:, :, None, :]
    mean, sem = moments.mean(0), moments.std(0) / np.sqrt(len(z))
    assert np.all(np.abs(mean - np.eye(20)) < 5.5 * sem)


def test_a_row_of_a_block_has_the_radius_of_a_normal(key):
    """|z|^2 over a part of a block is chi-squared: the joint law, not only the marginals."""
    z = jax.vmap(lambda k: normals(key=k, draws=16, dims=6))(jax.random.split(key, 2000))
    squares = np.sum(np.asarray(z[:, 3], np.float64) ** 2, axis=-1)
    assert stats.kstest(squares, stats.chi2(6).cdf).pvalue > 1e-4


def test_odd_moments_vanish_and_second_moments_are_nearly_exact(key):
    """Off-diagonal second moments of 128 draws: 1/sqrt(128) = .088 for independent draws."""
    z = np.asarray(normals(key=key, draws=128, dims=64), np.float64)
    assert np.abs(z.mean(0)).max() < 1e-6
    assert np.abs((z**3).mean(0)).max() < 1e-5
    second = z.T @ z / 128
    off = second - np.diag(np.diag(second))
    assert np.sqrt((off**2).sum() / (64 * 63)) < 0.03


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_follows(key, x64, dtype):
    assert normals(key=key, draws=5, dims=3, dtype=dtype).dtype == dtype


def test_traced_and_old_style_keys(key):
    run = jax.jit(lambda k: normals(key=k, draws=8, dims=3))
    np.testing.assert_allclose(run(key), normals(key=key, draws=8, dims=3), rtol=1e-5, atol=1e-6)
    old = jax.random.PRNGKey(3)
    np.testing.assert_allclose(run(old), normals(key=old, draws=8, dims=3), rtol=1e-5, atol=1e-6)


def test_errors_say_what_to_do(key):
    with pytest.raises(ValueError, match="use at least 1"):
        normals(key=key, draws=0, dims=3)
    with pytest.raises(ValueError, match="use at least 1"):
        normals(key=key, draws=4, dims=0)
    with pytest.raises(ValueError, match=r"normals\(dims=16\)"):
        square(jnp.zeros((2, 9)), 4, 3)
