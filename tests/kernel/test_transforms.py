"""Kernels under JAX transformations: jit, vmap, grad, and no compilation twice."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.zoo import CASES, inputs

import limitformer as lf

QUICK = ("mixed sums", "transformer post")  # the others take minutes of compilation


def names(wanted, but=None):
    quick = {*QUICK} - {but}
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in wanted]


FAST = [name for name, case in CASES.items() if case.fast]
NAMES = names(FAST)
SMOOTH = names(name for name in FAST if CASES[name].smooth and CASES[name].input != "ids")


def data_of(name: str, rows=3):
    """A network, some rows, their masks and the options of its kernel."""
    case = CASES[name]
    x, mask = inputs(case).rows(slice(0, rows))
    return case.net, clean(x, mask), mask, case.options


def clean(x, mask):
    """Zeros in the padding, as a derivative cannot pass through NaN."""
    if isinstance(x, tuple):
        return tuple(clean(a, m) for a, m in zip(x, mask, strict=True))
    if mask is None or x.dtype.kind == "i":
        return x
    return np.where(mask[..., None], x, 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_jit(name, x64):
    net, x, mask, options = data_of(name)
    both = jax.jit(lambda x, mask: net.kernel(x, x_mask=mask, **options))
    eager = net.kernel(x, x_mask=mask, **options)
    traced = both(*jax.tree.map(jnp.asarray, (x, mask)))
    for kind in ("nngp", "ntk"):
        desired = getattr(eager, kind)
        scale = np.abs(desired).max()
        np.testing.assert_allclose(getattr(traced, kind), desired, atol=1e-12 * scale, rtol=0)


@pytest.mark.parametrize("name", names(["mixed two", "mixed softmax"]))
def test_vmap(name, x64):
    net, x, mask, options = data_of(name, 4)
    if mask is not None:
        mask = jax.tree.map(lambda m: np.asarray(m)[[0, 2, 1, 3]], mask)
        x = jax.tree.map(lambda a: np.asarray(a)[[0, 2, 1, 3]], x)
    pairs = jax.tree.map(lambda a: jnp.asarray(a).reshape(2, 2, *a.shape[1:]), (x, mask))
    value = jax.vmap(lambda x, m: net.kernel(x, x_mask=m, **options).ntk)(*pairs)
    for i in range(2):
        one, its_mask = jax.tree.map(lambda a, i=i: np.asarray(a[i]), pairs)
        desired = net.kernel(one, x_mask=its_mask, **options).ntk
        scale = np.abs(desired).max()
        np.testing.assert_allclose(value[i], desired, atol=1e-12 * scale, rtol=0)


def weighted(K, seed=0):
    """A scalar that no symmetry of the kernel cancels."""
    weights = np.random.default_rng(seed).normal(size=K.shape)
    return jnp.sum(jnp.asarray(weights, K.dtype) * K)


def central_difference(function, at, direction, step):
    def moved(by):
        return function(jax.tree.map(lambda a, d: a + by * d, at, direction))

    return (moved(step) - moved(-step)) / (2 * step)


def difference_of(name: str) -> tuple[float, float]:
    """Step and digits of a difference.

    More tokens than features make a pair's joint kernel singular, and whether a pivot that is
    rounding is dropped moves a softmax average by 1e-10: steps must be large beside that.
    """
    return (1e-4, 1e-4) if CASES[name].random else (1e-5, 1e-6)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("name", SMOOTH)
def test_grad_of_inputs(name, kind, x64):
    """Derivatives with the diagonal (x = y) among the entries, against differences."""
    net, x, mask, options = data_of(name)
    x = jax.tree.map(jnp.asarray, x)

    @jax.jit
    def value(x):
        return weighted(getattr(net.kernel(x, x_mask=mask, kinds=kind, **options), kind))

    gradient = jax.jit(jax.grad(value))(x)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))
    rng = np.random.default_rng(1)
    direction = clean(jax.tree.map(lambda a: rng.normal(size=a.shape), x), mask)
    slope = sum(
        jnp.vdot(g, d)
        for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    step, digits = difference_of(name)
    desired = central_difference(value, x, direction, step)
    np.testing.assert_allclose(slope, desired, rtol=digits)


@pytest.mark.parametrize("name", names(FAST, but="mixed sums"))
def test_grad_of_hyper_parameters(name, x64):
    net, x, mask, options = data_of(name)

    @jax.jit
    def value(net):
        k = net.kernel(x, x_mask=mask, **options)
        return weighted(k.nngp) + weighted(k.ntk, 1)

    gradient = jax.jit(jax.grad(value))(net)
    leaves = jax.tree.leaves(gradient)
    assert leaves
    assert all(np.isfinite(g) for g in leaves)
    rng = np.random.default_rng(2)
    # relative steps: eps of a norm is 1e-12, and must stay positive
    direction = jax.tree.map(lambda leaf: leaf * rng.normal(), net)
    slope = sum(g * d for g, d in zip(leaves, jax.tree.leaves(direction), strict=True))
    step, digits = difference_of(name)
    desired = central_difference(value, net, direction, step)
    np.testing.assert_allclose(slope, desired, rtol=digits)


@pytest.mark.parametrize(
    "activation",
    [
        lf.Relu(),
        pytest.param(lf.Abs(), marks=pytest.mark.slow),
        pytest.param(lf.LeakyRelu(0.1), marks=pytest.mark.slow),
        lf.Erf(),
        lf.Gelu(),
    ],
)
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])
def test_grad_at_equal_inputs(activation, kind, dtype, x64):
    """Finite where x = y, zero tokens included, for K(x, y) of two arguments."""
    net = lf.Serial(lf.Dense(1.4), activation, lf.Dense(1.4), activation, lf.Dense(), lf.MeanPool())
    x = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(dtype)
    x[0, 1] = 0.0
    x = jnp.asarray(x)
    grad = jax.grad(lambda x, y: jnp.sum(getattr(net.kernel(x, y), kind)), argnums=(0, 1))
    for g in grad(x, x):
        assert g.dtype == dtype
        assert np.isfinite(g).all()


def test_nngp_gradient_on_the_diagonal_is_half_of_the_total(x64):
    """d/dx K(x, x) = 2 d1 K(x, y) at y = x, where a careless arc-cosine gives NaN."""
    net = lf.Serial(lf.Dense(1.4), lf.Relu(), lf.Dense(1.4), lf.Relu(), lf.Dense())
    x = jnp.asarray(np.random.default_rng(4).normal(size=(1, 6)))
    total = jax.grad(lambda x: net.kernel(x).nngp[0, 0])(x)
    first = jax.grad(lambda x, y: net.kernel(x, y).nngp[0, 0])(x, x)
    np.testing.assert_allclose(2 * first, total, rtol=1e-10)


@pytest.mark.slow
def test_hessian_is_finite(x64):
    net = lf.Serial(lf.Dense(1.4), lf.Erf(), lf.LayerNorm(), lf.Dense())
    x = jnp.asarray(np.random.default_rng(5).normal(size=(2, 3)))
    assert np.isfinite(jax.hessian(lambda x: jnp.sum(net.kernel(x).ntk))(x)).all()


@pytest.mark.slow
def test_jacobian_forward_mode(x64):
    net = CASES["transformer post"].net
    x = jnp.asarray(np.random.default_rng(6).normal(size=(2, 3, 4)))
    forward = jax.jacfwd(lambda x: net.kernel(x).nngp)(x)
    backward = jax.jacrev(lambda x: net.kernel(x).nngp)(x)
    np.testing.assert_allclose(forward, backward, rtol=1e-9, atol=1e-12)


def compilations(caplog):
    return [r.getMessage() for r in caplog.records if "Compiling" in r.getMessage()]


@pytest.mark.parametrize("name", names(["transformer post", "mixed softmax", "mixed image"]))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_second_call_does_not_compile(name, dtype, caplog):
    net, x, mask, options = data_of(name, 3)
    other = CASES[name].net
    other = jax.tree.map(lambda leaf: 1.1 * leaf, other)  # hyper-parameters are not shapes
    x = np.concatenate([x, x], axis=-1).astype(dtype)  # a shape that no other test has compiled
    with jax.log_compiles(True), caplog.at_level(logging.WARNING):
        net.kernel(x, x_mask=mask, **options)
        assert compilations(caplog)
        caplog.clear()
        net.kernel(x[::-1], x_mask=None if mask is None else mask[::-1], **options)
        other.kernel(x, x_mask=mask, **options)
        assert not compilations(caplog)


def test_a_second_trace_does_not_compile(caplog):
    net, x, mask, _ = data_of("mixed sums", 2)
    with jax.log_compiles(True), caplog.at_level(logging.WARNING):
        net.trace(x, x_mask=mask)
        caplog.clear()
        net.trace(1.1 * x, x_mask=mask)
        assert not compilations(caplog)


@pytest.mark.parametrize("switch", [False, True])
def test_the_64_bit_switch_is_untouched(switch):
    net = lf.Serial(lf.Dense(), lf.Relu(), lf.Attention(scale="linear"), lf.MeanPool())
    x = np.random.default_rng(6).normal(size=(2, 3, 4))
    mask = np.array([[True, True, True], [True, True, False]])
    with jax.enable_x64(switch):
        for dtype in (np.float32, np.float64):
            net.kernel(x.astype(dtype), x_mask=mask)
            assert jax.config.jax_enable_x64 is switch
        with pytest.raises(ValueError):
            net.kernel(x, x_mask=np.zeros_like(mask))
        assert jax.config.jax_enable_x64 is switch
