"""The theorem's conditions: the one that fails is named, with the place and the remedy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf
from limitformer import netsor


def queries_and_keys():
    p = netsor.Program()
    x, y = p.vectors(np.eye(2))
    return p, x, y, p.matrix(), p.matrix()


def test_a_sound_program_has_no_findings():
    assert netsor.check(netsor.examples.attention(np.eye(2)).program) == ()


def test_score_of_a_vector_that_no_matrix_made():
    p, x, y, Q, _ = queries_and_keys()
    p.score(Q @ x, y)
    with pytest.raises(ValueError, match=r"score 3 takes vector 1, which is not a MatMul output"):
        p.limit()


def test_score_of_one_matrix():
    p, x, _, Q, _ = queries_and_keys()
    s = p.score(Q @ x, Q @ x)
    with pytest.raises(ValueError, match=r"two vectors of matrix 0.*diverges.*another for keys"):
        p.limit()
    # it does: the simulated score grows like sqrt(n)
    key = jax.random.key(0)
    small, large = (p.simulate(n, key=key, runs=50)[s].mean() for n in (100, 900))
    assert 2.8 < large / small < 3.2


@pytest.mark.parametrize("use", ["nonlin", "matmul", "moment", "other"])
def test_matrix_of_a_score_used_elsewhere(use):
    p, x, y, Q, K = queries_and_keys()
    q = Q @ x
    p.score(q, K @ y)
    if use == "nonlin":
        p.nonlin(jnp.tanh, q)
    elif use == "matmul":
        p.matrix() @ q
    elif use == "moment":
        p.moment(jnp.square, q)
    else:
        p.nonlin(jnp.tanh, Q @ y)
    says = r"matrix 0 makes a vector of score 4 and is used elsewhere: \w+ \d takes vector \d"
    with pytest.raises(ValueError, match=says):
        p.limit()


def test_function_that_mixes_coordinates():
    p = netsor.Program()
    p.nonlin(jax.nn.softmax, p.vector())
    with pytest.raises(ValueError, match=r"Nonlin 1 mixes coordinates.*p.moment"):
        p.limit()


def test_unbounded_after_scores_warns():
    p, x, y, Q, K = queries_and_keys()
    s = p.score(Q @ x, K @ y)
    p.nonlin(lf.Relu(), x)  # before scores: fine
    assert netsor.check(p) == ()
    p.nonlin(lambda x, s: jnp.tanh(s * x), x, scores=(s,))  # bounded: fine
    p.nonlin(lambda x, s: jnp.clip(s * x, -100, 100), x, scores=(s,))
    assert netsor.check(p) == ()
    h = p.nonlin(lambda x, s: s * x, x, scores=(s,))
    with pytest.warns(netsor.ConditionWarning, match=f"Nonlin {h.index} .*unbounded.*jnp.clip"):
        p.limit()


def test_unbounded_coefficients_warn():
    with pytest.warns(netsor.ConditionWarning, match="Mix .* coefficients are unbounded"):
        netsor.examples.attention([[1.0]], heads=1, weights=lambda s: s[None]).program.limit()


def test_findings_are_collected():
    p, x, y, Q, _ = queries_and_keys()
    p.score(Q @ x, y)
    p.nonlin(jnp.tanh, Q @ x)
    found = netsor.check(p)
    assert [f.fatal for f in found] == [True, True]
    with pytest.raises(ValueError) as error:
        p.limit()
    assert all(f.text in str(error.value) for f in found)
