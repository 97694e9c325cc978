"""Empirical kernels against closed forms, dense Jacobians and themselves."""

import re

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from limitformer import empirical


def linear(w, x):
    return x @ w


def two_layers(params, x):
    return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"][0]


def tokens(params, x):
    """Attends, so that every token depends on every other; (n, tokens, 3) outputs."""
    h = x @ params["in"][0]
    weights = jax.nn.softmax(jnp.einsum("nac,nbc->nab", h * params["in"][1], h))
    return jnp.tanh(weights @ h) @ params["out"]


def make_two_layers(key, width=7, outputs=3, dtype=jnp.float64):
    w, b, v = jax.random.split(key, 3)
    return {
        "w": jax.random.normal(w, (4, width), dtype),
        "b": jax.random.normal(b, (width,), dtype),
        "v": (jax.random.normal(v, (width, outputs), dtype), 3, "a label"),
    }


def make_tokens(key):
    a, b, c = jax.random.split(key, 3)
    return {
        "in": [jax.random.normal(a, (4, 5)), jax.random.normal(b, (5,))],
        "out": jax.random.normal(c, (5, 3)),
    }


def dense_ntk(f, params, x, y):
    """(n, m, s, t, O, O) from the whole Jacobian as one matrix, for networks of arrays only."""
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    Jx = jax.jacfwd(lambda w: f(unravel(w), x))(flat)
    Jy = jax.jacfwd(lambda w: f(unravel(w), y))(flat)
    return jnp.einsum("iaow,jbqw->ijaboq", Jx, Jy)


@pytest.fixture
def net(key, x64):
    kx, ky, kp = jax.random.split(key, 3)
    return make_tokens(kp), jax.random.normal(kx, (7, 3, 4)), jax.random.normal(ky, (5, 2, 4))


def test_linear_model_closed_form(key, x64):
    x = jax.random.normal(key, (5, 4))
    y = jax.random.normal(key, (3, 4))
    w = jax.random.normal(key, (4, 6))
    gram = x @ y.T
    np.testing.assert_allclose(empirical.nngp(linear, w, x, y), (x @ w) @ (y @ w).T / 6, rtol=1e-13)
    np.testing.assert_allclose(empirical.ntk(linear, w, x, y), gram, rtol=1e-13)
    full = empirical.ntk(linear, w, x, y, outputs="full")
    np.testing.assert_allclose(full, gram[:, :, None, None] * jnp.eye(6), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("method", ["jacobian", "vp"])
def test_two_layers_closed_form(key, x64, method):
    params = make_two_layers(key)
    x = jax.random.normal(key, (5, 4))
    v, h = params["v"][0], jnp.tanh(x @ params["w"] + params["b"])
    d = 1 - h**2
    # v trains its own column; w and b reach output o through d * v_o.
    through = jnp.einsum("iw,wo,jw,wq->ijoq", d, v, d, v) * (x @ x.T + 1)[:, :, None, None]
    full = (h @ h.T)[:, :, None, None] * jnp.eye(3) + through
    got = empirical.ntk(two_layers, params, x, outputs="full", method=method)
    np.testing.assert_allclose(got, full, rtol=1e-12)
    got = empirical.ntk(two_layers, params, x, outputs="diagonal", method=method)
    np.testing.assert_allclose(got, jnp.einsum("ijoo->ijo", full), rtol=1e-12)
    got = empirical.ntk(two_layers, params, x, method=method)
    np.testing.assert_allclose(got, jnp.einsum("ijoo->ij", full) / 3, rtol=1e-12)
    got = empirical.ntk(two_layers, params, x)  # method="auto"
    np.testing.assert_allclose(got, jnp.einsum("ijoo->ij", full) / 3, rtol=1e-12)


@pytest.mark.parametrize("method", ["jacobian", "vp"])
@pytest.mark.parametrize("batch", [None, 3])
def test_tokens_against_dense_jacobian_for_any_batch(net, method, batch):
    params, x, y = net
    want = dense_ntk(tokens, params, x, y)
    options = {"method": method, "batch": batch}
    got = empirical.ntk(tokens, params, x, y, outputs="full", **options)
    assert got.shape == (7, 5, 3, 2, 3, 3)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    got = empirical.ntk(tokens, params, x, y, **options)
    np.testing.assert_allclose(got, jnp.einsum("ijaboo->ijab", want) / 3, rtol=1e-12, atol=1e-12)
    got = empirical.ntk(tokens, params, x, **options)
    same = jnp.einsum("ijaboo->ijab", dense_ntk(tokens, params, x, x)) / 3
    np.testing.assert_allclose(got, same, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["jacobian", "vp"])
@pytest.mark.parametrize("outputs", ["trace", "full"])
def test_without_y_it_is_exactly_symmetric_and_equal_to_y_is_x(net, method, outputs):
    params, x, _ = net
    options = {"outputs": outputs, "method": method, "batch": 3}
    T = np.asarray(empirical.ntk(tokens, params, x, **options))
    swapped = T.swapaxes(0, 1).swapaxes(2, 3)
    np.testing.assert_array_equal(T, swapped.swapaxes(4, 5) if outputs == "full" else swapped)
    twice = empirical.ntk(tokens, params, x, x, **options)
    np.testing.assert_allclose(T, twice, rtol=1e-12, atol=1e-12)


def test_nngp_of_tokens_for_any_batch(net):
    params, x, y = net
    fx, fy = tokens(params, x), tokens(params, y)
    want = jnp.einsum("iac,jbc->ijab", fx, fy) / 3
    for batch in (None, 2, 50):
        got = empirical.nngp(tokens, params, x, y, batch=batch)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        empirical.nngp(tokens, params, x), jnp.einsum("iac,jbc->ijab", fx, fx) / 3, atol=1e-13
    )


@pytest.mark.parametrize("batch", [None, 2])
def test_product_equals_dense(net, batch):
    params, x, y = net
    v = jax.random.normal(jax.random.key(1), (5, 2, 3))
    full = dense_ntk(tokens, params, x, y)
    product = empirical.ntk_vp(tokens, params, x, y, batch=batch)
    want = jnp.einsum("ijaboq,jbq->iao", full, v)
    np.testing.assert_allclose(product(v), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(eqx.filter_jit(product)(v), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda v: product(v))(v), want, rtol=1e-12, atol=1e-12)
    both = jax.vmap(product)(jnp.stack([v, 2 * v]))
    np.testing.assert_allclose(both[1], 2 * want, rtol=1e-12, atol=1e-12)
    u = jax.random.normal(jax.random.key(2), (7, 3, 3))
    same = jnp.einsum("ijaboq,jbq->iao", dense_ntk(tokens, params, x, x), u)
    product = empirical.ntk_vp(tokens, params, x, batch=batch)
    np.testing.assert_allclose(product(u), same, rtol=1e-12, atol=1e-12)


def test_linearize_touches_f_and_its_derivative(net):
    params, x, _ = net
    f_lin = empirical.linearize(tokens, params)
    np.testing.assert_array_equal(f_lin(params, x), tokens(params, x))
    there = jax.tree.map(lambda w: w + 0.3, params)
    for at in (params, there):
        T = empirical.ntk(f_lin, at, x)
        np.testing.assert_allclose(T, empirical.ntk(tokens, params, x), rtol=1e-12)
    step = jax.tree.map(lambda a, b: a - b, there, params)
    slope = jax.jvp(lambda w: tokens(w, x), (params,), (step,))[1]
    np.testing.assert_allclose(f_lin(there, x), tokens(params, x) + slope, rtol=1e-13)


def test_taylor_is_exact_for_polynomials_and_converges_at_its_order(net):
    params, x, _ = net

    def cubic(params, x):
        return x @ params["in"][0] ** 3 + params["in"][1] ** 2

    there = jax.tree.map(lambda w: w + 0.3, params)
    np.testing.assert_allclose(
        empirical.taylor(cubic, params, 3)(there, x), cubic(there, x), rtol=1e-12
    )
    np.testing.assert_array_equal(empirical.taylor(cubic, params, 0)(there, x), cubic(params, x))
    for degree in (1, 2, 3):
        errors = []
        for size in (2e-2, 1e-2):
            near = jax.tree.map(lambda w, s=size: w + s, params)
            expanded = empirical.taylor(tokens, params, degree)
            errors.append(jnp.abs(expanded(near, x) - tokens(near, x)).max())
        assert abs(np.log2(errors[0] / errors[1]) - (degree + 1)) < 0.2


def test_fixed_leaves_stay_fixed_and_inputs_may_be_trees(key, x64):
    class Scaled(eqx.Module):
        times: jax.Array
        w: jax.Array

    def f(params, x):
        ids, mask = x
        return params.times * jnp.where(mask[:, :, None], params.w[ids], 0.0)

    params = Scaled(jnp.array(2), jax.random.normal(key, (9, 2)))
    ids = jnp.array([[1, 4, 4], [4, 2, 1]])
    mask = jnp.array([[True, True, False], [True, True, True]])
    T = empirical.ntk(f, params, (ids, mask), batch=1)
    equal = (
        (ids[:, None, :, None] == ids[None, :, None, :])
        & mask[:, None, :, None]
        & mask[None, :, None, :]
    )
    np.testing.assert_allclose(T, 4.0 * np.asarray(equal))


def test_complex_parameters_count_as_two(key, x64):
    w = jax.random.normal(key, (4, 3), jnp.complex128)
    x = jax.random.normal(key, (5, 4))

    def f(w, x):
        z = x.astype(w.dtype) @ w
        return z.real**2 + z.imag

    def f_real(parts, x):
        return (x @ parts[0]) ** 2 + x @ parts[1]

    for method in ("jacobian", "vp"):
        np.testing.assert_allclose(
            empirical.ntk(f, w, x, method=method),
            empirical.ntk(f_real, (w.real, w.imag), x, method=method),
            rtol=1e-12,
        )
    v = jnp.ones((5, 3))
    np.testing.assert_allclose(
        empirical.ntk_vp(f, w, x)(v), empirical.ntk_vp(f_real, (w.real, w.imag), x)(v), rtol=1e-12
    )


def test_precision_follows_the_parameters(key):
    params = make_two_layers(key, dtype=jnp.float32)
    x = np.asarray(jax.random.normal(key, (5, 4)))
    narrow = empirical.ntk(two_layers, params, x)
    assert narrow.dtype == np.float32 and empirical.nngp(two_layers, params, x).dtype == np.float32
    # 64-bit NumPy parameters with JAX's switch off: computed in 64 bits, given back as NumPy.
    wide = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64) if eqx.is_inexact_array(leaf) else leaf, params
    )
    x64 = x.astype(np.float64)
    T = empirical.ntk(two_layers, wide, x64)
    K = empirical.nngp(two_layers, wide, x64)
    u = empirical.ntk_vp(two_layers, wide, x64)(np.ones((5, 3)))
    z = empirical.linearize(two_layers, wide)(wide, x64)
    e = empirical.estimate(lambda key: (two_layers, wide), [0, 1], x64)
    for value in (T, K, u, z, e.nngp, e.ntk_sem):
        assert isinstance(value, np.ndarray) and value.dtype == np.float64
    assert not jax.config.jax_enable_x64
    with jax.enable_x64(True):
        np.testing.assert_allclose(T, empirical.ntk(two_layers, wide, x64), rtol=1e-14)
    np.testing.assert_allclose(T, narrow, rtol=1e-4)
    # Half precision sums in float32.
    half = jax.tree.map(lambda w: w.astype(jnp.bfloat16), (params["w"], params["v"][0]))
    f = lambda p, x: jnp.tanh(x @ p[0]) @ p[1]  # noqa: E731
    for method in ("jacobian", "vp"):
        T = empirical.ntk(f, half, jnp.asarray(x, jnp.bfloat16), method=method)
        assert T.dtype == np.float32


def test_jit_vmap_and_grad(net):
    params, x, y = net
    want = empirical.ntk(tokens, params, x, y)
    for method in ("jacobian", "vp"):
        T = jax.jit(lambda p, x, y, m=method: empirical.ntk(tokens, p, x, y, method=m, batch=3))
        np.testing.assert_allclose(T(params, x, y), want, rtol=1e-12, atol=1e-12)
    stack = jax.tree.map(lambda w: jnp.stack([w, 2 * w]), params)
    many = jax.vmap(lambda p: empirical.ntk(tokens, p, x, y))(stack)
    np.testing.assert_allclose(many[0], want, rtol=1e-12, atol=1e-12)
    slope = jax.grad(lambda x: empirical.ntk(tokens, params, x).sum())(x)
    bump = 1e-6 * jnp.ones_like(x)
    change = (
        empirical.ntk(tokens, params, x + bump).sum()
        - empirical.ntk(tokens, params, x - bump).sum()
    )
    np.testing.assert_allclose(slope.sum(), change / 2e-6, rtol=1e-6)


def test_one_compilation_serves_all_tiles_and_networks(key):
    traces = []

    def f(w, x):
        traces.append(x.shape)
        return jnp.tanh(x @ w)

    x = jax.random.normal(key, (7, 4))
    keys = jax.random.split(key, 4)
    make = lambda key: (f, jax.random.normal(key, (4, 6)))  # noqa: E731
    empirical.estimate(make, keys[:2], x, kinds=("ntk",), method="jacobian", batch=2)
    before = len(traces)
    empirical.estimate(make, keys[2:], x, kinds=("ntk",), method="jacobian", batch=2)
    assert set(traces) == {(7, 4), (1, 4)}  # the shape check, and one input under vmap
    assert len([t for t in traces[before:] if t == (1, 4)]) == 0


def test_estimate_is_mean_and_standard_error(key, x64):
    x, y = jax.random.normal(key, (3, 4)), jax.random.normal(jax.random.key(5), (2, 4))
    keys = jax.random.split(key, 9)
    make = lambda key: (two_layers, make_two_layers(key))  # noqa: E731
    e = empirical.estimate(make, keys, x, y)
    for kind, function in (("nngp", empirical.nngp), ("ntk", empirical.ntk)):
        all_ = np.stack([function(two_layers, make_two_layers(k), x, y) for k in keys])
        np.testing.assert_allclose(getattr(e, kind), all_.mean(0), rtol=1e-12)
        sem = all_.std(0, ddof=1) / 3
        np.testing.assert_allclose(getattr(e, kind + "_sem"), sem, rtol=1e-10)
    assert e.networks == 9
    only = empirical.estimate(make, keys, x, y, kinds=("nngp",))
    assert only.ntk is None and only.ntk_sem is None
    np.testing.assert_array_equal(only.nngp, e.nngp)


def test_estimate_of_a_linear_network_hits_its_limit(key):
    """E f f = x.y / d exactly, at every width: 5 standard errors."""
    x = jax.random.normal(key, (3, 4))
    make = lambda key: (lambda_net, jax.random.normal(key, (4, 20)))  # noqa: E731
    lambda_net = lambda w, x: x @ w / 2  # noqa: E731
    e = empirical.estimate(make, jax.random.split(key, 50), x)
    assert (np.abs(e.nngp - x @ x.T / 4) < 5 * e.nngp_sem).all()
    np.testing.assert_allclose(e.ntk, x @ x.T / 4, rtol=1e-5)


def says(text):
    return re.escape(text)


def test_errors_say_what_to_do(key):
    x, w = jnp.ones((3, 4)), jnp.ones((4, 2))
    f = linear
    with pytest.raises(ValueError, match="no floating-point array to differentiate by"):
        empirical.ntk(f, {"a": jnp.ones((4, 2), int)}, x)
    with pytest.raises(ValueError, match="no floating-point array"):
        empirical.linearize(f, {"a": 1.0})
    with pytest.raises(ValueError, match=says("(n, outputs) or (n, tokens, outputs), got (3,)")):
        empirical.ntk(lambda w, x: (x @ w)[:, 0], w, x)
    with pytest.raises(ValueError, match=says("got (3, 4, 1, 1)")):
        empirical.nngp(lambda w, x: x[:, :, None, None], w, x)
    with pytest.raises(ValueError, match="got tuple"):
        empirical.nngp(lambda w, x: (x, x), w, x)
    with pytest.raises(ValueError, match=says("x holds no inputs (shapes [(0, 4)])")):
        empirical.ntk(f, w, x[:0])
    with pytest.raises(ValueError, match="y holds no inputs"):
        empirical.nngp(f, w, x, x[:0])
    with pytest.raises(ValueError, match=says("A single input is x[None]")):
        empirical.ntk(f, w, jnp.ones(()))
    with pytest.raises(ValueError, match="same leading axis"):
        empirical.ntk(lambda w, x: x[0] @ w, w, (x, x[:2]))
    with pytest.raises(ValueError, match="keep the leading axis"):
        empirical.ntk(lambda w, x: x[:2] @ w, w, x)
    with pytest.raises(ValueError, match="is empty"):
        empirical.ntk(lambda w, x: (x @ w)[:, :0], w, x)
    with pytest.raises(TypeError, match="real floating-point"):
        empirical.nngp(lambda w, x: (x @ w).astype(jnp.complex64), w, x)
    with pytest.raises(ValueError, match="same outputs for x and y"):
        empirical.ntk(lambda w, x: x, w, x, x[:, :2])
    with pytest.raises(ValueError, match="outputs must be one of"):
        empirical.ntk(f, w, x, outputs="mean")
    with pytest.raises(ValueError, match="method must be one of"):
        empirical.ntk(f, w, x, method="fast")
    for batch in (0, -1, True, 2.0):
        with pytest.raises((ValueError, TypeError), match="batch"):
            empirical.ntk(f, w, x, batch=batch)
    with pytest.raises(ValueError, match=says("v must have the shape of f(params, x), (3, 2)")):
        empirical.ntk_vp(f, w, x)(jnp.ones(3))
    with pytest.raises(ValueError, match="degree must be an integer of at least 0"):
        empirical.taylor(f, w, -1)
    with pytest.raises(ValueError, match="structure, shapes and dtypes"):
        empirical.linearize(f, w)(w[:2], x)
    make = lambda key: (f, w)  # noqa: E731
    with pytest.raises(ValueError, match="at least two keys for a standard error, got 1"):
        empirical.estimate(make, [0], x)
    with pytest.raises(ValueError, match="kinds must be a non-empty tuple"):
        empirical.estimate(make, [0, 1], x, kinds=("gp",))
