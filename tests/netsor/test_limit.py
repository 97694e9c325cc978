"""The limit against closed forms, facts of the theory, and the program itself at large width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf
from limitformer import netsor


def close(estimate, truth, rtol=1e-10):
    """Within 5 standard errors, or to ten digits where the value is exact."""
    np.testing.assert_array_less(
        np.abs(estimate.value - truth), 5 * estimate.sem + rtol * np.max(np.abs(truth))
    )


def compare(p, lim, vectors, key, n=4096, runs=100):
    """Second moments of vectors without scores, against means over coordinates at width n."""
    moments = [(i, j, p.moment(lambda a, b: a * b, vectors[i], vectors[j]))
               for i in range(len(vectors)) for j in range(i + 1)]  # fmt: skip
    found = lim.second_moment(*vectors)
    sim = p.simulate(n, key=key, runs=runs, keep=[m for _, _, m in moments])
    for i, j, m in moments:
        sem = np.hypot(sim[m].std(ddof=1) / np.sqrt(runs), found.sem[i, j])
        assert abs(sim[m].mean() - found.value[i, j]) < 5 * sem


def test_relu_is_a_closed_form():
    C = np.array([[1.0, 0.4], [0.4, 2.0]])
    p = netsor.Program()
    x = p.vectors(C)
    W = p.matrix(1.3)
    h = [p.nonlin(lf.Relu(), W @ v) for v in x]  # equal activations count as one
    found = p.limit().second_moment(*h)
    net = lf.Serial(lf.Dense(1.3), lf.Relu())
    tokens = np.linalg.cholesky(C) * np.sqrt(2)
    np.testing.assert_allclose(found.value, net.kernel(tokens[None]).nngp[0, 0], rtol=1e-12)
    assert found.sem.max() < 1e-15


def test_quadrature_against_closed_forms():
    C = [[1.0, 0.4], [0.4, 2.0]]
    p = netsor.Program()
    x = p.vectors(C)
    exact = [p.nonlin(lf.Erf(), v) for v in x] + [p.nonlin(lf.Relu(), v) for v in x]
    plain = [p.nonlin(jax.lax.erf, v) for v in x] + [p.nonlin(jax.nn.relu, v) for v in x]
    lim = p.limit()
    a, b = lim.second_moment(*exact), lim.second_moment(*plain)
    np.testing.assert_allclose(a.value[:2, :2], b.value[:2, :2], rtol=1e-9)
    assert 1e-8 < b.sem[2, 3] < 1e-3  # a kink shows in the standard error
    close(b, a.value, 1e-9)


def test_function_with_gaussian_is_stein():
    """E[tanh(u) v] = Cov(u, v) E[tanh'(u)]."""
    p = netsor.Program()
    u, v = p.vectors([[1.5, 0.7], [0.7, 1.0]])
    h = p.nonlin(jnp.tanh, u)
    slope = p.moment(lambda u: 1 - jnp.tanh(u) ** 2, u)
    lim = p.limit()
    np.testing.assert_allclose(
        lim.second_moment(h, v).value[0, 1], 0.7 * lim.moment(slope).value, rtol=1e-10
    )


def test_many_gaussians_and_sums(key):
    """Functions of three Gaussians, nested functions, and sums of them with Gaussians."""
    p = netsor.Program()
    x, y, z = p.vectors([[1.0, 0.3, 0.2], [0.3, 1.0, -0.4], [0.2, -0.4, 1.0]])
    W = p.matrix(1.2)
    f = p.nonlin(lambda x, y, z: jnp.tanh(x * y + z), x, W @ y, z)
    g = p.nonlin(jnp.sin, f + x)
    h = W @ (g + 0.5 * f)
    lim = p.limit()
    assert lim.second_moment(f).sem[0, 0] > 0
    compare(p, lim, [f, h, g + x], key)


def test_reused_matrix(key):
    p = netsor.Program()
    x = p.vector()
    W = p.matrix(1.4)
    h = W @ x
    g = W @ p.nonlin(jnp.tanh, h)
    other = p.matrix() @ x
    lim = p.limit()
    found = lim.second_moment(h, g, other, x).value
    assert found[0, 1] == 0 and found[0, 2] == 0 and found[0, 3] == 0  # E[Z^h tanh(Z^h')], ...
    compare(p, lim, [h, g, other + g], key)


def test_score_covariance_with_swapped_roles(key):
    """Queries of one score are keys of another: the second term of the covariance."""
    p = netsor.Program()
    x, y = p.vectors([[1.0, 0.6], [0.6, 1.5]])
    A, B = p.matrix(1.2), p.matrix(0.8)
    s = (p.score(A @ x, B @ y), p.score(B @ x, A @ y), p.score(A @ y, B @ y))
    lim = p.limit()
    c = (1.2 * 0.8) ** 2
    truth = c * np.array([[1.5, 0.36, 0.9], [0.36, 1.5, 0.9], [0.9, 0.9, 2.25]])
    close(lim.score_covariance(*s), truth)
    sim = p.simulate(4096, key=key, runs=1000, keep=s)
    for draws in (np.stack(lim.sample(*s, key=key, draws=20_000)), np.stack([sim[v] for v in s])):
        products = draws[:, None] * draws[None]
        sem = products.std(axis=-1) / np.sqrt(products.shape[-1])
        assert (np.abs(products.mean(axis=-1) - truth) < 5 * sem).all()


def test_norms_are_moments(key):
    """RMS norm: a vector that depends on a moment."""
    p = netsor.Program()
    x = p.vector(4.0)
    h = p.nonlin(lf.Relu(), p.matrix() @ x)
    m = p.moment(jnp.square, h)
    y = p.matrix() @ p.nonlin(lambda h, m: h / jnp.sqrt(m), h, scores=(m,))
    lim = p.limit()
    close(lim.moment(m), 2.0, 1e-4)
    close(lim.second_moment(y), 1.0, 1e-3)
    sim = p.simulate(256, key=key, runs=400)
    assert abs(sim[y].var() - 1) < 5 * np.sqrt(2 / 400)


def test_infinite_head_variance(key):
    """Theory 3: C = I, s_QK = 1, v = sum_j softmax_j(p)^2 for 2, 4, 8, 16 tokens."""
    p = netsor.Program()
    y = [netsor.examples.attend(p, p.vectors(np.eye(s)))[0][0] for s in (2, 4, 8, 16)]
    found = p.limit().second_moment(*y, key=key, draws=20_000)
    error = np.abs(np.diagonal(found.value) - [0.6364, 0.3918, 0.2317, 0.1322])
    assert (error < 5 * np.diagonal(found.sem) + 0.5e-4).all()
    assert not (found.value - np.diag(np.diagonal(found.value))).any()


def test_kurtosis_and_second_moment(key):
    """Theory 3, s = 4: excess kurtosis .243 / H, relative std of the second moment .285/sqrt H."""
    H, draws = 2, 100_000
    e = netsor.examples.attention(np.eye(4), heads=H)
    lim = e.program.limit()
    v = lim.given_scores(e.outputs[0], key=key, draws=draws)[:, 0, 0]
    m1, m2 = v.mean(), (v**2).mean()
    kurtosis = 3 * (m2 / m1**2 - 1)
    change = 3 * (v**2 / m1**2 - 2 * m2 / m1**3 * v)
    sem = change.std() / np.sqrt(draws)
    assert abs(kurtosis - 0.243 / H) < 5 * sem + 0.0005
    spread = v.std() / m1  # kurtosis = 3 spread^2
    assert abs(spread - 0.285 / np.sqrt(H)) < 5 * sem / (6 * spread) + 0.0005


def test_coordinates_share_scores(key):
    """Coordinates are uncorrelated, their squares are not: Cov(y_1^2, y_2^2) = Var(v)."""
    e = netsor.examples.attention(np.eye(4), heads=1)
    y = e.program.limit().sample(e.outputs[0], key=key, draws=50_000, coordinates=2)
    a, b = (y**2 - (y**2).mean(axis=0)).T
    sem = (a * b).std() / np.sqrt(len(a))
    truth = (0.285 * 0.3918) ** 2  # so that the kurtosis of one coordinate is 3 + 3 CV(v)^2
    assert abs((a * b).mean() - truth) < 5 * sem
    assert (a * b).mean() > 5 * sem
    kurtosis = (y**4).mean() / (y**2).mean() ** 2
    assert abs(kurtosis - 3 - 0.243) < 5 * (y**4).std() / (y**2).mean() ** 2 / np.sqrt(len(y))


@pytest.mark.slow
def test_layers_that_share_their_query_and_key_matrices(key):
    """The scores of the second layer have their law given those of the first."""
    p = netsor.Program()
    x = p.vectors(np.array([[1.0, 0.3], [0.3, 1.0]]))
    Q, K = p.matrix(1.5), p.matrix(1.5)

    def attend(x):
        s = [[p.score(Q @ a, K @ b) for b in x] for a in x]
        y = [p.mix(netsor.examples.softmax, *x, scores=row) for row in s]
        return y, s

    y, s = attend(x)
    _, t = attend(y)
    lim = p.limit()
    draws = lim.sample(s[0][1], t[0][1], key=key, draws=20_000)
    sim = p.simulate(4096, key=key, runs=1000, keep=(s[0][1], t[0][1]))
    simulated = sim[s[0][1]], sim[t[0][1]]
    for f in (lambda a, b: a * b, lambda a, b: b * b, lambda a, b: a * a * b * b):
        u, v = f(*draws), f(*simulated)
        sem = np.hypot(u.std() / np.sqrt(len(u)), v.std() / np.sqrt(len(v)))
        assert abs(u.mean() - v.mean()) < 5 * sem
    assert np.corrcoef(draws)[0, 1] > 0.2


def test_draws_depend_on_the_key_and_their_number_only(key):
    p = netsor.Program()
    x = p.vector()
    s = p.score(p.matrix() @ x, p.matrix() @ x)
    h = p.matrix() @ p.nonlin(lambda x, s: jnp.tanh(s * x), x, scores=(s,))
    lim = p.limit()
    long = lim.sample(h, key=key, draws=19)
    other, scores = lim.sample(h, s, key=key, draws=11)
    np.testing.assert_array_equal(other, long[:11])
    np.testing.assert_array_equal(lim.sample(s, key=key, draws=11), scores)


def test_refusals(key):
    e = netsor.examples.attention(np.eye(2), heads=1)
    lim = e.program.limit()
    with pytest.raises(ValueError, match="random also in the limit: pass key= and draws="):
        lim.second_moment(e.outputs[0])
    with pytest.raises(ValueError, match="draws=1; a standard error needs at least 2"):
        lim.second_moment(e.outputs[0], key=key, draws=1)
    with pytest.raises(ValueError, match="draws=0; use at least 1"):
        lim.sample(e.outputs[0], key=key, draws=0)
    with pytest.raises(ValueError, match="give at least one vector"):
        lim.second_moment()
    with pytest.raises(ValueError, match="belongs to another program"):
        lim.second_moment(netsor.Program().vector())
    with pytest.raises(ValueError, match="points=1000; a Sobol sequence needs a power of two"):
        e.program.limit(points=1000)
