"""The language: what is built, and what is refused when it is written."""

import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf
from limitformer import netsor


@pytest.fixture
def p():
    return netsor.Program()


def test_repr_counts(p):
    x, y = p.vectors(np.eye(2))
    W = p.matrix()
    p.moment(lambda h: h, W @ x)
    p.score(p.matrix() @ x, p.matrix() @ y)
    assert repr(p) == "Program(5 vectors, 3 matrices, 1 scores, 1 moments)"


def test_sums_are_mixes(p):
    x, y = p.vectors([[1.0, 0.5], [0.5, 2.0]])
    lim = p.limit()
    found = lim.second_moment(x + y, x - y, 2 * x, x * 2.0)
    np.testing.assert_allclose(
        found.value, [[4, -1, 3, 3], [-1, 2, 1, 1], [3, 1, 4, 4], [3, 1, 4, 4]], atol=1e-14
    )
    assert not found.sem.any()


@pytest.mark.parametrize(
    ("C", "says"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], "eigenvalue -1; it must be positive semidefinite"),
        ([[1.0, 0.1], [0.2, 1.0]], "must be finite and symmetric"),
        ([[1.0, np.nan], [np.nan, 1.0]], "must be finite and symmetric"),
        ([1.0, 2.0], r"square matrix, one row per vector, got shape \(2,\)"),
    ],
)
def test_covariances(p, C, says):
    with pytest.raises(ValueError, match=says):
        p.vectors(C)


def test_widths(p):
    x = p.vector()
    narrow = p.matrix(rows=0.25) @ x
    assert narrow.width == 0.25
    with pytest.raises(ValueError, match=r"widths \[0.25, 1.0\].*p.matrix\(rows=, columns=\)"):
        narrow + x
    with pytest.raises(ValueError, match=r"vector 1 has width 0.25 n; make it with p.matrix"):
        p.matrix() @ narrow
    with pytest.raises(ValueError, match=r"rows=0.*positive multiple of n"):
        p.matrix(rows=0.0)
    with pytest.raises(ValueError, match="std=inf; it must be finite"):
        p.matrix(std=np.inf)


def test_another_program(p):
    x, other = p.vector(), netsor.Program().vector()
    with pytest.raises(ValueError, match="Initial 0 belongs to another program"):
        x + other
    with pytest.raises(ValueError, match="belongs to another program"):
        p.matrix() @ other


def test_transpose(p):
    with pytest.raises(NotImplementedError, match=r"transpose of matrix 0.*Use a fresh p"):
        _ = p.matrix().T


def test_functions(p):
    x = p.vector()
    s = p.score(p.matrix() @ x, p.matrix() @ x)
    with pytest.raises(ValueError, match=r"each coordinate alone.*returned shape \(2,\)"):
        p.nonlin(lambda x: x[:2], x)
    with pytest.raises(TypeError, match="scores= takes scores and moments, got Initial"):
        p.nonlin(lambda x, y: x, x, scores=(x,))
    with pytest.raises(ValueError, match="Relu is a function of one vector, got 2 vectors"):
        p.nonlin(lf.Relu(), x, x)
    with pytest.raises(ValueError, match=r"one number per vector, shape \(1,\), got \(2,\)"):
        p.mix((1.0, 2.0), x)
    with pytest.raises(ValueError, match="must be a function of them"):
        p.mix((1.0,), x, scores=(s,))
    with pytest.raises(ValueError, match="at least one vector"):
        p.moment(jnp.sum)
