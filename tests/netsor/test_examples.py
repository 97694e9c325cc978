"""Networks as programs: the same program simulated and in the limit, in standard errors."""

import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf
from limitformer import netsor

C = np.array([[1.0, 0.3], [0.3, 1.4]])


def agree(example, key, *, n=4096, runs=500, draws=5000):
    """Moments of outputs, scores and the outputs' second moments at width n and in the limit."""
    p, y = example.program, example.outputs
    v = p.moment(jnp.square, y[0])
    layers = [layer[0][0][:2] for layer in example.scores]
    scores = [s for pair in layers for s in pair]
    nodes = (y[0], y[1], v, *scores)
    limit = p.limit().sample(*nodes, key=key, draws=draws)
    sim = p.simulate(n, key=key, runs=runs, keep=nodes)
    columns = lambda values: [u[:, 0] if u.ndim == 2 else u for u in values]  # noqa: E731
    a, b = columns(limit), columns([sim[node] for node in nodes])
    statistics = [
        lambda u: u[0] ** 2,
        lambda u: u[0] * u[1],
        lambda u: u[0] ** 2 * u[1] ** 2,
        lambda u: u[2],
        lambda u: u[2] * u[0] ** 2,
    ]
    if scores:  # without them the second moment concentrates
        statistics.append(lambda u: (u[2] - a[2].mean()) ** 2)
    for i in range(3, len(nodes)):
        statistics += [lambda u, i=i: u[i] ** 2, lambda u, i=i: u[i] * u[3], lambda u, i=i: u[i]]
    for k, f in enumerate(statistics):
        x, z = f(a), f(b)
        sem = np.hypot(x.std() / np.sqrt(len(x)), z.std() / np.sqrt(len(z)))
        assert abs(x.mean() - z.mean()) < 5 * sem, k
    return p


def test_mlp():
    e = netsor.examples.mlp(C, lf.Relu(), depth=3, w_std=np.sqrt(2))
    net = lf.Serial(
        lf.Dense(np.sqrt(2)), lf.Relu(), lf.Dense(np.sqrt(2)), lf.Relu(), lf.Dense(np.sqrt(2))
    )
    tokens = np.linalg.cholesky(C) * np.sqrt(2)
    np.testing.assert_allclose(
        e.program.limit().second_moment(*e.outputs).value,
        net.kernel(tokens[None]).nngp[0, 0],
        rtol=1e-12,
    )


@pytest.mark.slow
def test_mlp_simulated(key):
    agree(netsor.examples.mlp(C, lf.Relu(), depth=3, w_std=np.sqrt(2)), key)


def test_attention(key):
    agree(netsor.examples.attention(C, heads=2, qk_std=1.3), key)


@pytest.mark.slow
def test_low_rank_attention(key):
    e = netsor.examples.low_rank_attention(C, heads=2)
    p = agree(e, key)
    assert {v.width for v in p.nodes if isinstance(v, netsor.Vector)} == {1.0, 0.5}


@pytest.mark.slow
def test_gated_attention(key):
    agree(netsor.examples.gated_attention(C, heads=1), key, draws=2000)


@pytest.mark.slow
def test_stacked_attention(key):
    agree(netsor.examples.stacked_attention(C, heads=1, qk_std=1.3), key)


@pytest.mark.parametrize(("layers", "truth", "half"), [(1, 0.827, 5e-4), (2, 0.0581, 5e-5)])
def test_rank_collapse(key, layers, truth, half):
    """Theory 0: E Var(f_1 - f_2) = .827, .0581 at depth 1, 2 (s_QK = 1.5, 2 heads)."""
    K0 = [[1.05, -0.20, 0.16, 0.21], [-0.20, 1.75, 0.60, -0.09],
          [0.16, 0.60, 1.51, -0.08], [0.21, -0.09, -0.08, 0.72]]  # fmt: skip
    e = netsor.examples.stacked_attention(K0, layers=layers, heads=2, qk_std=1.5)
    difference = e.outputs[0] - e.outputs[1]
    found = e.program.limit().second_moment(difference, key=key, draws=50_000)
    # the stated number has a standard error too: it is taken to be as large as this one
    assert abs(found.value[0, 0] - truth) < 5 * np.sqrt(2) * found.sem[0, 0] + half
