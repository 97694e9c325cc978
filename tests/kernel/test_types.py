"""Types of results: NumPy's promotion of the inputs, in a local 64-bit scope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf

NET = lf.Serial(lf.Dense(1.3, 0.2), lf.Erf(), lf.Dense(), lf.MeanPool())
EMBED = lf.Serial(lf.Embed(1.1), lf.Dense(), lf.Erf(), lf.Dense())
SOFTMAX = lf.Serial(lf.Dense(), lf.Attention(), lf.MeanPool())


@pytest.fixture
def x(rng=None):
    return np.random.default_rng(0).normal(size=(3, 4, 5))


def test_float64_without_the_switch_is_numpy(x):
    assert not jax.config.jax_enable_x64
    k = NET.kernel(x)
    for K in (k.nngp, k.ntk):
        assert type(K) is np.ndarray
        assert K.dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_float64_with_the_switch_is_jax(x, x64):
    k = NET.kernel(x)
    for K in (k.nngp, k.ntk):
        assert isinstance(K, jax.Array)
        assert K.dtype == np.float64
    assert jax.config.jax_enable_x64


@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
def test_single_and_half_precision_are_float32(x, dtype, switch):
    with jax.enable_x64(switch):
        k = NET.kernel(jnp.asarray(x, dtype))
        assert isinstance(k.nngp, jax.Array)
        assert k.nngp.dtype == k.ntk.dtype == np.float32
        assert jax.config.jax_enable_x64 is switch


def test_mixed_inputs_promote_like_numpy(x):
    k = NET.kernel(x.astype(np.float32), x)
    assert k.nngp.dtype == np.float64
    assert NET.kernel(x, x.astype(np.float16)).nngp.dtype == np.float64
    assert NET.kernel(x.astype(np.float16), x.astype(np.float32)).nngp.dtype == np.float32


def test_integers_are_float64(x):
    whole = np.round(3 * x).astype(int)
    k = NET.kernel(whole)
    assert k.nngp.dtype == np.float64
    np.testing.assert_array_equal(k.nngp, NET.kernel(whole.astype(float)).nngp)
    assert NET.kernel(whole, dtype=np.float32).nngp.dtype == np.float32


def test_dtype_decides(x):
    assert NET.kernel(x, dtype=np.float32).ntk.dtype == np.float32
    assert NET.kernel(x.astype(np.float32), dtype="float64").ntk.dtype == np.float64


def test_token_ids_are_float64_unless_dtype_decides():
    ids = np.array([[0, 1, 2], [2, 2, 1]])
    k = EMBED.kernel(ids)
    assert type(k.nngp) is np.ndarray
    assert k.nngp.dtype == k.ntk.dtype == np.float64
    single = EMBED.kernel(ids, dtype=np.float32)
    assert single.nngp.dtype == single.ntk.dtype == np.float32
    np.testing.assert_allclose(single.nngp, k.nngp, rtol=1e-6)


def test_standard_errors_have_the_type_of_the_values(x):
    k = SOFTMAX.kernel(x, draws=8)
    assert {v.dtype for v in (k.nngp, k.ntk, k.nngp_sem, k.ntk_sem)} == {np.dtype(np.float64)}
    assert all(type(v) is np.ndarray for v in (k.nngp, k.nngp_sem))
    k = SOFTMAX.kernel(x.astype(np.float32), draws=8)
    assert {v.dtype for v in (k.nngp, k.ntk, k.nngp_sem, k.ntk_sem)} == {np.dtype(np.float32)}


def test_trace_has_the_types_of_kernel(x):
    last = list(NET.trace(x).values())[-1]
    assert type(last.nngp) is np.ndarray
    assert last.nngp.dtype == np.float64
    last = list(NET.trace(x.astype(np.float32)).values())[-1]
    assert isinstance(last.ntk, jax.Array)
    assert last.ntk.dtype == np.float32
    assert not jax.config.jax_enable_x64


def test_the_promotion_mode_of_the_caller_does_not_matter(x):
    with jax.numpy_dtype_promotion("standard"):
        standard = NET.kernel(x).ntk
    np.testing.assert_array_equal(NET.kernel(x).ntk, standard)


def test_a_traced_input_keeps_its_type(x):
    assert jax.jit(lambda x: NET.kernel(x).nngp)(jnp.asarray(x, np.float32)).dtype == np.float32
    with jax.enable_x64(True):
        assert jax.jit(lambda x: NET.kernel(x).nngp)(jnp.asarray(x)).dtype == np.float64


def test_a_traced_network_without_the_switch_is_float32(x):
    value = jax.jit(lambda net: net.kernel(x).nngp)(NET)
    assert value.dtype == np.float32
    np.testing.assert_allclose(value, NET.kernel(x).nngp, rtol=1e-5)


def test_traced_token_ids():
    ids = jnp.array([[0, 1, 2], [2, 2, 1]])
    value = jax.jit(lambda ids: EMBED.kernel(ids).ntk)(ids)
    np.testing.assert_allclose(value, EMBED.kernel(ids).ntk, rtol=1e-5)
