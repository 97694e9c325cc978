import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limitformer.scores import (
    factor_residual,
    joint_features,
    joint_kernel,
    landmark_features,
    landmark_residual,
    semidefinite_cholesky,
)

semidefinite_cholesky = jax.jit(semidefinite_cholesky)
joint_features = jax.jit(joint_features)


def tokens(key, *shape, dtype=jnp.float32):
    return jax.random.normal(key, shape, dtype) / jnp.asarray(shape[-1] ** 0.5, dtype)


def kernel(x, y):
    return jnp.matmul(x, jnp.swapaxes(y, -1, -2), precision="highest")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_regular_kernel_is_the_usual_factor(key, x64, dtype):
    x = tokens(key, 3, 6, 20, dtype=dtype)
    K = kernel(x, x)
    L = semidefinite_cholesky(K)
    eps = float(jnp.finfo(dtype).eps)
    assert L.dtype == dtype
    np.testing.assert_allclose(L, jnp.linalg.cholesky(K), atol=200 * eps)
    assert np.all(factor_residual(L, K) < 20 * eps)


def test_low_rank_and_duplicated_tokens(key):
    x = tokens(key, 8, 3)
    x = x.at[5].set(x[1]).at[6].set(0)
    K = kernel(x, x)
    L = semidefinite_cholesky(K)
    assert factor_residual(L, K) < 1e-5
    np.testing.assert_allclose(L[5], L[1], atol=1e-5)
    assert np.all(L[6] == 0) and np.all(L[:, 6] == 0)
    assert int(jnp.sum(jnp.diagonal(L) > 0)) == 3


def test_leading_block_does_not_depend_on_the_rest(key):
    x = tokens(key, 7, 4)
    K = kernel(x, x)
    L = semidefinite_cholesky(jnp.pad(K, (0, 5)))
    np.testing.assert_allclose(L[:7, :7], semidefinite_cholesky(K), atol=1e-6)
    assert np.all(L[7:] == 0) and np.all(L[:, 7:] == 0)


def test_a_kernel_that_is_not_quite_semidefinite_keeps_its_diagonal(key):
    """Sampling noise of 1e-2 on a singular kernel must not blow up."""
    x = tokens(key, 12, 4)
    noise = 1e-2 * jax.random.normal(key, (12, 12))
    K = kernel(x, x) + noise + noise.T
    L = semidefinite_cholesky(K)
    np.testing.assert_allclose(jnp.sum(L**2, -1), jnp.diagonal(K), rtol=1e-4)


def test_joint_features_reproduce_the_three_kernels(key):
    x, y = tokens(key, 4, 3, 20), tokens(jax.random.key(1), 1, 5, 20)
    Fx, Fy = joint_features(kernel(x, x), kernel(y, y), kernel(x, y))
    assert Fx.shape == (4, 3, 10) and Fy.shape == (4, 5, 10)
    np.testing.assert_allclose(kernel(Fx, Fx), kernel(x, x), atol=1e-5)
    np.testing.assert_allclose(kernel(Fy, Fy), jnp.tile(kernel(y, y), (4, 1, 1)), atol=1e-5)
    np.testing.assert_allclose(kernel(Fx, Fy), kernel(x, y), atol=1e-5)


def test_padding_adds_zero_features_only(key):
    x, y = tokens(key, 3, 6), tokens(jax.random.key(1), 4, 6)
    pad = lambda v, n: jnp.pad(v, ((0, n), (0, 0)))  # noqa: E731
    Fx, Fy = joint_features(kernel(x, x), kernel(y, y), kernel(x, y))
    px, py = pad(x, 4), pad(y, 1)
    Px, Py = joint_features(kernel(px, px), kernel(py, py), kernel(px, py))
    np.testing.assert_allclose(Px[:3, :8], Fx, atol=1e-6)
    np.testing.assert_allclose(Py[:4, :8], Fy, atol=1e-6)
    for F, n in ((Px, 3), (Py, 4)):
        assert np.all(F[n:] == 0) and np.all(F[:, 8:] == 0)


def test_equal_inputs_have_equal_features(key):
    x = tokens(key, 5, 9)
    x = x.at[3].set(x[0])
    K = kernel(x, x)
    Fx, Fy = joint_features(K, K, K)
    np.testing.assert_allclose(Fx, Fy, atol=1e-6)
    np.testing.assert_allclose(kernel(Fx, Fy), K, atol=1e-6)


def test_gradient_of_a_regular_kernel(key, x64):
    x = tokens(key, 5, 9, dtype=jnp.float64)
    weights = jax.random.normal(key, (5, 5), jnp.float64)
    ours = jax.grad(lambda x: jnp.sum(weights * semidefinite_cholesky(kernel(x, x))))(x)
    theirs = jax.grad(lambda x: jnp.sum(weights * jnp.linalg.cholesky(kernel(x, x))))(x)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)


def test_gradient_at_equal_inputs_is_finite_and_right(key, x64):
    """Scaling x = y by t scales the features by t: the derivative at t = 1 is F itself."""
    x = tokens(key, 4, 9, dtype=jnp.float64)

    def features(t):
        K = t * t * kernel(x, x)
        return joint_features(K, K, K)

    (Fx, Fy), (dFx, dFy) = jax.jvp(features, (jnp.float64(1),), (jnp.float64(1),))
    np.testing.assert_allclose(dFx, Fx, atol=1e-9)
    np.testing.assert_allclose(dFy, Fy, atol=1e-9)
    loss = lambda x, y: jnp.sum(  # noqa: E731
        joint_features(kernel(x, x), kernel(y, y), kernel(x, y))[1] ** 3
    )
    assert np.all(np.isfinite(jax.grad(loss)(x, x)))


def test_transforms(key):
    x = tokens(key, 2, 3, 4, 9)
    K = kernel(x, x)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(semidefinite_cholesky))(K), semidefinite_cholesky(K), atol=1e-6
    )


def test_landmarks_that_span_are_exact_and_the_residual_is_the_rest(key):
    x, y = tokens(key, 4, 5), tokens(jax.random.key(1), 3, 5)
    U = tokens(jax.random.key(2), 9, 5)  # more landmarks than dimensions: singular
    L = semidefinite_cholesky(kernel(U, U))
    Fx, Fy = landmark_features(kernel(x, U), L), landmark_features(kernel(y, U), L)
    np.testing.assert_allclose(kernel(Fx, Fy), kernel(x, y), atol=1e-4)
    few = U[:2]
    F = landmark_features(kernel(x, few), semidefinite_cholesky(kernel(few, few)))
    left = landmark_residual(kernel(x, x), F)
    np.testing.assert_allclose(kernel(F, F) + kernel(left, left), kernel(x, x), atol=1e-5)
    own = landmark_features(kernel(few, few), semidefinite_cholesky(kernel(few, few)))
    np.testing.assert_allclose(landmark_residual(kernel(few, few), own), 0, atol=1e-6)


def test_interleaving(key):
    x, y = tokens(key, 2, 3), tokens(jax.random.key(1), 2, 3)
    both = jnp.stack([x[0], y[0], x[1], y[1]])
    K = joint_kernel(kernel(x, x), kernel(y, y), kernel(x, y))
    np.testing.assert_allclose(K, kernel(both, both), atol=1e-6)
