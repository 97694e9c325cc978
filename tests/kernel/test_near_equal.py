"""Nearly equal inputs: the He-initialised ReLU network, whose diagonal is known exactly.

With w = sqrt(2) the first Dense gives K = 2 |x|^2 / d = k0 and T = k0. On the diagonal ReLU halves
K and T, and the next Dense doubles them and adds its own K: K stays k0 and T grows by k0 a layer,
so a network of L Dense layers has K = k0 and T = L k0. ReLU is homogeneous, so for y = s x, s > 0,
both are multiplied by s.
"""

import numpy as np
import pytest

import limitformer as lf

HE = lf.Dense(2**0.5)


def he(depth: int) -> lf.Layer:
    """A network of `depth` Dense layers with ReLU between."""
    return lf.Serial(HE, lf.Repeat(lf.Serial(lf.Relu(), HE), depth - 1))


def largest_error(value, exact) -> float:
    return float(np.abs(np.asarray(value, float) / np.asarray(exact, float) - 1).max())


@pytest.mark.parametrize("depth", [8, 100])
@pytest.mark.parametrize(("dtype", "digits"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_he_relu_diagonal(depth, dtype, digits):
    x = np.random.default_rng(0).normal(size=(30, 7)).astype(dtype)
    k0 = 2 * np.square(x.astype(float)).mean(-1)
    k = he(depth).kernel(x)
    # a sum of `depth` terms rounds `depth` times
    digits = digits * max(1, depth / 8)
    # float32 rounds w = sqrt(2), which K feels in every layer and T in half of them
    assert largest_error(np.diag(k.nngp), k0) < 2 * digits
    assert largest_error(np.diag(k.ntk), depth * k0) < digits


@pytest.mark.parametrize("depth", [8, 100])
@pytest.mark.parametrize(("dtype", "digits"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_parallel_inputs(depth, dtype, digits):
    x = np.random.default_rng(1).normal(size=(4, 7)).astype(dtype)
    scales = np.array([1.0, 0.5, 2.0, 8.0], dtype)
    y = scales[:, None] * x[0]
    k0 = 2 * np.square(x[0].astype(float)).mean() * scales.astype(float)
    k = he(depth).kernel(x[:1], y)
    digits = digits * max(1, depth / 8)
    assert largest_error(k.nngp[0], k0) < digits
    assert largest_error(k.ntk[0], depth * k0) < digits


def test_a_copy_is_the_same_input():
    x = np.random.default_rng(2).normal(size=(20, 7))
    net = he(8)
    np.testing.assert_allclose(net.kernel(x, x.copy()).ntk, net.kernel(x).ntk, rtol=1e-12)


@pytest.mark.parametrize("net", [he(8), he(100)], ids=["8", "100"])
def test_nearby_inputs(net):
    """T(x, x + h) leaves its diagonal like |h| (the kink), without noise.

    The angle is in K to sqrt(eps) = 1.5e-8 only: closer inputs than that are equal ones.
    """
    rng = np.random.default_rng(3)
    x, direction = rng.normal(size=(2, 7))
    direction -= x * (x @ direction) / (x @ x)
    steps = 10.0 ** np.arange(-10, -3)
    y = x + steps[:, None] * direction
    T = net.kernel(x[None], y).ntk[0]
    own = net.kernel(x[None]).ntk[0, 0]
    slopes = (own - T) / steps
    apart = steps >= 1e-6
    assert slopes[apart].max() / slopes[apart].min() < 1.01
    assert (np.abs(own - T) <= 1.1 * slopes[-1] * np.maximum(steps, 3e-8)).all()


def test_deep_layer_norm_and_attention_stay_positive_semidefinite():
    rng = np.random.default_rng(4)
    x = np.repeat(rng.normal(size=(2, 3, 5)), 3, axis=0)
    x = x + 1e-7 * rng.normal(size=x.shape)
    block = lf.Block(lf.Attention("linear"), lf.Relu())
    k = lf.Transformer(8, block).kernel(x)
    for K in (k.nngp, k.ntk):
        values = np.linalg.eigvalsh(K)
        assert values[0] > -1e-10 * values[-1]
