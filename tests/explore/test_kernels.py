"""The explorer's recursion is the library's: exactly, draw by draw, and in its averages."""

import dataclasses
import math

import equinox as eqx
import jax
import numpy as np
import pytest

from limitformer.depth.walk import twin_steps
from limitformer.explore import kernels, network, twins
from limitformer.explore.runs import Cache, KernelRun, normals
from limitformer.explore.settings import Settings
from limitformer.heads.draws import Inputs


def never():
    """Nobody goes away."""


EXACT = [
    Settings(norm="pre", activation="gelu", causal="yes", positions="smooth", w_std=1.2),
    Settings(norm="post", activation="none", positions="alibi", heads="2", input="groups"),
]


@pytest.mark.parametrize("s", EXACT, ids=lambda s: s.norm)
def test_fixed_scores_give_the_kernel_of_the_network(s):
    s = dataclasses.replace(s, scale="linear", tokens=5, depth=3)
    step = KernelRun(s, 0).steps(s.depth, never)[-1]
    K = network.network(s).kernel(network.inputs(s), kinds=("nngp",)).nngp[0, 0]
    np.testing.assert_allclose(step.mean, K, rtol=1e-9)


DRAWN = [
    Settings(norm="pre", activation="relu", heads="2", positions="alibi"),
    Settings(norm="post", activation="erf", heads="3", causal="yes", positions="onehot"),
]


@pytest.mark.parametrize("s", DRAWN, ids=lambda s: s.activation)
def test_given_the_normals_of_the_scores_the_kernels_are_the_librarys(s):
    s = dataclasses.replace(s, tokens=5, depth=2)
    H, S = int(s.heads), s.tokens
    Z = [normals(0, layer, 3 * H * S * S).reshape(3, H, S, S).astype(float) for layer in (1, 2)]
    K = np.repeat(kernels.first_kernel(s)[None], 3, axis=0)
    for z in Z:
        K = kernels.block(s, K, z)
    with jax.enable_x64(True):
        inputs = Inputs.of(network.network(s), network.inputs(s), None, False, None)
        for draw in range(3):
            found = joint(inputs.network, inputs.streams, [z[draw] for z in Z])
            # a factor of K + _PIVOT differs by its root, 1e-6, at most
            np.testing.assert_allclose(K[draw], found, rtol=1e-7)


@eqx.filter_jit
def joint(net, streams, Z):
    """The library's conditional kernel, the normals of block after block given."""
    left = list(Z)

    def given(layer, shape, dtype):
        assert shape == left[0].shape
        return left.pop(0)

    found, _ = net.joint(streams, jax.random.key(0), 1, normals=given)
    assert not left
    return found[0, 0]


def test_a_collapsed_kernel_keeps_its_factor():
    K = np.ones((2, 6, 6))
    F = kernels.factor(K)
    np.testing.assert_allclose(F @ F.swapaxes(1, 2), K, atol=1e-11)
    assert np.isfinite(kernels.factor(np.zeros((1, 3, 3)))).all()


def test_an_activation_is_the_same_in_every_block_of_entries():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(30, 24, 24))
    K = F @ F.swapaxes(1, 2) / 24
    whole = kernels.activation("gelu", K)
    assert K.size > 16384
    np.testing.assert_array_equal(whole[7], kernels.activation("gelu", K[7:8])[0])


def test_depth_carries_on_from_the_last_answer():
    s, cache, seen = Settings(tokens=3), Cache(), []
    first = cache.kernel(s, 0).steps(2, lambda: seen.append(1))
    more = cache.kernel(dataclasses.replace(s, depth=9), 0).steps(4, lambda: seen.append(1))
    assert len(seen) == 4
    assert all(a is b for a, b in zip(first, more[:3], strict=True))
    twice = KernelRun(dataclasses.replace(s, depth=1, of="token", width="8"), 0).steps(4, never)
    np.testing.assert_array_equal(twice[4].corner, more[4].corner)


def test_the_cache_forgets_the_oldest():
    cache = Cache(kept=2)
    runs = [cache.kernel(Settings(tokens=t), 0) for t in (2, 3, 4)]
    assert cache.kernel(Settings(tokens=4), 0) is runs[2]
    assert cache.kernel(Settings(tokens=2), 0) is not runs[0]


@pytest.mark.parametrize(
    "s",
    [
        Settings(norm="pre", activation="gelu", heads="2", causal="yes", positions="smooth"),
        Settings(norm="post", activation="abs", heads="inf", positions="alibi", scale="linear"),
    ],
    ids=lambda s: s.norm,
)
def test_given_its_weights_a_twin_is_the_librarys(s, key):
    s = dataclasses.replace(s, tokens=3, depth=2, width="8")
    n, H, x = 8, network.twin_heads(s), network.inputs(s)
    with jax.enable_x64(True):
        made = network.network(s).twin(
            key=key, features=3, tokens=3, width=n, heads=H, dtype=np.dtype(float)
        )
        run = eqx.filter_jit(lambda twin, x: (twin(x)[:, :, 0], _first(twin, x)))
        expected, h = (np.asarray(v) for v in run(made, x))
        paths = jax.tree_util.tree_flatten_with_path(made.params)[0]
    params = [(jax.tree_util.keystr(path), np.asarray(value)) for path, value in paths]

    def of_blocks(name):
        return [v for path, v in params if path.endswith(f"[{name!r}]") and "'rest'" in path]

    if s.positions != "smooth":
        np.testing.assert_allclose(twins.embed(s, params[1][1][None]), h, rtol=1e-12)
    maps = [of_blocks(name)[0] for name in (("q", "k", "v") if s.random else ("q", "v"))]
    for layer in range(s.depth):
        W = twins.Weights(
            np.stack([w[layer] for w in maps])[None],
            of_blocks("o")[0][layer][None],
            np.stack([w[layer] for w in of_blocks("w")])[None],
        )
        h = twins.block(s, h, W)
    last = params[-1][1][None, :, 0]
    np.testing.assert_allclose(twins.outputs(h, last), expected, rtol=1e-9)


def _first(twin, x):
    """Channels before the blocks."""
    steps = twin_steps(twin, x)
    turn = next(i for i, (name, _) in enumerate(steps) if "Repeat" in name)
    return steps[turn - 1][1][0]


def test_drawn_twins_have_the_theorys_variance(key):
    """Width 64 and four heads: E[y^2] of the embedding exactly, of a block to O(1/width)."""
    s = Settings(tokens=3, width="64", heads="4", positions="onehot")

    rng = np.random.default_rng(1)
    h = twins.first_channels(s, 200, lambda count: rng.standard_normal(count, np.float32))
    K = np.einsum("nac,nbc->nab", h, h) / 64
    sem = K.std(axis=0, ddof=1) / math.sqrt(200)
    assert (np.abs(K.mean(axis=0) - kernels.first_kernel(s)) < 5 * sem).all()
