"""Correlation maps, their fixed points, and critical scales."""

import jax
import numpy as np
import pytest
import scipy.optimize

import limitformer as lf
from limitformer.depth import correlation_map, phase_diagram

LINEAR = lf.Attention(scale="linear")


def attention(c, S, branch=1.0, skip=0.0, q=1.0):
    """c' of skip + linear softmax attention on exchangeable tokens, by hand."""
    K = q * ((1 - c) * np.eye(S) + c)
    A = np.exp(K) / np.exp(K).sum(1, keepdims=True)
    K = skip**2 * K + branch**2 * A @ K @ A.T
    return K[0, 1] / K[0, 0], K[0, 0]


@pytest.mark.parametrize("q", [0.5, 2.0])
def test_map_by_hand(q):
    c = np.array([-0.1, 0.0, 0.4, 0.9])
    found = correlation_map(lf.Residual(LINEAR, branch=0.7), 6, q, c)
    wanted = np.array([attention(v, 6, 0.7, 1.0, q) for v in c])
    np.testing.assert_allclose(found.after, wanted[:, 0], rtol=1e-12)
    np.testing.assert_allclose(found.variance_after, wanted[:, 1], rtol=1e-12)
    assert found.sem is None
    (top,) = found.fixed_points
    near = 1 - attention(1 - 1e-5, 6, 0.7, 1.0, q)[0]
    assert top.c == 1 and top.slope == pytest.approx(near / 1e-5, rel=1e-6)
    assert top.stable and top.xi == pytest.approx(1 / abs(np.log(top.slope)))


def test_relu_networks_have_slope_one():
    # arc-cosine kernel: 1 - c' = 1 - c to first order (He scaling), the critical case
    block = lf.Serial(lf.LayerNorm(), lf.Relu(), lf.Dense(2**0.5))
    (top,) = correlation_map(block, 3).fixed_points
    assert top.c == 1 and top.slope == pytest.approx(1, abs=5e-3)


def test_inner_fixed_point_and_its_rate():
    # erf with large weights is chaotic: equal tokens come apart, to a stable c < 1
    block = lf.Serial(lf.Dense(5.0, 0.3), lf.Erf(), lf.Dense(), lf.LayerNorm())
    found = correlation_map(block, 3)
    low, top = found.fixed_points
    assert low.stable and not top.stable and top.c == 1 and top.slope > 1
    c = 0.5
    for _ in range(12):
        c = correlation_map(block, 3, c=[c]).after[0]
    assert abs(c - low.c) < 2 * abs(0.5 - low.c) * low.slope**12 + 1e-9
    step = correlation_map(block, 3, c=[low.c + 1e-3]).after[0] - low.c
    assert step / 1e-3 == pytest.approx(low.slope, rel=1e-2)
    assert "unstable" in str(found)


def test_estimated_maps_carry_errors():
    c = np.array([0.0, 0.5])
    found = correlation_map(lf.Attention(qk_std=1.0), 4, c=c, draws=2048)
    # theory 3: E[v] = .3918 at c = 0, and q' = E[v] there
    assert abs(found.variance_after[0] - 0.3918) < 0.01
    # E[A_a . A_b] of two rows is 1/4, rows being independent at c = 0
    assert abs(found.after[0] - 0.25 / 0.3918) < 6 * found.sem[0]


def test_bad_blocks_and_correlations():
    causal = lf.Attention(scale="linear", causal=True)
    with pytest.raises(ValueError, match="does not treat tokens alike"):
        correlation_map(causal, 4)
    with pytest.raises(ValueError, match="does not treat tokens alike"):
        correlation_map(lf.Attention(causal=True), 3, c=[0.2], draws=128)
    with pytest.raises(ValueError, match="ends in a readout"):
        correlation_map(lf.MeanPool(), 4)
    with pytest.raises(ValueError, match=r"lie between -0\.3333 and 1"):
        correlation_map(LINEAR, 4, c=[-0.5])
    with pytest.raises(ValueError, match="at least two"):
        correlation_map(LINEAR, 1)


X = np.random.default_rng(1).normal(size=(2, 4, 8))


def stack(branch, depth=6, placement="none"):
    return lf.Serial(
        lf.Dense(), lf.Repeat(lf.Block(LINEAR, placement=placement, branch=branch), depth)
    )


def test_critical_scale():
    found = lf.critical(stack, X, 0.01, 3.0, target=0.6, rtol=1e-6)
    assert lf.depth_profile(stack(found.value), X)["cosine"][-1] == pytest.approx(0.6, abs=1e-5)
    assert found.at_low < 0.6 < found.at_high and found.value_sem == 0
    same = lf.critical(stack, X, 0.01, 3.0, target=0.6, rtol=1e-6, log=True)
    assert same.value == pytest.approx(found.value, rel=1e-5)
    deeper = lf.critical(lambda v: stack(v, 24), X, 0.01, 3.0, target=0.6)
    assert deeper.value < found.value  # the deeper, the smaller the branch must be
    with pytest.raises(ValueError, match=r"both on one side of 0\.99999"):
        lf.critical(stack, X, 0.01, 0.02, target=0.99999)
    with pytest.raises(ValueError, match="metric='rank' is not known"):
        lf.critical(stack, X, 0.01, 1.0, metric="rank")
    with pytest.raises(ValueError, match="low must be smaller"):
        lf.critical(stack, X, 1.0, 0.5)


@pytest.mark.slow
def test_estimated_critical_scale_has_an_error():
    def build(qk):
        return lf.Attention(qk_std=qk)

    found, fine = (
        lf.critical(build, X[:1], 0.5, 4.0, target=0.5, draws=draws, rtol=1e-3)
        for draws in (64, 512)
    )
    assert found.value_sem > fine.value_sem > 0
    assert abs(found.value - fine.value) < 6 * np.hypot(found.value_sem, fine.value_sem) + 4e-3


def test_phase_diagram():
    def build(branch, w):
        return lf.Serial(
            lf.Dense(), lf.Repeat(lf.Residual(lf.LayerNorm(), LINEAR, branch=branch * w), 4)
        )

    found = phase_diagram(build, X, [0.1, 0.5, 1.0], [0.5, 1.0], names=("branch", "w"))
    assert found.values.shape == (3, 2) and found.sem is None
    assert found.values[1, 1] == lf.depth_profile(build(0.5, 1.0), X)["cosine"][-1]
    assert (np.diff(found.values, axis=0) > 0).all()
    assert found.values[2, 0] == pytest.approx(found.values[1, 1], rel=1e-12)
    with pytest.raises(ValueError, match="lists of numbers"):
        phase_diagram(build, X, 0.1, [1.0])


def erf_by_hand(w, b):
    """Variance at which Erf, Dense(w, b) settles on equal tokens, and the slope there."""
    rise = lambda q: w**2 * 2 / np.pi * np.arcsin(2 * q / (1 + 2 * q)) + b**2 - q  # noqa: E731
    q = scipy.optimize.brentq(rise, 1e-6, 10 * (w**2 + b**2))
    return q, w**2 * 4 / np.pi / np.sqrt(1 + 4 * q)  # w^2 E[erf'(u)^2], u of variance q


@pytest.mark.parametrize(("w", "b"), [(1.1, 0.3), (2.0, 0.5)])
def test_settled_variance_by_hand(w, b):
    found = correlation_map(lf.Serial(lf.Erf(), lf.Dense(w, b)), 3, settled=True)
    q, slope = erf_by_hand(w, b)
    top = found.fixed_points[-1]
    assert top.c == 1 and top.variance == pytest.approx(q, rel=1e-9)
    assert top.slope == pytest.approx(slope, rel=1e-4)
    np.testing.assert_allclose(found.variance_after, found.variance, rtol=1e-9)
    assert "variance" in str(found)


def test_settled_fixed_points_are_those_of_both_maps():
    """Iterating (q, c) ends in the point, and as fast as its slope says."""
    block = lf.Serial(lf.Residual(LINEAR, branch=0.3), lf.Erf(), lf.Dense(3.0, 0.5))
    found = correlation_map(block, 3, settled=True)
    point, top = found.fixed_points
    assert point.stable and point.c < 0.99 and top.c == 1 and not top.stable
    q, c, far = 1.0, 0.3, []
    for _ in range(24):
        step = correlation_map(block, 3, q, [c])
        q, c = step.variance_after[0], step.after[0]
        far.append(np.hypot(np.log(q / point.variance), c - point.c))
    assert far[-1] < 1e-3 * far[0]
    assert far[-1] / far[-2] == pytest.approx(point.slope, rel=1e-3)


def test_variances_that_do_not_settle():
    with pytest.raises(ValueError, match="the variance grows from block to block"):
        correlation_map(lf.Residual(LINEAR), 4, settled=True)
    with pytest.raises(ValueError, match="the variance shrinks from block to block"):
        correlation_map(lf.Serial(lf.Relu(), lf.Dense(1.0)), 4, settled=True)
    with pytest.raises(ValueError, match="keeps every variance"):
        correlation_map(lf.Serial(lf.Relu(), lf.Dense(2**0.5)), 4, settled=True)


def by_branch(v):
    return stack(v, 4)


def by_post_norm_branch(v):
    return stack(v, 4, "post")


def by_scores(v):
    block = lf.Residual(lf.LayerNorm(), lf.Attention(scale="linear", qk_std=v))
    return lf.Serial(lf.Dense(), lf.Repeat(block, 4))


def by_values(v):
    block = lf.Residual(lf.LayerNorm(), lf.Attention(scale="linear", ov_std=v))
    return lf.Serial(lf.Dense(), lf.Repeat(block, 4))


@pytest.mark.slow
@pytest.mark.twin
@pytest.mark.parametrize(
    ("build", "target"),
    [(by_branch, 0.6), (by_post_norm_branch, 0.6), (by_scores, 0.5), (by_values, 0.4)],
)
def test_finite_networks_are_critical_there(build, target, key):
    found = lf.critical(build, X, 0.05, 4.0, target=target)
    profile = lf.depth_profile(build(found.value), X)
    small, large = (
        profile.with_twins(24, key=k, width=w, heads=2, head_width=w).twin
        for k, w in zip(jax.random.split(key), (96, 192), strict=True)
    )
    limit = (2 * large.mean("cosine") - small.mean("cosine"))[-1]
    error = np.hypot(2 * large.sem("cosine"), small.sem("cosine"))[-1]
    assert abs(limit - target) < 5 * error and error < 0.05
