"""Bounds on random networks: they hold where their hypothesis does, and say when they are empty."""

import math

import numpy as np
import pytest

from limitformer.depth.bounds import LARGEST_RANGE, dobrushin_bound, dong, measured
from limitformer.depth.metrics import norm_1inf
from limitformer.depth.split import split


def network(seed, layers=3, heads=1, n=5, d=6, size=0.02, qk=1.0):
    rng = np.random.default_rng(seed)
    X = size * rng.normal(size=(n, d)) + rng.normal(size=d)
    A, B = rng.normal(size=(2, layers, heads, d, d)) / math.sqrt(d)
    return X, qk * A, B / math.sqrt(heads)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_on_small_residuals(seed, heads):
    X, A, B = network(seed, heads=heads)
    theirs, ours = dong(X, A, B), measured(X, A, B)
    assert not theirs.violated.any() and not ours.violated.any()
    assert (ours.log_actual <= ours.log).all()
    assert (ours.log <= theirs.log + 1e-9).all()  # the measured numbers are never worse
    assert ours.informative.all()
    np.testing.assert_allclose(theirs.log_actual, split(X, A, B).log_distance()[1:])


def test_one_layer_against_the_printed_formula():
    X, A, B = network(0, layers=1)
    Q, V, d = A[0, 0], B[0, 0], 6
    R = X - X.mean(0)
    scores = X @ Q @ X.T / math.sqrt(d)
    E = R @ Q @ R.T / math.sqrt(d)
    D = E.max(1) - E.min(1)
    row = X.mean(0) @ Q @ R.T / math.sqrt(d)
    r = np.exp(row) / np.exp(row).sum()
    gamma = math.sqrt(D.sum() * r.max() / D.max())
    size = norm_1inf(R) ** 3
    wanted = 4 * gamma / math.sqrt(d) * np.abs(Q).sum(0).max() * norm_1inf(V) * size
    assert math.exp(dong(X, A, B).log[0]) == pytest.approx(wanted, rel=1e-10)
    P = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    left = norm_1inf(P @ X @ V - (X.mean(0) + r @ R) @ V)
    assert math.exp(dong(X, A, B).log_actual[0]) == pytest.approx(left, rel=1e-6)
    assert left <= wanted


def test_layers_and_lipschitz_constants():
    X, A, B = network(1, layers=4)
    same = [np.repeat(M[:1], 4, axis=0) for M in (A, B)]
    log, start = dong(X, *same).log, split(X, *same).log_distance()[0]
    c = log[0] - 3 * start
    slack = dong(X, *same).log - [(3**l - 1) / 2 * c + 3**l * start for l in (1, 2, 3, 4)]
    assert (slack >= -1e-9).all()  # gamma may grow from layer to layer, beta does not
    double = dong(X, A, B, lipschitz=2.0).log - dong(X, A, B).log
    np.testing.assert_allclose(double, [(3**l - 1) / 2 * math.log(2) for l in (1, 2, 3, 4)])


def test_flags():
    X, A, B = network(0, size=1.0, qk=4.0)
    theirs = dong(X, A, B)
    assert theirs.violated.all() and theirs.vacuous.all()
    assert not theirs.informative.any()
    assert "hypothesis violated, vacuous" in str(theirs)
    # the largest range decides, layer by layer: later layers inherit a violation
    assert np.exp(split(X, A, B).D[0].max()) > LARGEST_RANGE
    one = dong(*network(0, size=0.3, qk=1.0))
    assert not one.violated.any() and one.vacuous.any()


@pytest.mark.parametrize("seed", range(4))
def test_dobrushin(seed):
    rng = np.random.default_rng(seed)
    G, W = 2 * rng.normal(size=(4, 2, 5, 5)), rng.normal(size=(4, 2, 3, 3))
    A, X = np.exp(G) / np.exp(G).sum(-1, keepdims=True), rng.normal(size=(5, 3))
    bound = dobrushin_bound(A, W, X)
    assert (bound.log_actual <= bound.log).all() and bound.informative.all()
    x = np.einsum("hij,jc,hcd->id", A[0], X, W[0])
    wide = max(np.linalg.norm(a - b) for a in x for b in x)
    assert bound.log_actual[0] == pytest.approx(math.log(wide))
    apart = dobrushin_bound(np.broadcast_to(np.eye(5), A.shape), W, X)
    assert apart.vacuous.all() and not apart.violated.any()
    assert np.isnan(dobrushin_bound(A, W).log_actual).all()
    with pytest.raises(ValueError, match=r"A must be \(layers, heads, n, n\)"):
        dobrushin_bound(A[0], W)
