"""Settings, networks, TOML and Python say the same."""

import itertools

import numpy as np
import pytest

import limitformer as lf
from limitformer.explore import network
from limitformer.explore.settings import CONTROLS, Settings

POINTS = [
    Settings(),
    *(Settings(input=i, positions=p) for i, p in itertools.product(
        CONTROLS["input"].kind.names, CONTROLS["positions"].kind.names)),
    *(Settings(norm=n, activation=a) for n, a in itertools.product(
        CONTROLS["norm"].kind.names, CONTROLS["activation"].kind.names)),
    Settings(heads="inf", positions="alibi", causal="yes", scale="linear", skip=0.0, w_std=1.35),
]  # fmt: skip


@pytest.mark.parametrize("s", POINTS, ids=lambda s: s.query or "default")
def test_toml_and_python_are_the_network(s):
    net = network.network(s)
    assert lf.files.loads(network.toml(s)).to_toml() == net.to_toml()
    scope: dict = {}
    exec(network.python(s).split("key =")[0], scope)
    assert scope["net"].to_toml() == net.to_toml()
    np.testing.assert_array_equal(scope["x"], network.inputs(s))
    back = network.settings_of(net)
    assert network.network(back).to_toml() == net.to_toml()


def test_inputs_have_their_kernel():
    for kind in CONTROLS["input"].kind.names:
        s = Settings(input=kind, tokens=5, correlation=0.95)
        x = network.inputs(s)[0]
        np.testing.assert_allclose(x @ x.T / 5, network.input_kernel(s), atol=1e-14)
    assert network.input_kernel(Settings(input="groups", tokens=4))[0].tolist() == [1, 0.5, 0, 0]


@pytest.mark.parametrize(
    "net",
    [
        lf.Serial(lf.Dense(), lf.MeanPool()),
        lf.Serial(lf.Dense(), lf.Repeat(lf.Block(), 99), lf.Dense()),
        lf.Serial(lf.Dense(2.0), lf.Repeat(lf.Block(), 3), lf.Dense()),
        lf.Serial(lf.Dense(), lf.Repeat(lf.Block(lf.Attention(ov_std=2.0)), 3), lf.Dense()),
    ],
    ids=["no blocks", "too deep", "another embedding", "another std"],
)
def test_a_network_off_the_sliders_is_refused(net):
    with pytest.raises(ValueError, match=r"not one that the sliders reach; expected lf\.Serial"):
        network.settings_of(net)
