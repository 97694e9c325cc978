"""The finite-head law against theory.md's facts, finite twins, and the infinite-head limit."""

import jax
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import limitformer as lf

IDENTITY = np.sqrt(4) * np.eye(4)[None]  # four tokens with C = I
K0 = np.array(
    [
        [1.05, -0.20, 0.16, 0.21],
        [-0.20, 1.75, 0.60, -0.09],
        [0.16, 0.60, 1.51, -0.08],
        [0.21, -0.09, -0.08, 0.72],
    ]
)
rng = np.random.default_rng(2)
X = rng.normal(size=(3, 4, 5))
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], bool)


def close(found, value, sem=0.0, times=5):
    assert np.all(np.abs(found.value - value) < times * np.hypot(found.sem, sem)), (found, value)


@pytest.mark.parametrize(("heads", "s"), [(1, 4), pytest.param(2, 8, marks=pytest.mark.slow)])
def test_one_layer_on_independent_tokens(heads, s, key):
    """E[v], the excess kurtosis 3 CV(v)^2 / H and the spread CV(v) / sqrt(H) of theory 3."""
    x = np.sqrt(s) * np.eye(s)[None]
    law = lf.Attention(heads=heads).law(x, key=key, draws=20_000)
    close(law.mean, lf.Attention().kernel(x, draws=2**13).nngp, 2e-3)
    mean = {4: 0.3918, 8: 0.2317}[s]
    assert abs(law.variances[:, 0].mean() - mean) < 5 * law.variances[:, 0].std() / 140
    if s == 4:
        assert abs(law.kurtosis.value[0] - 0.243 / heads) < 5 * law.kurtosis.sem[0] + 0.001
        spread = law.second_moment_spread
        assert abs(spread.value[0] - 0.285 / np.sqrt(heads)) < 5 * spread.sem[0] + 0.001


def test_depth(key):
    """Var(f_1 - f_2) over depth (theory, section 0): .827, .0581, .00028."""
    x = 2 * np.linalg.cholesky(K0)[None]
    for depth, value in ((1, 0.827), (2, 0.0581)):
        net = lf.Serial(*[lf.Attention(qk_std=1.5, heads=2)] * depth)
        K = net.law(x, key=key, draws=8000).nngp[:, 0, 0]
        v = K[:, 0, 0] + K[:, 1, 1] - 2 * K[:, 0, 1]
        assert abs(v.mean() - value) < 5 * v.std() / np.sqrt(8000) + 5e-4


@pytest.mark.parametrize(
    "attention",
    [
        pytest.param(lf.Attention(), id="softmax"),
        pytest.param(
            lf.Attention(weights="relu", qk_std=0.7, per_key=True),
            id="relu",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lf.Attention(causal=True, position=lf.Position(lf.SquaredExponential(1.0, 1.0))),
            id="position",
            marks=pytest.mark.slow,
        ),
        pytest.param(lf.Attention(position=lf.Rotary(4)), id="rotary", marks=pytest.mark.slow),
        pytest.param(
            lf.Attention(position=lf.Alibi((0.5, 0.1))), id="alibi", marks=pytest.mark.slow
        ),
    ],
)
def test_mean_is_the_limit(attention, key):
    """One layer: the mean over draws is the kernel of infinitely many heads, K and T, masked."""
    net = lf.Serial(lf.Dense(1.1, 0.2), attention, lf.Dense(), lf.MeanPool())
    limit = net.kernel(X, x_mask=MASK, draws=2**12)
    law = net.with_heads(2).law(X, x_mask=MASK, key=key, draws=3000, kinds=("nngp", "ntk"))
    sem = 0.0 if limit.nngp_sem is None else limit.nngp_sem
    close(law.mean, limit.nngp, sem)
    T = law.ntk
    sem = np.hypot(T.std(0) / np.sqrt(len(T)), 0 if limit.ntk_sem is None else limit.ntk_sem)
    assert (np.abs(T.mean(0) - limit.ntk) < 5 * sem).all()


@pytest.mark.slow
def test_mixed_deep_networks(key):
    """Norms, MLPs and an infinite-head layer among finite ones; padding changes nothing."""
    net = lf.Serial(
        lf.Dense(),
        lf.Residual(lf.LayerNorm(), lf.Attention(heads=2)),
        lf.Residual(lf.LayerNorm(), lf.Dense(), lf.Relu(), lf.Dense()),
        lf.Residual(lf.Attention(weights="identity", qk_std=0.3)),
        lf.Repeat(lf.Residual(lf.Attention(heads=3)), 2),
        lf.MeanPool(),
    )
    law = net.law(X[2:], x_mask=MASK[2:], key=key, draws=50)
    short = net.law(X[2:, :2], key=key, draws=50)
    assert law.nngp.shape == (50, 1, 1)
    np.testing.assert_allclose(law.mean.value, short.mean.value, rtol=0.2)
    assert np.linalg.eigvalsh(net.law(X, key=key, draws=20).nngp).min() > -1e-10


@pytest.mark.slow
@pytest.mark.twin
def test_twins(key):
    """Kurtosis and mean of wide twins with the same heads."""
    net = lf.Serial(lf.Dense(), lf.Attention(heads=2, qk_std=2.0), lf.FirstToken())
    law = net.law(X[:1], key=key, draws=20_000)

    def output(k):
        return net.twin(key=k, features=5, width=192, outputs=1)(X[:1].astype(np.float32))[0, 0]

    y = np.asarray(jax.jit(jax.vmap(output))(jax.random.split(key, 20_000)))
    second = np.mean(y**2)
    assert abs(second / law.mean.value[0, 0] - 1) < 0.05
    fourth = y**4 / second**2 - 3
    assert abs(fourth.mean() - law.kurtosis.value[0]) < 5 * fourth.std() / np.sqrt(len(y)) + 0.05


def test_densities_are_those_of_the_draws(key):
    law = lf.Serial(lf.Attention(heads=1, qk_std=2.0), lf.FirstToken()).law(
        IDENTITY, key=key, draws=400
    )
    y = np.linspace(-8, 8, 2001)
    p = law.density(y)
    assert abs(scipy.integrate.trapezoid(p.value, y) - 1) < 1e-6
    assert (
        abs(
            scipy.integrate.trapezoid(p.value * y**4, y) / law.variances.mean() ** 2
            - 3
            - law.kurtosis.value[0]
        )
        < 1e-3
    )
    cdf = law.cdf(y).value
    np.testing.assert_allclose(np.gradient(cdf, y)[5:-5], p.value[5:-5], atol=1e-4)
    q = law.quantile([0.01, 0.5, 0.99])
    np.testing.assert_allclose(law.cdf(q.value).value, [0.01, 0.5, 0.99], atol=1e-10)
    np.testing.assert_allclose(law.tail(q.value[2]).value, 0.02, atol=1e-9)
    np.testing.assert_allclose(law.joint_density(y[:, None]).value, p.value, rtol=1e-10)
    np.testing.assert_allclose(law.joint_density(y[:, None]).sem, p.sem, rtol=1e-8)
    samples = law.sample(key=key, coordinates=200)
    assert samples.shape == (400, 1, 200)
    spread = np.sqrt((samples**4).mean() / 400)
    assert abs((samples**2).mean() - law.variances.mean()) < 5 * spread
    both = law.sample(key=key, coordinates=2)[:, 0]
    assert both.shape == (400, 2)


def test_tokens_and_bad_input(key):
    law = lf.Attention(heads=2).law(X, key=key, draws=5)
    assert law.nngp.shape == (5, 3, 3, 4, 4)
    assert law.variances.shape == (5, 12)
    assert law.sample(key=key, coordinates=3).shape == (5, 3, 4, 3)
    deep = lf.Serial(lf.Attention(heads=2), lf.Dense(), lf.Relu(), lf.Dense(), lf.MeanPool())
    with pytest.raises(ValueError, match=r"lf\.empirical\.ntk"):
        deep.law(X, key=key, kinds="ntk")
    with pytest.raises(ValueError, match="use at least 1"):
        deep.law(X, key=key, draws=0)
    with pytest.raises(ValueError, match=r"net\.law"):
        deep.kernel(X)
    with pytest.raises(ValueError, match="between 0 and 1"):
        law.quantile(1.0)
    same = lf.Serial(lf.Attention(heads=1), lf.MeanPool()).law(X[[0, 0]], key=key, draws=3)
    with pytest.raises(ValueError, match="no joint density"):
        same.joint_density(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="do not fit 3 heads"):
        lf.Attention(heads=3, position=lf.Alibi((0.5, 0.1))).law(X, key=key, draws=3)
    for heads in (0, 2.5, "two", True):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            lf.Attention(heads=heads)
    sharp = lf.Serial(lf.Attention(heads=2, qk_std=1e10), lf.MeanPool())
    assert np.isfinite(sharp.law(X, key=key, draws=5).nngp).all()
    with pytest.raises(ValueError, match="use a smaller qk_std"):
        lf.Attention(heads=2, qk_std=1e200).law(X, key=key, draws=5)
    seen = []
    report = lambda *p: seen.append(p[:2])  # noqa: E731
    lf.Attention(heads=2).law(X, key=key, draws=4, memory=2**16, progress=report)
    assert seen[-1] == (4, 4)


def test_linear_scale_does_not_care_about_heads(key):
    net = lf.Serial(lf.Attention(scale="linear", heads=3), lf.MeanPool())
    law = net.law(X, key=key, draws=3)
    np.testing.assert_allclose(law.nngp, np.broadcast_to(net.kernel(X).nngp, (3, 3, 3)), rtol=1e-12)


def test_memory_chunks_are_the_same_draws(key):
    net = lf.Serial(lf.Attention(heads=2), lf.MeanPool())
    a, b = (net.law(X, key=key, draws=9, memory=m) for m in (None, 2**17))
    np.testing.assert_allclose(a.nngp, b.nngp, rtol=1e-12)


def test_statistics_are_streamed_where_kernels_do_not_fit(key):
    net = lf.Serial(lf.Dense(), lf.Attention(heads=2))
    whole, parts = (net.law(X, key=key, draws=40, memory=m) for m in (None, 2**15))
    with pytest.raises(ValueError, match=r"40 kernels do not fit .* streamed"):
        _ = parts.nngp
    y, points = np.linspace(-2, 2, 5), [0, 4]
    pairs = np.stack([y, y], axis=1)
    for of in (
        lambda law: law.mean,
        lambda law: law.variance,
        lambda law: law.kurtosis,
        lambda law: law.density(y, 3),
        lambda law: law.joint_density(pairs, points),
    ):
        np.testing.assert_allclose(of(parts).value, of(whole).value, rtol=1e-10)
        np.testing.assert_allclose(of(parts).sem, of(whole).sem, rtol=1e-8)
    sample = [law.sample(key=key, coordinates=2) for law in (whole, parts)]
    second = [s[..., 0] ** 2 for s in sample]  # eigenvectors may differ in sign
    assert sample[1].shape == (40, 3, 4, 2)
    np.testing.assert_allclose(second[0], second[1], rtol=1e-6)
