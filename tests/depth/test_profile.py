"""Profiles against `net.trace`, closed forms, the law of finite heads and finite networks."""

import jax
import numpy as np
import pytest

import limitformer as lf
from limitformer.depth.curves import METRICS
from limitformer.depth.metrics import mean_cosine, relative_residual
from limitformer.empirical import ntk

X = np.random.default_rng(0).normal(size=(2, 4, 8))
LINEAR = lf.Attention(scale="linear")
BLOCKS = {
    "pre": lf.Block(LINEAR),
    "post": lf.Block(LINEAR, placement="post"),
    "no skips": lf.Serial(LINEAR, lf.LayerNorm(), lf.Dense(1.5, 0.3), lf.Relu(), lf.Dense(1.2)),
    "small branch": lf.Residual(LINEAR, branch=0.3),
    "pure": LINEAR,
}


def own(kernel):
    return np.array([kernel.nngp[i, i] for i in range(len(kernel.nngp))])


def test_steps_are_those_of_trace():
    net = lf.Transformer(3, lf.Serial(lf.Residual(LINEAR, branch=0.3), lf.Dense(1.2, 0.1)))
    profile, trace = lf.depth_profile(net, X, ntk=True), net.trace(X)
    turns = tuple(f"1.Repeat[{i}]" for i in range(3))
    assert profile.layers == ("input", "0.Dense", *turns, "2.LayerNorm")
    for i, layer in enumerate(profile.layers[1:], 1):
        entry = trace[layer if layer in trace else f"{layer}/1.Dense"]
        K, T = own(entry), np.array([entry.ntk[i, i] for i in range(2)])
        for name, metric in METRICS.items():
            np.testing.assert_allclose(
                profile.kernel.values[name][0, :, i], metric(kernel=K), rtol=1e-9, err_msg=name
            )
        ratio = np.trace(T, axis1=1, axis2=2) / np.trace(K, axis1=1, axis2=2)
        np.testing.assert_allclose(profile.kernel.values["tangent_ratio"][0, :, i], ratio)
        np.testing.assert_allclose(
            profile.kernel.values["tangent_cosine"][0, :, i], mean_cosine(kernel=T), rtol=1e-9
        )
        w = np.linalg.eigvalsh(T)
        found = profile.kernel.values["tangent_condition"][0, :, i]
        np.testing.assert_allclose(found, w[:, -1] / w[:, 0], rtol=1e-6)
    assert np.isnan(profile["tangent_ratio"][0])  # nothing has weights yet


def test_residual_attention_by_hand():
    net = lf.Repeat(lf.Residual(LINEAR, branch=0.5), 5)
    K = X[0] @ X[0].T / 8
    wanted = [relative_residual(kernel=K)]
    for _ in range(5):
        A = np.exp(K) / np.exp(K).sum(1, keepdims=True)
        K = K + 0.25 * A @ K @ A.T
        wanted.append(relative_residual(kernel=K))
    np.testing.assert_allclose(lf.depth_profile(net, X[:1])["residual"], wanted, rtol=1e-10)


def test_unrolled_equals_repeated_and_readouts_end_it():
    block = BLOCKS["pre"]
    a = lf.depth_profile(lf.Transformer(3, block), X)
    b = lf.depth_profile(lf.Serial(lf.Dense(), block, block, block, lf.LayerNorm()), X)
    for name in METRICS:  # each block of the second has two steps
        np.testing.assert_allclose(a[name][2:5], b[name][3:8:2], rtol=1e-10)
    assert a.layers[-1] == "2.LayerNorm"


def test_masks_and_several_inputs():
    net = lf.Repeat(BLOCKS["small branch"], 3)
    mask = np.array([[1, 1, 1, 1], [1, 0, 1, 1]], bool)
    both = lf.depth_profile(net, X, mask)
    short = lf.depth_profile(net, X[1:, [0, 2, 3]])
    np.testing.assert_allclose(both.kernel.values["cosine"][0, 1], short["cosine"], rtol=1e-10)
    each = both.kernel.values["cosine"][0]
    np.testing.assert_allclose(both["cosine"], each.mean(0))
    np.testing.assert_allclose(both.kernel.input_sem("cosine"), each.std(0, ddof=1) / np.sqrt(2))
    assert both.kernel.sem("cosine") is None and short.kernel.input_sem("cosine") is None
    with pytest.raises(ValueError, match="fewer than two valid tokens"):
        lf.depth_profile(net, X, np.array([[1, 1, 1, 1], [1, 0, 0, 0]], bool))


def test_estimates_carry_errors():
    net = lf.Repeat(lf.Attention(qk_std=1.5), 2)
    rough, fine = (lf.depth_profile(net, X, draws=d) for d in (256, 4096))
    sem = rough.kernel.sem("residual")
    assert sem[0] < 1e-15 and (sem[1:] > 0).all()
    far = (rough["residual"] - fine["residual"])[1:]
    assert (np.abs(far) < 6 * np.hypot(sem, fine.kernel.sem("residual"))[1:]).all()
    again = lf.depth_profile(net, X, draws=256)
    np.testing.assert_array_equal(rough["residual"], again["residual"])


@pytest.mark.slow
def test_finite_heads_against_the_law(key):
    net = lf.Repeat(lf.Attention(qk_std=1.5, heads=2), 2)
    found = lf.depth_profile(net, X[:1]).with_heads(key=key, draws=400).heads
    law = net.law(X[:1], key=jax.random.fold_in(key, 1), draws=400)
    other = relative_residual(kernel=law.nngp[:, 0, 0])
    mine = found.values["residual"][:, 0, -1]
    error = np.hypot(mine.std() / 20, other.std() / 20)
    assert abs(mine.mean() - other.mean()) < 5 * error
    # its spread over networks as well
    spread = np.log(mine).std(), np.log(other).std()
    assert abs(np.log(spread[0] / spread[1])) < 5 / np.sqrt(400)
    low, high = found.band("residual", 0.8)
    inside = (mine >= low[-1]) & (mine <= high[-1])
    assert inside.mean() == pytest.approx(0.8, abs=0.01)
    np.testing.assert_allclose(found.sem("residual")[-1], mine.std(ddof=1) / 20)


@pytest.mark.slow
@pytest.mark.twin
@pytest.mark.parametrize("name", ["pre", "no skips"])
def test_twins(name, key):
    net = lf.Serial(lf.Dense(), lf.Repeat(BLOCKS[name], 4))
    small, large = (
        lf.depth_profile(net, X).with_twins(12, key=k, width=w, heads=2, head_width=w)
        for k, w in zip(jax.random.split(key), (64, 128), strict=True)
    )
    assert small.twin.layers == small.layers
    _agree(small, large)


def _agree(small, large):
    """Twins of width w and 2 w, extrapolated in 1/width, against the kernels."""
    for metric in ("cosine", "residual"):
        kernel = large[metric]
        a, b = small.twin.mean(metric), large.twin.mean(metric)
        error = np.hypot(small.twin.sem(metric), 2 * large.twin.sem(metric)) + 1e-7
        assert (np.abs(2 * b - a - kernel) < 5 * error)[1:].all(), metric


@pytest.mark.slow
@pytest.mark.twin
@pytest.mark.parametrize("name", ["pre", "post", "no skips", "small branch"])
def test_twins_to_depth_64(name, key):
    net = lf.Serial(lf.Dense(), lf.Repeat(BLOCKS[name], 64))
    small, large = (
        lf.depth_profile(net, X).with_twins(6, key=k, width=w, heads=1, head_width=w)
        for k, w in zip(jax.random.split(key), (512, 1024), strict=True)
    )
    _agree(small, large)


@pytest.mark.slow
@pytest.mark.twin
def test_gradients_of_twins(key):
    """Gradient-side quantities against empirical tangent kernels, extrapolated in 1/width."""
    block = lf.Block(LINEAR, lf.Relu(), branch=0.7, w_std=1.2)
    net = lf.Serial(lf.Dense(), lf.Repeat(block, 3), lf.Dense())
    profile = lf.depth_profile(net, X[:1], ntk=True)
    tokens = X.shape[1]

    def measured(width, key):
        found = []
        for one in jax.random.split(key, 16):
            sizes = {"width": width, "heads": 2, "head_width": width, "outputs": 8}
            twin = net.twin(key=one, features=8, **sizes)
            T = np.asarray(ntk(twin.apply, twin.params, X[:1].astype(np.float32)))[0, 0]
            size = np.trace(T) / tokens / profile["variance"][-1]
            found.append((size, mean_cosine(kernel=T)))
        return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / 4

    (a, sa), (b, sb) = (
        measured(w, k) for w, k in zip((48, 96), jax.random.split(key), strict=True)
    )
    wanted = np.array([profile["tangent_ratio"][-1], profile["tangent_cosine"][-1]])
    error = np.hypot(sa, 2 * sb)
    assert (np.abs(2 * b - a - wanted) < 5 * error).all() and (error < 0.2 * wanted).all()


@pytest.mark.slow
@pytest.mark.twin
def test_finite_heads_to_depth_64(key):
    """Scores that are drawn, not averaged: the law's mean and band against twins of two heads."""
    block = lf.Residual(lf.LayerNorm(), lf.Attention(qk_std=1.5, heads=2), branch=0.7)
    net = lf.Serial(lf.Dense(), lf.Repeat(block, 64))
    keys = jax.random.split(key, 3)
    law = lf.depth_profile(net, X[:1], draws=64).with_heads(key=keys[0], draws=400)
    small, large = (
        law.with_twins(n, key=k, width=w, heads=2, head_width=w // 4).twin
        for n, k, w in ((24, keys[1], 512), (12, keys[2], 1024))
    )
    for metric in ("cosine", "residual"):
        mean, (low, high) = law.heads.mean(metric), law.heads.band(metric, 0.9)
        error = np.hypot(small.sem(metric), 2 * large.sem(metric))
        error = np.hypot(error, law.heads.sem(metric)) + 1e-7
        assert (np.abs(2 * large.mean(metric) - small.mean(metric) - mean) < 5 * error)[1:].all()
        every = np.concatenate([small.values[metric], large.values[metric]])[:, 0]
        inside = ((every >= low) & (every <= high))[:, 2:].mean(axis=0)
        assert (inside > 0.9 - 5 * np.sqrt(0.09 / 36)).all()
        # bands that are not bands of everything: networks spread as the law says, to the end
        spread = np.log(every[:, 2:].std(axis=0) / law.heads.values[metric][:, 0, 2:].std(axis=0))
        assert (np.abs(spread) < 5 / np.sqrt(2 * 36)).all()


def test_table_verdict_and_bad_input(key):
    net = lf.Repeat(LINEAR, 4)
    profile = lf.depth_profile(net, X[:1])
    assert "Token cosine reaches 0.99 at layer 2 of 4 (net[1])" in profile.verdict()
    assert "from layer 4 on nothing is left of the residual" in profile.verdict()
    kept = lf.depth_profile(lf.Repeat(lf.Residual(LINEAR, branch=0.1), 4), X[:1])
    assert kept.verdict().startswith("Token cosine stays below 0.99 through all 4 layers")
    assert len(str(profile).splitlines()) == 6 and "net[3]" in str(profile)
    both = profile.with_twins(2, key=key, width=16, heads=1)
    assert "cosine (twin)" in str(both) and len(both.sources) == 2
    with pytest.raises(ValueError, match=r"with_heads\(4\)"):
        profile.with_heads(key=key)
    with pytest.raises(KeyError, match="ntk=True"):
        profile["tangent_ratio"]
    with pytest.raises(ValueError, match="between 0 and 1"):
        profile.kernel.band("cosine", 1.5)
    with pytest.raises(ValueError, match=r"after layer .*not finite"):
        lf.depth_profile(lf.Repeat(lf.Attention(weights="identity", qk_std=9.0), 12), X)


def test_token_ids(key):
    net = lf.Serial(lf.Embed(), lf.Repeat(BLOCKS["pre"], 2), lf.MeanPool())
    ids = np.array([[0, 1, 2, 1]])
    profile = lf.depth_profile(net, ids).with_twins(2, key=key, width=16, heads=1)
    assert profile.layers[0] == "0.Embed" and profile.twin.layers == profile.layers
    assert profile["cosine"][0] == pytest.approx(1 / 6)
