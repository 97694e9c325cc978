"""Convolution and activation in one pass: the Pallas program, interpreted, against the layers."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limitformer as lf
from limitformer.duals.rectifiers import Abs, Relu
from limitformer.kernel import fused, programs
from limitformer.kernel.state import Cross
from limitformer.layers.window import Window

rng = np.random.default_rng(3)


@pytest.fixture
def interpreted(monkeypatch):
    """A GPU as far as the passes can tell; every call of the program is counted."""
    calls = []

    def counted(name):
        program = getattr(programs, name)

        def call(*arguments):
            calls.append(name)
            return program(*arguments, interpret=True)

        monkeypatch.setattr(programs, name, call)

    counted("convolved")
    counted("from_features")
    monkeypatch.setattr(fused, "available", lambda: True)
    monkeypatch.setattr(fused, "AXES", True)
    monkeypatch.setattr(fused, "_SIDES", range(2, 65))
    monkeypatch.setattr(fused, "TYPES", (jnp.float32, jnp.float64))
    return calls


def naive(K, T, vx, vy, grids, window, w2, b2, dual):
    """Sums in plain loops, then the dual entry by entry."""
    (H1, W1), (H2, W2) = grids
    low = [(k - 1) // 2 for k in window]
    sums = [np.zeros_like(K), np.zeros_like(T)]
    for out, given in zip(sums, (K, T), strict=True):
        for a in np.ndindex(H1, W1):
            for b in np.ndindex(H2, W2):
                for f in np.ndindex(*window):
                    p, q = (tuple(np.add(c, np.subtract(f, low))) for c in (a, b))
                    inside = all(
                        0 <= u < n for u, n in zip((*p, *q), (H1, W1, H2, W2), strict=True)
                    )
                    if inside:
                        at = np.ravel_multi_index(p, (H1, W1)), np.ravel_multi_index(q, (H2, W2))
                        to = np.ravel_multi_index(a, (H1, W1)), np.ravel_multi_index(b, (H2, W2))
                        out[..., *to] += given[..., *at]
    linear = w2 * sums[0] + b2
    rows, cols = (dual.prepare(jnp.asarray(v)) for v in (vx[..., :, None], vy[..., None, :]))
    value, slope = dual.mix(linear, rows, cols, True)
    return value, (linear + w2 * sums[1]) * slope


@pytest.mark.parametrize(
    ("dual", "grids", "window"),
    [(Relu(), ((2, 3), (3, 4)), (2, 3)), (Abs(), ((3, 3), (3, 3)), (3, 3))],
)
def test_convolution_against_plain_loops(dual, grids, window):
    with jax.enable_x64(True):
        S1, S2 = (h * w for h, w in grids)
        K, T = rng.normal(size=(2, 2, 1, S1, S2))
        vx, vy = rng.uniform(3, 5, size=(2, 1, S1)), rng.uniform(3, 5, size=(1, 1, S2))
        w2, b2 = jnp.asarray(0.2), jnp.asarray(0.3)
        how = (dual, Window.of(window, 1, "same"), *grids)
        px, py = dual.prepare(jnp.asarray(vx)), dual.prepare(jnp.asarray(vy))
        found = programs.convolved(how, K, T, px, py, w2, b2, interpret=True)
        expected = naive(K, T, vx, vy, grids, window, 0.2, 0.3, dual)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        alone, none = programs.convolved(how, K, None, px, py, w2, b2, interpret=True)
        assert none is None
        np.testing.assert_allclose(alone, expected[0], rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
@pytest.mark.parametrize("reads", ["everything", "by weights", "along an axis"])
def test_a_gpu_can_compile_it(reads, gpu_text):
    H = W = 24
    shapes = [(2, 3, H * W, H * W)] * 2 + [(2, 1, H * W), (1, 3, H * W)]
    K, T, vx, vy = (jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes)
    given = {"everything": {}, "by weights": {"u": (1, H * W)}, "along an axis": {"axis": (W, W)}}
    weights = {
        name: tuple(jax.ShapeDtypeStruct((*n, *shape), np.float32) for n in ((2, 1), (1, 3)))
        for name, shape in given[reads].items()
    }

    def run(K, T, vx, vy, weights):
        how = (Relu(), Window.of((3, 3), 1, "same"), (H, W), (H, W))
        px, py = Relu().prepare(vx), Relu().prepare(vy)
        return programs.convolved(how, K, T, px, py, jnp.ones(()), jnp.ones(()), **weights)

    assert gpu_text(run, K, T, vx, vy, weights).count("xla.gpu.triton") == 1


@pytest.mark.parametrize("lead", [(2, 3), (2,)])
def test_features_against_products(lead):
    with jax.enable_x64(True):
        shapes = ((2, 1), (1, 3)) if len(lead) == 2 else (lead, lead)
        Fx, Fy = (
            jnp.asarray(rng.normal(size=(*n, s, 3))) for n, s in zip(shapes, (5, 70), strict=True)
        )
        dual, b2 = Relu(), jnp.asarray(0.3)
        px, py = (dual.prepare(jnp.sum(F * F, -1) + b2) for F in (Fx, Fy))
        found = programs.from_features((dual, True, lead), Fx, Fy, px, py, b2, interpret=True)
        K = jnp.matmul(Fx, jnp.swapaxes(Fy, -1, -2)) + b2
        rows = dual.prepare((jnp.sum(Fx * Fx, -1) + b2)[..., :, None])
        cols = dual.prepare((jnp.sum(Fy * Fy, -1) + b2)[..., None, :])
        value, slope = dual.mix(K, rows, cols, True)
        np.testing.assert_allclose(found[0], value, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[1], K * slope, rtol=1e-12, atol=1e-12)


def net(turns=2, **options):
    conv = functools.partial(lf.Conv, (3, 3), 1.3, 0.4, **options)
    rest = lf.Repeat(lf.Serial(conv(), lf.Relu()), turns)
    return lf.Serial(conv(), lf.Relu(), rest, lf.MeanPool())


@pytest.mark.parametrize(
    "turns", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 5]
)
def test_networks_take_it_and_agree(interpreted, monkeypatch, turns):
    x, y = rng.normal(size=(3, 4, 3, 2)), rng.normal(size=(2, 4, 3, 2))
    read = []
    monkeypatch.setattr(fused.Pool, "gathered", _counted(fused.Pool.gathered, read))
    found = net(turns).kernel(x, y)
    assert set(interpreted) == {"convolved", "from_features"}
    assert len(read) == 1  # by the program of the last turn
    monkeypatch.setattr(fused, "available", lambda: False)
    jax.clear_caches()
    expected = net(turns).kernel(x, y)
    for kind in ("nngp", "ntk"):
        np.testing.assert_allclose(getattr(found, kind), getattr(expected, kind), rtol=1e-12)


def read(*middle):
    """Two convolutions, then a readout of the token kernel."""
    conv = functools.partial(lf.Conv, (3, 3), 1.3, 0.4)
    return lf.Serial(conv(), lf.Relu(), conv(), lf.Abs(), *middle, lf.MeanPool(), lf.Dense())


@pytest.mark.parametrize(
    "middle", [(lf.Attention(scale="linear"),), (lf.ResidualAttention(alpha=0.3), lf.Dense())]
)
def test_readouts_are_read_without_writing_the_kernel(interpreted, monkeypatch, middle):
    written = []
    monkeypatch.setattr(fused, "Cross", lambda *k: written.append(k) or Cross(*k))
    x, y = rng.normal(size=(3, 3, 4, 2)), rng.normal(size=(2, 3, 4, 2))
    found = read(*middle).kernel(x, y)
    assert interpreted == ["from_features", "convolved"]
    assert len(written) == 1  # of the first activation
    monkeypatch.setattr(fused, "available", lambda: False)
    jax.clear_caches()
    expected = read(*middle).kernel(x, y)
    for kind in ("nngp", "ntk"):
        np.testing.assert_allclose(getattr(found, kind), getattr(expected, kind), rtol=1e-12)


def positions(turns=None):
    """Convolutions, then the token diagonal after attention to positions."""
    attention = lf.ResidualAttention(lf.SquaredExponential(5.0, 0.5), 0.65)
    ends = attention, lf.LayerNorm(), lf.Flatten(), lf.Dense()
    block = lf.Serial(lf.Conv((3, 3), 1.3, 0.4), lf.Relu())
    return (
        lf.Serial(*block.layers, *block.layers, *ends)
        if turns is None
        else lf.Serial(lf.Repeat(block, turns), *ends)
    )


@pytest.mark.parametrize(("kinds", "turns"), [("nngp", None), (("nngp", "ntk"), 4)])
def test_attention_to_positions_is_read_axis_by_axis(interpreted, monkeypatch, kinds, turns):
    x, y = rng.normal(size=(3, 4, 3, 2)), rng.normal(size=(2, 4, 3, 2))
    written = []
    monkeypatch.setattr(fused.Diagonal, "gathered", _counted(fused.Diagonal.gathered, written))
    found = positions(turns).kernel(x, y, kinds=kinds)
    assert "convolved" in interpreted
    assert len(written) == 1  # the program of the last turn has read for it
    monkeypatch.setattr(fused, "available", lambda: False)
    jax.clear_caches()
    expected = positions(turns).kernel(x, y, kinds=kinds)
    for kind in (kinds,) if isinstance(kinds, str) else kinds:
        np.testing.assert_allclose(getattr(found, kind), getattr(expected, kind), rtol=1e-12)


def _counted(function, calls):
    def call(*arguments):
        calls.append(1)
        return function(*arguments)

    return call


def test_without_the_compiler_of_programs_a_gpu_has_the_layers(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert fused.available()
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)
    monkeypatch.delattr("jax.experimental.pallas.triton", raising=False)
    assert not fused.available()


@pytest.mark.slow
@pytest.mark.parametrize("network", [net(1), read(), positions()])
def test_derivatives(interpreted, monkeypatch, network):
    x = rng.normal(size=(2, 3, 3, 1)).astype(np.float32)
    total = jax.grad(lambda n: n.kernel(x, kinds="nngp").nngp.sum())
    found = total(network)
    monkeypatch.setattr(fused, "available", lambda: False)
    jax.clear_caches()
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(total(network)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4)


@pytest.mark.parametrize(
    "change",
    [{"stride": 2}, {"padding": "circular"}, {"parametrisation": "standard", "width": 64}],
)
def test_other_convolutions_do_not(interpreted, change):
    net(**change).kernel(rng.normal(size=(2, 4, 4, 1)))
    assert not interpreted


def test_masks_do_not(interpreted):
    mask = np.ones((2, 3, 3), bool)
    mask[0, 2] = False
    net().kernel(rng.normal(size=(2, 3, 3, 1)), x_mask=mask)
    assert not interpreted
