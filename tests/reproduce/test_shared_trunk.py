import jax
import numpy as np
import pytest

import limitformer as lf
from limitformer.reproduce.hron_cifar import network
from limitformer.reproduce.readouts import Readout, Readouts, low_rank
from limitformer.reproduce.shared_trunk import rank_errors, shared_kernels

W, B = 1.7562**0.5, 0.1841**0.5
PLACE = lf.Position(lf.SquaredExponential(5.0, 1.5), content=0.4, weight=0.6)


def readouts(rank=None):
    smooth = lf.SquaredExponential(5.0, 0.5)
    return (
        Readout("flatten"),
        Readout("mean pool", pool="mean"),
        Readout("vanilla", lf.Attention(scale="linear", qk_std=2.0), rank=rank),
        Readout(
            "structured",
            lf.Attention(scale="linear", qk_std=0.1, position=PLACE),
            lf.LayerNorm(),
            rank=rank,
        ),
        Readout("residual", lf.ResidualAttention(smooth, alpha=0.65), lf.LayerNorm()),
        Readout("residual, rms", lf.ResidualAttention(smooth, alpha=0.65), lf.RMSNorm()),
        Readout(
            "residual, softmax",
            lf.ResidualAttention(smooth, alpha=0.65, weights="softmax"),
            lf.LayerNorm(),
        ),
    )


def block(n):
    return lf.Repeat(lf.Serial(lf.Conv((3, 3), W, B), lf.Relu()), n)


@pytest.fixture
def images():
    return np.random.default_rng(0).normal(size=(10, 4, 4, 3))


def agrees(found, single, x, y=None):
    want = single.kernel(x, y)
    return max(
        np.max(np.abs(found["nngp"] / want.nngp - 1)), np.max(np.abs(found["ntk"] / want.ntk - 1))
    )


@pytest.mark.slow
def test_all_readouts_share_a_trunk(images):
    ends = readouts()
    x, y = images[:6], images[6:]
    found = shared_kernels(lf.Serial(block(2), Readouts(ends)), y, x, readouts=len(ends), block=3)
    for j, end in enumerate(ends):
        column = {kind: K[..., j] for kind, K in found.items()}
        assert agrees(column, lf.Serial(block(2), end.layers()), y, x) < 1e-12, end.name


def test_depths_share_a_trunk(images):
    ends = readouts()[3:5]
    net = network({1: ends, 3: ends})
    found = shared_kernels(net, images, readouts=4)
    for i, depth in enumerate((1, 3)):
        single = lf.Serial(block(depth), ends[0].layers())
        column = {kind: K[..., 2 * i] for kind, K in found.items()}
        assert agrees(column, single, images) < 1e-12, depth
        for K in column.values():
            np.testing.assert_array_equal(K, K.T)


@pytest.mark.slow
def test_a_low_rank_is_as_good_as_its_reported_error():
    images = np.random.default_rng(0).normal(size=(6, 6, 6, 3))
    ends = (readouts(rank=9)[0], readouts(rank=9)[3], readouts()[6])
    net = lf.Serial(block(2), Readouts(ends))
    errors = rank_errors(net, images)
    assert errors[0] == 0
    assert 1e-12 < errors[1] < 1e-4
    found = shared_kernels(net, images, readouts=len(ends))
    for j, end in enumerate(ends):
        column = {kind: K[..., j] for kind, K in found.items()}
        error = agrees(column, lf.Serial(block(2), end.layers()), images)
        assert error < 5 * errors[j] + 1e-8, end.name
    assert (
        agrees(
            {k: v[..., 1] for k, v in found.items()}, lf.Serial(block(2), ends[1].layers()), images
        )
        > 1e-13
    )  # the rank was used


def test_engine_heads_with_masks_share_a_trunk():
    rng = np.random.default_rng(1)
    x, mask = rng.normal(size=(5, 6, 3)), np.arange(6) < np.array([6, 3, 4, 6, 2])[:, None]
    heads = (
        lf.Serial(lf.MeanPool(), lf.Dense()),
        lf.Serial(lf.Attention(scale="linear"), lf.LayerNorm(), lf.MeanPool(), lf.Dense()),
    )
    trunk = lf.Conv((3,), W, B), lf.Relu()
    found = shared_kernels(lf.Serial(*trunk, lf.Parallel(*heads)), x, x_mask=mask, readouts=2)
    for j, head in enumerate(heads):
        want = lf.Serial(*trunk, head).kernel(x, x_mask=mask)
        np.testing.assert_allclose(found["nngp"][..., j], want.nngp, rtol=1e-12)
        np.testing.assert_allclose(found["ntk"][..., j], want.ntk, rtol=1e-12)


def test_float32_token_kernels_are_summed_in_float64(images):
    ends = readouts()[:4]
    net = lf.Serial(block(2), Readouts(ends))
    single, double = (
        shared_kernels(net, images, readouts=len(ends), dtype=t)["ntk"]
        for t in (np.float32, np.float64)
    )
    assert single.dtype == np.float64
    assert np.max(np.abs(single / double - 1)) < 1e-6


def test_a_branch_without_a_readout_is_an_error(images):
    net = lf.Serial(lf.Conv((3, 3)), lf.Parallel(lf.MeanPool(), lf.Relu()))
    with pytest.raises(ValueError, match=r"token kernels of shape .* end every branch"):
        shared_kernels(net, images, readouts=2)


def test_readouts_say_what_they_cannot_do():
    with pytest.raises(ValueError, match='use scale="linear"'):
        Readout("a", lf.Attention())
    with pytest.raises(ValueError, match=r"lf\.MeanPool"):
        Readout("a", lf.Attention(scale="linear"), pool="mean")
    with pytest.raises(ValueError, match="put it into the trunk"):
        Readout("a", norm=lf.LayerNorm())


def test_low_rank_factors_of_smooth_weights():
    place = np.linspace(0, 1, 40)
    A = np.exp(-((place[:, None] - place) ** 2))[None]
    with jax.enable_x64(True):
        L, V = low_rank(jax.numpy.asarray(A), 10)
        np.testing.assert_allclose(L @ jax.numpy.swapaxes(V, 1, 2), A, atol=1e-7)
        exact, none = low_rank(jax.numpy.asarray(A), 40)
    assert none is None
    assert exact.shape == A.shape


def test_low_rank_readouts_do_not_depend_on_the_order_of_sums():
    """The rounding of a factor is in every kernel of its input: 1e-7 spoils a small ridge."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 512, 3))
    A = np.exp(0.1 * np.einsum("nac,nbc->nab", z, z))
    A = (A / A.sum(-1, keepdims=True)).astype(np.float32)
    order = rng.permutation(512)

    def readout(A):
        """Of a token kernel of ones."""
        with jax.enable_x64(True):
            L, V = (np.asarray(a, float) for a in low_rank(jax.numpy.asarray(A), 16))
        return np.mean(np.einsum("nac,nc->na", L, V.sum(1)) ** 2, axis=-1)

    exact = np.mean(A.astype(float).sum(-1) ** 2, axis=-1)
    assert np.max(np.abs(readout(A) / exact - 1)) < 2e-8
    np.testing.assert_allclose(readout(A[:, order][:, :, order]), readout(A), rtol=1e-9)
