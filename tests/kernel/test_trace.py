"""Kernels after every layer: repeats, whose turns are scanned, against the layers written out."""

import numpy as np

import limitformer as lf

X = np.random.default_rng(0).normal(size=(2, 3, 5))


def test_turns_of_nested_repeats():
    inner = lf.Serial(lf.Relu(), lf.Dense(1.2, 0.1))
    attention = lf.Attention(scale="linear")
    repeated = lf.Serial(lf.Dense(), lf.Repeat(lf.Serial(lf.Repeat(inner, 3), attention), 4))
    turn = (*(layer for _ in range(3) for layer in inner.layers), attention)
    plain = lf.Serial(lf.Dense(), *(layer for _ in range(4) for layer in turn))
    found, wanted = repeated.trace(X), plain.trace(X)
    assert len(found) == len(wanted) == 1 + 4 * 7
    for name, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(found[name].nngp, wanted[other].nngp, rtol=1e-12)
        np.testing.assert_allclose(found[name].ntk, wanted[other].ntk, rtol=1e-12, atol=1e-14)
    names = list(found)
    assert names[1:3] == [
        f"1.Repeat[0]/0.Repeat[0]/{layer}" for layer in ("0.Activation", "1.Dense")
    ]
    assert names[-2:] == ["1.Repeat[3]/0.Repeat[2]/1.Dense", "1.Repeat[3]/1.Attention"]


def test_first_turns_that_differ_from_the_rest():
    # raw inputs have no weights before them: the state changes its form in the first turn
    net = lf.Repeat(lf.Residual(lf.Attention(scale="linear")), 4)
    found = net.trace(X, kinds=("nngp",))
    for turns in (1, 2, 4):
        less = lf.Repeat(net.layer, turns).kernel(X, kinds=("nngp",)).nngp
        last = [name for name in found if name.startswith(f"net[{turns - 1}]")][-1]
        np.testing.assert_allclose(found[last].nngp, less, rtol=1e-10)
