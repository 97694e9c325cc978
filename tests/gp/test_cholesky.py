"""Factors by panels, and systems solved with them."""

import numpy as np
import pytest
import scipy.linalg

from limitformer.gp import cholesky, solve

rng = np.random.default_rng(5)


@pytest.fixture
def panels(monkeypatch):
    """Everything above 8 rows is large, in panels of 5 columns."""
    monkeypatch.setattr(cholesky, "LARGEST", 8)
    monkeypatch.setattr(solve, "LARGEST", 8)
    monkeypatch.setattr(cholesky, "_WIDTH", 5)


def definite(n):
    A = rng.normal(size=(n, n + 3))
    return np.asfortranarray(A @ A.T)


@pytest.mark.parametrize("n", [8, 9, 10, 23])
def test_panels_are_the_factor(panels, n):
    M = definite(n)
    expected = np.linalg.cholesky(M)
    np.testing.assert_allclose(np.tril(cholesky.cholesky(M.copy(order="F"))), expected, rtol=1e-12)


def test_solves_and_inverse(panels):
    M, noise, b = definite(23), np.full(23, 0.1), rng.normal(size=(23, 2))
    factor = solve.Factor(M, noise)
    dense = M + 0.1 * np.eye(23)
    np.testing.assert_allclose(factor.solve(b), np.linalg.solve(dense, b), rtol=1e-9)
    np.testing.assert_allclose(factor.inverse, np.linalg.inv(dense), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(factor.logdet, np.linalg.slogdet(dense)[1], rtol=1e-12)


def test_not_definite(panels):
    M = definite(23)
    M[17, 17] = -1.0
    with pytest.raises(scipy.linalg.LinAlgError, match="from column 15 on"):
        cholesky.cholesky(M)


@pytest.mark.slow
def test_as_many_rows_as_end_the_process_in_lapack():
    n = 17_000
    M = np.zeros((n, n), order="F")
    M[np.diag_indices(n)] = np.linspace(1.0, 2.0, n)
    u = rng.normal(size=n)
    M += np.outer(u, u)
    b = np.ones(n)
    factor = solve.Factor(M, np.zeros(n))
    assert np.linalg.norm(M @ factor.solve(b) - b) < 1e-9 * np.linalg.norm(b)
