"""A whole network in one GPU program, interpreted, against the layers one by one."""

import contextlib
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.zoo import CASES, inputs

import limitformer as lf
from limitformer.kernel import fused, programs, whole
from limitformer.kernel.inputs import streams_of
from limitformer.kernel.network import Network, cast, needs_of
from limitformer.kernel.own_mask import OwnMask
from limitformer.kernel.state import Form

rng = np.random.default_rng(5)


def blocks(n, **attention):
    block = lf.Serial(
        lf.Residual(lf.LayerNorm(), lf.Attention(**attention)),
        lf.Residual(lf.LayerNorm(), lf.Dense(1.3, 0.2), lf.Relu(), lf.Dense()),
    )
    return lf.Serial(lf.Dense(b_std=0.3), lf.Repeat(block, n), lf.MeanPool(), lf.Dense(0.7, 0.1))


NETWORKS = {
    "identity, sqrt": blocks(2, scale="sqrt", weights="identity", qk_std=0.1),
    "softmax, linear": blocks(3, scale="linear"),
    "no records": lf.Serial(
        lf.Dense(b_std=0.2), lf.Repeat(lf.Dense(1.1, 0.1), 5), lf.MeanPool(), lf.Dense()
    ),
    "repeats in repeats": lf.Serial(
        lf.Dense(),
        lf.Repeat(lf.Serial(lf.Repeat(lf.Serial(lf.Dense(1.2, 0.3), lf.Relu()), 3), lf.Dense()), 4),
        lf.MeanPool(),
        lf.Dense(),
    ),
    "gelu": lf.Serial(lf.Dense(b_std=0.2), lf.Gelu(), lf.Dense(b_std=0.4), lf.MeanPool()),
    "two terms": lf.Serial(
        lf.Dense(), lf.Erf(), lf.Residual(lf.Attention(scale="linear")), lf.MeanPool(), lf.Dense()
    ),
}


def prepared(net, ntk=True, sizes=(16, 32), masked=True, dtype=np.float64, features=18):
    """What `whole` takes of two inputs on one side and three on the other."""
    dtype = np.dtype(dtype)
    net = cast(net, dtype)
    network = Network(net, *needs_of(net), ntk)
    streams, records = [], []
    for n, S in zip((2, 3), sizes, strict=True):
        mask = np.arange(S) < rng.integers(S // 2, S + 1, size=(n, 1)) if masked else None
        side = streams_of(
            net, rng.normal(size=(n, S, features)).astype(dtype), mask, "x", dtype=dtype
        )
        streams.append(side)
        records.append(network.marginal(side, jnp.arange(n), None, 0)[0])
    return network, streams, records


@pytest.mark.parametrize(
    ("name", "ntk", "masked"),
    [
        ("identity, sqrt", True, True),
        ("softmax, linear", True, False),
        ("no records", True, False),
        pytest.param("repeats in repeats", True, True, marks=pytest.mark.slow),
        pytest.param("gelu", False, True, marks=pytest.mark.slow),
        pytest.param("two terms", True, True, marks=pytest.mark.slow),
    ],
)
def test_a_program_is_the_cross_pass(name, ntk, masked):
    with jax.enable_x64(True):
        network, streams, records = prepared(NETWORKS[name], ntk, masked=masked)
        assert whole.possible(network, *streams, *records)
        found = whole.cross(network, *streams, *records, interpret=True)
        expected = network.cross(*streams, *records)
    assert (found[1] is None) == (expected[1] is None) == (not ntk)
    for a, b in zip(found[: 1 + ntk], expected, strict=False):
        assert a.shape == (2, 3, 1, 1)
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(("features", "inside"), [(1, True), (32, True), (33, False)])
def test_few_features_are_multiplied_in_the_program(features, inside):
    with jax.enable_x64(True):
        network, streams, records = prepared(NETWORKS["no records"], features=features)
        assert (len(whole._first(*(s.x for (s,) in streams))) == 2) == inside
        assert whole.possible(network, *streams, *records)
        found = whole.cross(network, *streams, *records, interpret=True)
        expected = network.cross(*streams, *records)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "tokens", "warps"),
    [("softmax, linear", 32, 4), ("identity, sqrt", 32, 2), ("identity, sqrt", 64, 4)],
)
def test_products_get_more_warps(name, tokens, warps):
    net = NETWORKS[name]
    assert whole._warps(Network(net, *needs_of(net), True), tokens, tokens) == warps


def test_a_gpu_uses_it_where_it_was_measured(monkeypatch):
    calls = []

    def call(*arguments):
        calls.append(arguments)
        return cross(*arguments, interpret=True)

    cross = whole.cross
    with jax.enable_x64(True):
        network, streams, records = prepared(NETWORKS["identity, sqrt"])
        plain = network.cross(*streams, *records)
        monkeypatch.setattr(whole, "cross", call)
        monkeypatch.setattr(fused, "available", lambda: True)
        monkeypatch.setattr(fused, "TYPES", (jnp.float64,))
        monkeypatch.setattr(whole, "TOKENS", (16, 32))
        found = network.cross(*streams, *records)
        assert len(calls) == 1
        np.testing.assert_allclose(found[1], plain[1], rtol=1e-12)
        monkeypatch.setattr(whole, "TOKENS", (16,))
        network.cross(*streams, *records)
        assert len(calls) == 1


@pytest.mark.parametrize("possible", [True, False], ids=["program", "layers"])
def test_masks_that_layers_keep_are_loaded_once(monkeypatch, possible):
    net = NETWORKS["identity, sqrt"]
    if not possible:
        net = lf.Serial(net.layers[0], lf.Conv((3,)), *net.layers[1:])
    x = rng.normal(size=(3, 16, 5)).astype(np.float32)
    mask = np.arange(16) < np.array([[16], [9], [12]])
    plain = net.kernel(x, x_mask=mask)
    seen = []

    def cross(network, sx, sy, rx, ry):
        seen.append(jax.tree.leaves((rx, ry), is_leaf=lambda a: isinstance(a, OwnMask)))
        return program(network, sx, sy, rx, ry, interpret=True)

    program = whole.cross
    monkeypatch.setattr(whole, "cross", cross)
    monkeypatch.setattr(fused, "available", lambda: True)
    jax.clear_caches()
    found = net.kernel(x, x_mask=mask)
    jax.clear_caches()
    for kind in ("nngp", "ntk"):
        np.testing.assert_allclose(getattr(found, kind), getattr(plain, kind), rtol=2e-6)
    assert bool(seen) == possible
    for records in seen:
        kinds = {type(a) for a in records}
        assert OwnMask in kinds
        assert not any(a.dtype == bool for a in records if not isinstance(a, OwnMask))


def test_a_program_that_does_not_compile_is_left_to_xla(monkeypatch):
    net = lf.Serial(lf.Dense(), lf.Relu(), lf.MeanPool(), lf.Dense())
    x = rng.normal(size=(3, 16, 5)).astype(np.float32)
    plain = net.kernel(x)

    def cross(*_):
        calls.append(1)
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no registers\nand more")

    calls: list = []
    monkeypatch.setattr(whole, "cross", cross)
    monkeypatch.setattr(whole, "_WORKS", {})
    monkeypatch.setattr(fused, "available", lambda: True)
    jax.clear_caches()
    with pytest.warns(UserWarning, match=r"\(Serial\) failed: 'RESOURCE_EXHAUSTED: no registers'"):
        found = net.kernel(x)
    net.kernel(x[:2])
    assert len(calls) == 1
    # now the layers fail, and not the program
    monkeypatch.setattr("limitformer.kernel.blocks._tiles", cross)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no registers"):
        net.kernel(x)
    jax.clear_caches()
    assert len(calls) == 2
    np.testing.assert_array_equal(found.ntk, plain.ntk)


def test_images_that_a_program_cannot_take_stay_with_the_layers(monkeypatch):
    net = lf.Serial(lf.Conv((3, 3)), lf.Relu(), lf.Conv((3, 3)), lf.Relu(), lf.MeanPool())
    x = rng.normal(size=(2, 4, 4, 3)).astype(np.float32)
    plain = net.kernel(x)
    monkeypatch.setattr(fused, "available", lambda: True)
    monkeypatch.setattr(fused, "_SIDES", range(2, 65))
    for name in ("convolved", "from_features"):
        program = functools.partial(getattr(programs, name), interpret=True)
        monkeypatch.setattr(programs, name, program)
    jax.clear_caches()
    found = net.kernel(x)
    jax.clear_caches()
    np.testing.assert_allclose(found.ntk, plain.ntk, rtol=1e-5)


@pytest.mark.parametrize(
    "net",
    [
        lf.Serial(lf.Conv((3,)), lf.Relu(), lf.Conv((3,)), lf.MeanPool()),
        lf.Serial(lf.Dense(), lf.Attention(scale="sqrt", weights="relu"), lf.MeanPool()),
    ],
    ids=["windows", "sums of three tokens"],
)
def test_what_a_program_cannot_do(net):
    with jax.enable_x64(True):
        network, streams, records = prepared(net, masked=False)
        assert not whole.possible(network, *streams, *records)


@pytest.mark.parametrize("sizes", [(12, 16), (8, 16)], ids=["no power of two", "small products"])
def test_token_numbers_that_a_program_cannot_take(sizes):
    with jax.enable_x64(True):
        network, streams, records = prepared(NETWORKS["softmax, linear"], sizes=sizes)
        assert not whole.possible(network, *streams, *records)


def test_token_kernels_stay_with_the_layers():
    with jax.enable_x64(True):
        network, streams, records = prepared(lf.Serial(lf.Dense(), lf.Relu(), lf.Dense()))
        assert not whole.possible(network, *streams, *records)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.input != "two"])
def test_the_zoo(name):
    """No layer of ours minds kernels without leading axes."""
    case = CASES[name]
    x, mask = inputs(case).rows(slice(None))
    with jax.enable_x64(True):
        net = cast(case.net, np.dtype(float))
        streams = streams_of(net, x, mask, "x", dtype=np.dtype(float))
        network = Network(net, *needs_of(net), True)
        draws = 32 if case.random else 0
        if network.look(streams, draws).pairs or network.need.cross != Form.FULL:
            pytest.skip("not computed by tiles of token kernels")
        index = jnp.arange(streams[0].n)
        records = network.marginal(streams, index, jax.random.key(0), draws)[0]
        arrays, static, *given = whole._arguments(network, streams, streams, records, records)
        with contextlib.suppress(whole.NoReadout):
            jax.make_jaxpr(functools.partial(whole._called, static, interpret=False))(
                arrays, *given
            )
        if whole.possible(network, streams, streams, records, records):
            found = whole.cross(network, streams, streams, records, records, interpret=True)
            expected = network.cross(streams, streams, records, records)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.slow
def test_derivatives_are_those_of_the_layers():
    with jax.enable_x64(True):
        network, streams, records = prepared(NETWORKS["identity, sqrt"])
        by_program = functools.partial(whole.cross, interpret=True)

        def total(scale, how):
            rx = jax.tree.map(lambda a: scale * a if eqx.is_inexact_array(a) else a, records[0])
            if how is None:
                return sum(m.sum() for m in network.cross(*streams, rx, records[1]))
            return sum(m.sum() for m in how(network, *streams, rx, records[1]))

        a, b = (jax.grad(total)(jnp.asarray(1.1), how) for how in (by_program, None))
    np.testing.assert_allclose(a, b, rtol=1e-12)


QUICK = ("identity, sqrt", "softmax, linear")


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NETWORKS],
)
def test_a_gpu_can_compile_it(name, gpu_text):
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        network, streams, records = prepared(NETWORKS[name], dtype=np.float32)
        arrays, static = eqx.partition((network, *records), eqx.is_array)

        def run(arrays):
            network, rx, ry = eqx.combine(arrays, static)
            return whole.cross(network, *streams, rx, ry)

        assert gpu_text(run, arrays).count("xla.gpu.triton") == 1
