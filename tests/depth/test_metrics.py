"""Collapse metrics against naive loops, closed forms, laws, and inputs that have collapsed."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limitformer.depth import metrics
from limitformer.depth.curves import METRICS

RNG = np.random.default_rng(4)
X = RNG.normal(size=(3, 5, 7)) + 0.5
KERNEL = np.einsum("nac,nbc->nab", X, X) / 7


def naive_cosine(X):
    n = len(X)
    found = [
        X[a] @ X[b] / np.sqrt((X[a] @ X[a]) * (X[b] @ X[b]))
        for a in range(n)
        for b in range(n)
        if a != b
    ]
    return np.mean(found)


def naive_rank(X):
    p = np.linalg.eigvalsh(X @ X.T)
    p = p[p > 1e-14 * p.max()] / p.sum()
    return np.exp(-np.sum(p * np.log(p)))


NAIVE = {
    "residual": lambda X: np.linalg.norm(X - X.mean(0)) / np.linalg.norm(X),
    "cosine": naive_cosine,
    "effective_rank": naive_rank,
    "stable_rank": lambda X: np.linalg.norm(X) ** 2 / np.linalg.norm(X, 2) ** 2,
    "energy": lambda X: np.mean([[np.sum((a - b) ** 2) for a in X] for b in X]) / (2 * X.shape[1]),
    "variance": lambda X: np.mean(X**2),
}


@pytest.mark.parametrize("name", METRICS)
def test_activations_and_kernels_against_naive_loops(name):
    wanted = [NAIVE[name](x) for x in X]
    np.testing.assert_allclose(METRICS[name](X), wanted, rtol=1e-12)
    np.testing.assert_allclose(METRICS[name](kernel=KERNEL), wanted, rtol=1e-12)
    one = METRICS[name](X[0])
    assert np.ndim(one) == 0 and one == pytest.approx(wanted[0], rel=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_padding_equals_truncation(name):
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 0, 1]], bool)
    dirty = np.where(mask[..., None], X, np.nan)
    wanted = [METRICS[name](x[m]) for x, m in zip(X, mask, strict=True)]
    np.testing.assert_allclose(METRICS[name](dirty, mask=mask), wanted, rtol=1e-12)
    K = np.where(mask[:, :, None] & mask[:, None], KERNEL, np.inf)
    np.testing.assert_allclose(METRICS[name](kernel=K, mask=mask), wanted, rtol=1e-12)


@given(st.integers(0, 1000), st.floats(-150, 150))
def test_laws(seed, power):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(6, 4))
    Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    for name in ("residual", "cosine", "effective_rank", "stable_rank"):
        value = METRICS[name](x)
        np.testing.assert_allclose(METRICS[name]((x @ Q)[rng.permutation(6)]), value, rtol=1e-10)
        np.testing.assert_allclose(METRICS[name](x * 10.0**power), value, rtol=1e-10)
    assert 0 <= METRICS["residual"](x) <= 1
    assert -1 / 5 - 1e-12 <= METRICS["cosine"](x) <= 1
    assert 1 <= METRICS["stable_rank"](x) <= METRICS["effective_rank"](x) + 1e-12 <= 4 + 2e-12


@pytest.mark.parametrize("tiny", [1e-3, 1e-6, 1e-9, 1e-12])
def test_nearly_collapsed_activations_keep_their_digits(tiny):
    R = np.array([[1.0, -2.0], [-3.0, 1.0], [2.0, 1.0]])  # columns have mean zero
    x = np.concatenate([np.ones((3, 2)), tiny * R], axis=1)  # exact in float64
    wanted = tiny * np.sqrt(20) / np.sqrt(6 + 20 * tiny**2)
    assert metrics.relative_residual(x) == pytest.approx(wanted, rel=1e-14)
    x = np.ones((3, 2)) + 2.0**-40 * R
    wanted = 2.0**-40 * np.sqrt(20) / np.linalg.norm(x)
    assert metrics.relative_residual(x) == pytest.approx(wanted, rel=1e-14)
    gap = metrics.cosine_gap(np.array([[1.0, 0.0], [1.0, tiny]]))
    assert gap == pytest.approx(tiny**2 / 2, rel=2 * tiny**2 + 1e-12)
    rank = metrics.effective_rank(np.array([[1.0, 0.0], [0.0, tiny]])) - 1
    assert rank == pytest.approx(tiny**2 * (1 - 2 * np.log(tiny)), rel=1e-2, abs=3e-16)


def test_what_a_kernel_can_show():
    assert metrics.resolution(kernel=KERNEL) == pytest.approx(1.5e-8, rel=0.01)
    assert metrics.resolution(kernel=np.float32(KERNEL)) == pytest.approx(3.5e-4, rel=0.02)
    assert metrics.resolution(X) == np.finfo(float).eps
    for tiny in (1e-3, 1e-5, 1e-7):
        K = np.ones((4, 4)) + tiny**2 * np.eye(4)
        wanted = tiny * np.sqrt(3 / (4 * (1 + tiny**2)))
        found = metrics.relative_residual(kernel=K)
        assert found == pytest.approx(wanted, rel=2 * (metrics.resolution(kernel=K) / tiny) ** 2)


@pytest.mark.parametrize("value", [0.0, 1.0, -3e-200, 1e200])
def test_equal_tokens_are_collapsed(value):
    x = np.full((4, 3), value)
    rank = 0.0 if value == 0 else 1.0
    wanted = {"residual": 0, "cosine": 1, "effective_rank": rank, "stable_rank": rank}
    for name, number in wanted.items():
        assert METRICS[name](x) == pytest.approx(number, abs=1e-15)
    if abs(value) < 1e100:
        K = np.full((4, 4), value * value)
        for name, number in ({} if 0 < abs(value) < 1e-150 else wanted).items():
            assert METRICS[name](kernel=K) == pytest.approx(number, abs=1e-7)
    for centre in ("mean", "median"):
        assert metrics.relative_residual(x, norm="1inf", centre=centre) == 0


def test_zero_tokens():
    x = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [1.0, 0.0]])
    # pairs: one of two zeros (1), one of two parallel (1), four mixed (0)
    assert metrics.mean_cosine(x) == pytest.approx(2 / 6)
    assert metrics.mean_cosine(kernel=x @ x.T) == pytest.approx(2 / 6)


def test_dongs_norm():
    x = X[0]
    for centre, middle in (("mean", x.mean(0)), ("median", np.median(x, axis=0))):
        parts = [abs(m).sum(0).max() * abs(m).sum(1).max() for m in (x - middle, x)]
        found = metrics.relative_residual(x, norm="1inf", centre=centre)
        assert found == pytest.approx(np.sqrt(parts[0] / parts[1]), rel=1e-13)
    mask = np.array([True, True, False, True, True])
    for centre in ("mean", "median"):
        options = {"norm": "1inf", "centre": centre}
        found = metrics.relative_residual(x, mask=mask, **options)
        assert found == pytest.approx(metrics.relative_residual(x[mask], **options), rel=1e-13)


def test_attention_maps():
    G = RNG.normal(size=(2, 3, 6, 6))
    A = np.exp(G) / np.exp(G).sum(-1, keepdims=True)
    tau, entropy = metrics.dobrushin(A), metrics.attention_entropy(A)
    for h in np.ndindex(2, 3):
        rows = A[h]
        naive = max(np.abs(a - b).sum() / 2 for a in rows for b in rows)
        assert tau[h] == pytest.approx(naive, rel=1e-13)
        assert entropy[h] == pytest.approx(np.mean([-(a * np.log(a)).sum() for a in rows]))
        x = RNG.normal(size=(6, 2))
        before, after = (max(np.linalg.norm(a - b) for a in v for b in v) for v in (x, rows @ x))
        assert after <= tau[h] * before * (1 + 1e-12)
    assert metrics.dobrushin(np.eye(3)) == 1 and metrics.attention_entropy(np.eye(3)) == 0
    assert metrics.dobrushin(np.full((3, 3), 1 / 3)) == 0
    mask = np.array([True, False, True, True, True, False])
    padded = np.where(mask[:, None], A, np.nan)
    np.testing.assert_allclose(
        metrics.dobrushin(padded, mask=mask), metrics.dobrushin(A[..., mask, :]), rtol=1e-13
    )
    assert metrics.attention_entropy(jnp.eye(3, dtype=jnp.bfloat16)) == 0


def test_energy_on_a_graph():
    x, A = X[0], np.abs(RNG.normal(size=(5, 5)))
    pairs = [[A[a, b] * np.sum((x[a] - x[b]) ** 2) for a in range(5)] for b in range(5)]
    wanted = np.sum(pairs) / (2 * 5 * 7)
    assert metrics.dirichlet_energy(x, weights=A) == pytest.approx(wanted, rel=1e-12)
    assert metrics.dirichlet_energy(kernel=KERNEL[0], weights=A) == pytest.approx(wanted, rel=1e-12)
    uniform = np.full((5, 5), 0.2)
    assert metrics.dirichlet_energy(x, weights=uniform) == pytest.approx(
        metrics.dirichlet_energy(x), rel=1e-12
    )


@pytest.mark.parametrize("name", METRICS)
def test_inputs_without_two_tokens_are_errors(name):
    metric = METRICS[name]
    with pytest.raises(ValueError, match="fewer than two valid tokens"):
        metric(X[0][:1])
    mask = np.array([[1] * 5, [0] * 5, [1, 0, 0, 0, 0]], bool)
    with pytest.raises(ValueError, match="inputs 1, 2 have fewer than two valid tokens"):
        metric(X, mask=mask)
    with pytest.raises(ValueError, match="not finite"):
        metric(np.where(X > 2, np.nan, X))


def test_bad_input():
    with pytest.raises(ValueError, match="and not both"):
        metrics.mean_cosine(X, kernel=KERNEL)
    with pytest.raises(ValueError, match=r"must have shape \(\.\.\., tokens, tokens\)"):
        metrics.mean_cosine(kernel=X)
    with pytest.raises(ValueError, match="not symmetric"):
        metrics.mean_cosine(kernel=np.triu(np.ones((3, 3))))
    with pytest.raises(ValueError, match="negative variance"):
        metrics.mean_cosine(kernel=-np.eye(3))
    with pytest.raises(ValueError, match="must be bool"):
        metrics.mean_cosine(X, mask=np.ones((3, 5)))
    with pytest.raises(ValueError, match=r"mask must have shape \(3, 5\), got \(3, 4\)"):
        metrics.mean_cosine(X, mask=np.ones((3, 4), bool))
    with pytest.raises(ValueError, match="needs activations"):
        metrics.relative_residual(kernel=KERNEL, norm="1inf")
    with pytest.raises(ValueError, match="Frobenius centre is mean"):
        metrics.relative_residual(X, centre="median")
    with pytest.raises(TypeError, match="real numbers"):
        metrics.mean_cosine(X.astype(complex))
    with pytest.raises(ValueError, match="weights that sum to 1"):
        metrics.dobrushin(np.ones((3, 3)))
    with pytest.raises(ValueError, match="no valid query"):
        metrics.attention_entropy(np.eye(3), mask=np.zeros(3, bool))
