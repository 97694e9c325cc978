"""Solves over tiles against dense linear algebra in float64."""

import os

import numpy as np
import pytest
import scipy.linalg

import limitformer as lf
from limitformer import tiles
from limitformer.tiles import cholesky
from limitformer.tiles.layout import Layout
from limitformer.tiles.matrix import Held, Tiled
from limitformer.tiles.nystrom import columns, nystrom

RNG = np.random.default_rng(0)
N = 60
NET = lf.Serial(lf.Embed(), lf.Dense(1.3, 0.2), lf.Relu(), lf.MeanPool(), lf.Dense())
IDS = [RNG.integers(0, 9, size=RNG.integers(2, 9)).tolist() for _ in range(N)]  # one bucket
Y = RNG.normal(size=(N, 3))
ROUNDING = 1e-9  # a preconditioner that is exact leaves nothing to estimate
NOISE = 0.01 + 0.02 * RNG.random(N)


@pytest.fixture(scope="module")
def gram(tmp_path_factory):
    """A stored kernel whose rows were sorted by length."""
    return lf.gram(NET, IDS, kinds="nngp", store=tmp_path_factory.mktemp("s") / "K", tile=20)


@pytest.fixture(scope="module")
def K(gram):
    return np.asarray(gram.nngp)


@pytest.fixture(scope="module")
def smooth():
    """A kernel with fast eigenvalue decay, in memory."""
    x = np.sort(RNG.uniform(-3, 3, 300))
    return np.exp(-0.5 * (x[:, None] - x[None]) ** 2)


@pytest.mark.parametrize("method", ["cholesky", "disk", "cg", "auto"])
@pytest.mark.parametrize("one", [True, False])
def test_stored_and_sorted(gram, K, method, one):
    y = Y[:, 0] if one else Y
    exact = np.linalg.solve(K + np.diag(NOISE), y)
    found = tiles.solve(gram.nngp, y, noise=NOISE, method=method, tolerance=1e-11)
    np.testing.assert_allclose(found.alpha, exact, rtol=1e-6, atol=1e-8 * np.abs(exact).max())
    assert found.residual < 1e-10 and found.alpha.shape == y.shape
    gap = (K + np.diag(NOISE)) @ found.alpha - y
    assert np.linalg.norm(gap) <= 3e-11 * np.linalg.norm(y) + 1e-11
    if found.logdet is not None:
        assert found.logdet == pytest.approx(np.linalg.slogdet(K + np.diag(NOISE))[1], rel=1e-10)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_small_panels(smooth, where):
    D = np.full(300, 1e-3)
    K = Held(smooth)
    if where == "memory":
        factor = cholesky.Factor.in_memory(K, D, width=100)
    else:
        factor = cholesky.Factor.on_disk(K, D, 2 * 8 * 300 * 100)
    assert len(factor.panels) > 2
    exact = scipy.linalg.cholesky(smooth + np.diag(D), lower=True)
    for start, panel in zip(factor.starts, factor.panels, strict=True):
        cols = slice(start, start + panel.shape[1])
        np.testing.assert_allclose(np.tril(panel), exact[start:, cols], atol=1e-10)
    y = RNG.normal(size=300)
    gap = (smooth + np.diag(D)) @ factor.solve(y) - y
    factor.close()
    assert not factor.panels and (where == "memory" or not os.path.exists(factor.folder.name))
    assert np.linalg.norm(gap) < 1e-9 * np.linalg.norm(y)


def test_preconditioner_saves_iterations(smooth):
    y = RNG.normal(size=(300, 2))
    few, many = (
        tiles.solve(smooth, y, noise=1e-3, method="cg", rank=rank).iterations for rank in (60, 1)
    )
    assert few < 12 and many > 3 * few


def test_nystrom_is_exact_at_full_rank(smooth):
    D = np.linspace(0.5, 1.0, 300)
    P = nystrom(Held(smooth), D, 300, 0)
    V = RNG.normal(size=(300, 2))
    np.testing.assert_allclose(P.solve(V), np.linalg.solve(smooth + np.diag(D), V), atol=1e-7)
    assert P.logdet == pytest.approx(np.linalg.slogdet(smooth + np.diag(D))[1], abs=1e-6)
    W = np.linspace(0.1, 2.0, 300)[:, None] * V
    twice = P.half_solve(P.half_solve(W)) / np.sqrt(D)[:, None]
    np.testing.assert_allclose(twice, P.solve(W * np.sqrt(D)[:, None]), atol=1e-10)


def test_columns_of_a_store(gram, K):
    index = np.array([0, 19, 20, 41, 59])
    order = gram.nngp.orders[0]
    np.testing.assert_array_equal(columns(gram.nngp, index), K[order][:, order[index]])


def test_resume_from_saved_state(smooth, tmp_path):
    y = RNG.normal(size=300)
    options = {"noise": 1e-4, "method": "cg", "rank": 2, "tolerance": 1e-9}
    with pytest.raises(RuntimeError, match=r"relative residual of .* after 5 iterations.*state"):
        tiles.solve(smooth, y, limit=5, state=tmp_path / "state.npy", **options)
    before = np.load(tmp_path / "state.npy")
    v = before.ravel()  # conjugate gradients lower this energy from 0
    assert 0.5 * v @ (smooth @ v + 1e-4 * v) - v @ y < -0.5 * y @ y
    found = tiles.solve(smooth, y, state=tmp_path / "state.npy", **options)
    assert found.residual <= 1e-9
    again = tiles.solve(smooth, y, state=tmp_path / "state.npy", **options)
    assert again.iterations == 0 and np.array_equal(again.alpha, found.alpha)
    with pytest.raises(ValueError, match="it is of another solve"):
        tiles.solve(smooth, np.ones((300, 2)), state=tmp_path / "state.npy", **options)


def test_log_determinant_within_its_error(smooth, gram, K):
    exact = np.linalg.slogdet(smooth + 0.01 * np.eye(300))[1]
    for rank in (1, 20):
        found = tiles.log_determinant(smooth, noise=0.01, probes=30, steps=60, rank=rank)
        assert found.sem > 0 and abs(found.value - exact) < 4 * found.sem + ROUNDING
    exact = np.linalg.slogdet(K + np.diag(NOISE))[1]
    found = tiles.log_determinant(gram.nngp, noise=NOISE, rank=20, steps=60)
    assert abs(found.value - exact) < 4 * found.sem + ROUNDING


def test_evidence(gram, K):
    M = K + np.diag(NOISE)
    exact = sum(
        -0.5 * (y @ np.linalg.solve(M, y) + np.linalg.slogdet(M)[1] + N * np.log(2 * np.pi))
        for y in Y.T
    )
    found = tiles.evidence(gram.nngp, Y, noise=NOISE)
    assert found.sem == 0 and found.value == pytest.approx(exact, rel=1e-9)
    found = tiles.evidence(gram.nngp, Y, noise=NOISE, method="cg", rank=20, steps=60)
    assert found.sem > 0 and abs(found.value - exact) < 4 * found.sem + ROUNDING


def test_predictions_by_tiles(K):
    new = IDS[:7]
    alpha = RNG.normal(size=(N, 2))
    mean = tiles.predict(NET, IDS, alpha, new, tile=20)
    np.testing.assert_allclose(mean, K[:7] @ alpha, rtol=1e-9)
    with pytest.raises(ValueError, match=r"alpha has shape \(7, 2\); expected \(60,\)"):
        tiles.predict(NET, IDS, alpha[:7], new)


@pytest.mark.slow
def test_twenty_thousand_rows_on_several_threads():
    """SciPy's own factorisation of this many rows ends the process."""
    n = 20_000
    v = RNG.normal(size=n) / np.sqrt(n)

    class Lazy(Held):
        layout = Layout(n, n, 1000, True)
        shape = (n, n)

        def tile(self, i, j):
            rows, cols = self.layout.row(i), self.layout.col(j)
            return np.outer(v[rows], v[cols])

    factor = cholesky.Factor.in_memory(Lazy(v), np.full(n, 2.0))
    B = RNG.normal(size=(n, 2))
    exact = (B - np.outer(v, v @ B) / (2.0 + v @ v)) / 2.0
    np.testing.assert_allclose(factor.solve(B), exact, atol=1e-12)
    assert factor.logdet == pytest.approx(n * np.log(2.0) + np.log1p(v @ v / 2.0), rel=1e-12)


def test_what_is_refused(gram, smooth, tmp_path):
    with pytest.raises(ValueError, match="needs noise above 0"):
        tiles.solve(smooth, np.ones(300), noise=0.0, method="cg")
    with pytest.raises(ValueError, match=r"y has shape \(3,\); expected finite numbers \(300,\)"):
        tiles.solve(smooth, np.ones(3))
    with pytest.raises(ValueError, match="is not positive definite"):
        tiles.solve(-smooth, np.ones(300), method="cholesky")
    with pytest.raises(ValueError, match="is not positive definite"):
        tiles.solve(-smooth, np.ones(300), method="disk", scratch=tmp_path)
    with pytest.raises(ValueError, match=r"shape \(300, 20\); solves need the square one"):
        tiles.solve(smooth[:, :20], np.ones(300))
    with pytest.raises(ValueError, match="scheduler= needs a kernel in a store"):
        tiles.solve(smooth, np.ones(300), method="cg", scheduler=_pool())
    with pytest.raises(ValueError, match="end the network with a readout"):
        tiles.solve(np.ones((3, 3, 2, 2)), np.ones(3))


def _pool():
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1)


def test_products_on_workers(gram, K):
    exact = np.linalg.solve(K + 0.01 * np.eye(N), Y)
    with _pool() as pool:
        found = tiles.solve(gram.nngp, Y, noise=0.01, method="cg", scheduler=pool, tolerance=1e-11)
    np.testing.assert_allclose(found.alpha, exact, rtol=1e-6, atol=1e-8 * np.abs(exact).max())


def test_log_determinant_evidence_and_predictions_on_workers(gram, K, tmp_path):
    """The same numbers as here: sums of the same tiles, in another order."""
    options = {"noise": NOISE, "rank": 20, "steps": 20}
    alpha, new = RNG.normal(size=(N, 2)), IDS[5:12]
    with _pool() as pool:
        for call in (
            lambda **o: tiles.log_determinant(gram.nngp, **options, **o),
            lambda **o: tiles.evidence(gram.nngp, Y, method="cg", **options, **o),
        ):
            here, there = call(), call(scheduler=pool)
            assert there.value == pytest.approx(here.value, rel=1e-9) and there.sem > 0
        mean = tiles.predict(NET, IDS, alpha, new, scheduler=pool, store=tmp_path / "new", tile=20)
        with pytest.raises(ValueError, match="scheduler= needs store="):
            tiles.predict(NET, IDS, alpha, new, scheduler=pool)
    np.testing.assert_allclose(mean, K[5:12] @ alpha, rtol=1e-9)
    assert tiles.status(tmp_path / "new").complete


@pytest.mark.parametrize("method", ["cholesky", "disk", "cg"])
@pytest.mark.parametrize("stored", [False, True])
def test_variances(gram, K, method, stored, tmp_path):
    new = [IDS[3], [1, 2, 3, 4, 5, 6, 7, 8], [8, 8], IDS[50], [0, 4, 4]]
    every = np.asarray(lf.gram(NET, [*IDS, *new], kinds="nngp").nngp)
    k, own = every[N:, :N], np.diagonal(every)[N:]
    exact = own - np.sum(k * np.linalg.solve(K + np.diag(NOISE), k.T).T, axis=1)
    with _pool() as pool:
        place = {"store": tmp_path / "new", "scheduler": pool} if stored else {}
        found = tiles.variance(
            NET, IDS, gram.nngp, new, noise=NOISE, batch=20, method=method, tolerance=1e-10, **place
        )
    bound = found.residual * np.square(k).sum(axis=1).max() / NOISE.min()
    np.testing.assert_allclose(found.value, exact, atol=bound + 1e-12 * own.max())
    assert found.residual <= 1e-10 and found.method == method and (found.value > 0).all()


def test_variances_are_those_of_the_posterior():
    x, new = RNG.normal(size=(30, 4)), RNG.normal(size=(7, 4))
    net = lf.Serial(lf.Dense(1.3, 0.2), lf.Relu(), lf.Dense())
    for kind, name in (("nngp", "nngp"), ("ntk", "ntkgp")):
        posterior = lf.condition(net, x, np.ones(30), noise=1e-2, kind=name)
        K = getattr(lf.gram(net, x), kind)
        found = tiles.variance(net, x, K, new, kind=kind, noise=1e-2, batch=3)
        np.testing.assert_allclose(found.value, posterior.predict(new, cov="diag").cov, rtol=1e-6)


def test_variances_of_what_is_refused(gram):
    with pytest.raises(ValueError, match=r"K has shape \(60, 60\), but x has 3 inputs"):
        tiles.variance(NET, IDS[:3], gram.nngp, IDS)
    with pytest.raises(ValueError, match="batch=0: solve for at least one"):
        tiles.variance(NET, IDS, gram.nngp, IDS, batch=0)
    drawn = lf.Serial(lf.Attention(), lf.MeanPool())
    x = np.ones((2, 2, 2))
    with pytest.raises(ValueError, match=r"keep it: variance\(..., store="):
        tiles.variance(drawn, x, np.eye(2), x)
    with pytest.raises(ValueError, match=r"keep it: predict\(..., store="):
        tiles.predict(drawn, x, np.ones(2), x)


@pytest.mark.parametrize("method", ["cholesky", "disk", "cg"])
def test_missing_tile_is_an_error(method, tmp_path):
    gram = lf.gram(NET, IDS, kinds="nngp", store=tmp_path / "K", tile=20)
    os.remove(tmp_path / "K/nngp/c/2/1")
    with pytest.raises(tiles.MissingTile, match=r"1 of 6 tiles .* the first is \(2, 1\)"):
        tiles.solve(gram.nngp, Y, method=method)
    with pytest.raises(tiles.MissingTile):
        tiles.log_determinant(gram.nngp)
    with pytest.raises(tiles.MissingTile):
        tiles.variance(NET, IDS, gram.nngp, IDS[:2], method=method)
    assert isinstance(gram.nngp, Tiled)
