"""A network written and read again is the same network, to the last bit."""

import json
import math

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from tests.layers.zoo import CASES, Case, inputs

import limitformer as lf
from limitformer.files import NetworkFileError, digest, from_dict, load, loads, one_line, to_dict
from limitformer.files import to_toml as toml
from limitformer.layers.base import Leaf

WITH_FUNCTIONS = {
    "other activations",
    "linear mask fn",
    "sqrt identity per key",
    "sqrt erf mask",
    "softmax deep",
    "position decay",
    "relative linear",
    "relative identity",
    "relative softmax",
}
WRITABLE = [case for name, case in CASES.items() if name not in WITH_FUNCTIONS]


def bits(leaf):
    """A leaf's type and value; floats to the last bit."""
    return type(leaf), leaf.hex() if isinstance(leaf, float) else leaf


def assert_same(actual, desired):
    a, da = jax.tree.flatten(actual)
    b, db = jax.tree.flatten(desired)
    assert da == db
    assert [bits(leaf) for leaf in a] == [bits(leaf) for leaf in b]


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in WRITABLE])
def test_zoo(case: Case):
    assert_same(loads(toml(case.net)), case.net)
    assert_same(from_dict(json.loads(json.dumps(to_dict(case.net)))), case.net)
    assert_same(eval(one_line(case.net, code=True), {"lf": lf}), case.net)


@pytest.mark.parametrize("name", sorted(WITH_FUNCTIONS))
def test_functions_are_refused(name):
    with pytest.raises(NetworkFileError, match=r"^\d\..* is a Python function \(_\w+\), which a"):
        toml(CASES[name].net)
    assert one_line(CASES[name].net).startswith("Serial(Dense(1.3, 0.2), ")


@pytest.mark.parametrize("name", ["mixed sequence", "transformer post"])
def test_same_kernel(name, tmp_path):
    case = CASES[name]
    path = tmp_path / "net.toml"
    path.write_text(toml(case.net), encoding="utf-8")
    x, mask = inputs(case).rows([0, 2])
    a, b = (net.kernel(x, x_mask=mask, **case.options) for net in (case.net, load(path)))
    np.testing.assert_array_equal(a.nngp, b.nngp)
    np.testing.assert_array_equal(a.ntk, b.ntk)


SAMPLES = {
    "Activation": None,  # takes a function
    "RelativeBias": None,
    "AvgPool": lambda: lf.AvgPool((2, 2)),
    "Conv": lambda: lf.Conv((3, 3)),
    "Parallel": lambda: lf.Parallel(lf.Dense(), lf.Serial()),
    "Polynomial": lambda: lf.Polynomial((0.1, 2, -0.0)),
    "Repeat": lambda: lf.Repeat(lf.Dense(0.3), 2),
    "Transformer": lambda: lf.Transformer(2, pool=None),
    "VisionTransformer": lambda: lf.VisionTransformer(2, (2, 3)),
}


def public_layers():
    home = "limitformer.layers."
    things = {name: getattr(lf, name) for name in lf.__all__}
    callables = {k: v for k, v in things.items() if callable(v) and v is not lf.Layer}
    return [k for k, v in callables.items() if v.__module__.startswith(home)]


@pytest.mark.parametrize("name", public_layers())
def test_every_public_layer(name):
    make = SAMPLES.get(name, getattr(lf, name))
    if make is None:
        return
    made = make()
    if isinstance(made, lf.Layer):
        net = made
    elif isinstance(made, (lf.OneHot, lf.SquaredExponential)):
        net = lf.Position(made)
    else:
        net = lf.Attention(position=made)
    assert_same(loads(toml(net)), net)


@pytest.mark.parametrize(
    "net",
    [
        lf.Serial(),
        lf.Serial(lf.Serial()),
        lf.Serial(lf.Serial(lf.Dense()), lf.Serial()),
        lf.Repeat(lf.Serial(), 2),
        lf.Repeat(lf.Serial(lf.Serial(lf.Dense())), 2),
        lf.Residual(),
        lf.Residual(lf.Dense(), skip=-0.0, branch=5e-324),
        lf.Sum(),
        lf.Sum(weights=()),
        lf.Sum(lf.Dense(), lf.Dense(), weights=(1, -0.0)),
        lf.Dense(b_std=-0.0),
        lf.Dense(0.1 + 0.2, 1e300),
        lf.Dense(math.nextafter(1.0, 2.0)),
        lf.Erf(scale=2),
        lf.Erf(scale=1),
        lf.Elu(0.5, nodes=30),
        lf.Sin(2.0, phase=0.3),
        lf.Softplus(terms=12, nodes=100),
        lf.Activation(lf.duals.Identity()),
        lf.Activation(lf.duals.WithMean(lf.duals.LeakyRelu(0.3), terms=32)),
        lf.Attention(weights=lf.LeakyRelu(0.3), heads=4, scale="linear", tied=False),
        lf.Attention(weights=lf.Polynomial((0.0, 1.0))),
        lf.Attention(mask=np.tri(5, dtype=bool), causal=True, per_key=True),
        lf.Attention(mask=np.ones((1, 1), bool)),
        lf.Attention(position=lf.Position(lf.SquaredExponential(0.3, 2.0), 0.4, 0.6, values=True)),
        lf.Attention(position=lf.Alibi(16)),
        lf.Attention(position=lf.Rotary(8, 100)),
        lf.CrossAttention("linear", lf.Gaussian(0.2)),
        lf.ResidualAttention(lf.OneHot(), 0.1, lf.Softplus(terms=10)),
        lf.Position.concatenated(3, 4),
        lf.Transformer(3, lf.Block(placement="post", skip=0.3)).with_heads(8),
    ],
    ids=lambda net: one_line(net)[:60],
)
def test_corners(net):
    assert_same(loads(toml(net)), net)
    assert_same(from_dict(json.loads(json.dumps(to_dict(net)))), net)
    assert_same(eval(one_line(net, code=True), {"lf": lf}), net)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("place", [jnp.asarray, np.asarray, lambda v, d: np.asarray(v, d)[()]])
def test_scalar_arrays_keep_their_value(dtype, place, x64):
    value = place(1.3, jnp.dtype(dtype))
    net = lf.Serial(lf.Dense(), lf.Erf(), lf.Residual(lf.Polynomial((0.1, 0.2))))
    net = jax.tree.map(lambda _: value, net)
    again = jax.tree.leaves(loads(toml(net)))
    assert len(again) == 7
    assert [bits(leaf) for leaf in again] == [bits(float(value))] * 7
    assert digest(net) == digest(loads(toml(net)))


def test_learned_network_is_written():
    """After a gradient step every hyper-parameter is a JAX scalar."""
    net = CASES["repeat"].net
    moved = jax.tree.map(lambda v: jnp.asarray(v) - 0.1 * jnp.asarray(v), net)
    again = loads(toml(moved))
    assert jax.tree.structure(again) == jax.tree.structure(net)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(moved), strict=True):
        assert bits(a) == bits(float(b))


class Own(Leaf):
    """A layer of a user."""

    strength: float
    inner: lf.Layer
    parts: tuple[lf.Layer, ...] = ()
    mode: str = eqx.field(static=True, default="a")


class Bump(lf.duals.Gaussian):
    """An activation of a user."""


def pair(w_std: float = 1.0) -> lf.Serial:
    """A ready-made network of a user."""
    return lf.Serial(lf.Dense(w_std), lf.Dense(w_std))


def test_own_layers_need_no_rules():
    inner = lf.Serial(lf.Dense(), lf.Activation(Bump(0.3)))
    net = lf.Serial(Own(0.5, inner, (lf.Dense(2.0), lf.Relu())), lf.Dense())
    types = (Own, Bump, pair)
    assert_same(loads(toml(net, types=types), types=types), net)
    text = 'limitformer = 1\n[[layers]]\ntype = "pair"\nw_std = 2'
    assert_same(loads(text, types=types), lf.Serial(pair(2.0)))
    with pytest.raises(NetworkFileError, match=r"^0.Own: Own is not one of .* types=\(Own,\)"):
        toml(net)
    assert one_line(net) == "Serial(Own(...), Dense())"
    with pytest.raises(ValueError, match="Dense is the name of another type"):
        toml(net, types=(type("Dense", (Own,), {}),))


class Squared(Leaf):
    """A layer that does not keep its argument."""

    variance: float

    def __init__(self, std=1.0):
        self.variance = std**2


class Doubled(Leaf):
    """A layer that keeps another value under its argument's name."""

    w_std: float

    def __init__(self, w_std=1.0):
        self.w_std = 2 * w_std


def test_layers_that_hide_their_arguments_are_refused():
    with pytest.raises(NetworkFileError, match=r"^Squared: .* argument 'std' in a field of that"):
        toml(Squared(2.0), types=(Squared,))
    with pytest.raises(NetworkFileError, match=r"^Doubled: .* in its fields is another layer"):
        toml(Doubled(2.0), types=(Doubled,))


class Later:
    """A call for later: beartype draws random numbers, which strategies must not."""

    def __init__(self, make, *args, **options):
        self.make, self.args, self.options = make, args, options

    def __call__(self):
        args = [now(value) for value in self.args]
        return self.make(*args, **{k: now(v) for k, v in self.options.items()})

    def __repr__(self):
        return f"{self.make.__name__}({self.args}, {self.options})"


def now(value):
    return value() if isinstance(value, Later) else value


def later(make, *args, **options):
    return st.builds(Later, st.just(make), *args, **options)


numbers = st.floats(1e-300, 1e300) | st.integers(1, 5)
shares = st.floats(0, 1)
decays = later(lf.OneHot) | later(lf.SquaredExponential, numbers, numbers)
activations = st.one_of(
    *(later(make) for make in (lf.Relu, lf.Gelu, lf.Tanh, lf.Sign)),
    later(lf.LeakyRelu, st.floats(allow_nan=False, allow_infinity=False)),
    later(lf.Sin, numbers, numbers),
    later(lf.Polynomial, st.lists(numbers, min_size=1, max_size=12).map(tuple)),
)
weights = st.sampled_from(["softmax", "identity", "relu", "leaky_relu"]) | activations
masks = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.booleans(), min_size=n * n, max_size=n * n).map(
        lambda flat: np.asarray(flat).reshape(n, n) | np.eye(n, dtype=bool)
    )
)
positions = st.one_of(
    st.none(),
    later(lf.Position, decays, numbers, numbers, st.booleans(), st.booleans()),
    later(lf.Rotary, st.sampled_from([2, 4, 64]), numbers),
    later(lf.Alibi, st.integers(1, 9) | st.lists(shares, min_size=1).map(tuple)),
)
simple = st.one_of(
    activations,
    later(lf.Dense, numbers, numbers),
    later(lf.Dense, numbers, parametrisation=st.just("standard"), width=st.integers(1, 99)),
    later(lf.Conv, st.sampled_from([(3,), (2, 3)]), stride=st.sampled_from([1, 2])),
    later(lf.LayerNorm, st.sampled_from(["channels", "all"]), shares),
    later(
        lf.Attention,
        st.just("linear"),
        weights,
        heads=st.just(lf.inf) | st.integers(1, 20),
        qk_std=numbers,
        position=positions,
        causal=st.booleans(),
        mask=st.none() | masks,
        tied=st.none() | st.booleans(),
    ),
    later(lf.ResidualAttention, decays, shares, weights, numbers),
)


def composite(layer):
    many = st.lists(layer, min_size=1, max_size=3)
    return st.one_of(
        st.lists(layer, max_size=3).map(lambda layers: Later(lf.Serial, *layers)),
        many.map(lambda layers: Later(lf.Parallel, *layers)),
        many.map(lambda layers: Later(lf.Sum, *layers, weights=(0.5,) * len(layers))),
        st.tuples(many, numbers, numbers).map(
            lambda given: Later(lf.Residual, *given[0], skip=given[1], branch=given[2])
        ),
        later(lf.Repeat, layer, st.integers(1, 1000)),
    )


networks = st.recursive(simple, composite, max_leaves=12)


@given(networks)
def test_random_networks(made):
    net = made()
    text = toml(net)
    assert_same(loads(text), net)
    assert toml(loads(text)) == text
    assert digest(loads(text)) == digest(net)
    assert_same(eval(one_line(net, code=True), {"lf": lf}), net)
