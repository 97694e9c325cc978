"""Laws that every kernel obeys, over the whole zoo of networks, in float64.

One call on rows that are built for it (`zoo.Inputs`) shows most of them.
"""

import numpy as np
import pytest
from tests.layers.zoo import CASES, Case, inputs

import limitformer as lf

KINDS = ("nngp", "ntk")
EXACT = 1e-12
QUICK = ("mixed image",)  # the others take minutes of compilation


def close(actual, desired, rtol=EXACT):
    """Equal to `rtol` of the largest entry."""
    actual, desired = np.asarray(actual), np.asarray(desired)
    assert actual.shape == desired.shape
    np.testing.assert_allclose(actual, desired, rtol=0, atol=rtol * np.abs(desired).max())


def matrix(K):
    """A Gram matrix or token kernel as one square matrix."""
    if K.ndim == 2:
        return K
    n, m, S1, S2 = K.shape
    return np.swapaxes(K, 1, 2).reshape(n * S1, m * S2)


def tokens(K, rows, cols):
    """A token kernel restricted to some tokens of each side, or a readout as it is."""
    return K if K.ndim == 0 else K[np.ix_(rows, cols)]


def least_eigenvalue(K) -> float:
    """Smallest eigenvalue over the largest."""
    values = np.linalg.eigvalsh(matrix(K))
    return values[0] / values[-1]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, case in CASES.items()
    ],
)
def test_laws(case: Case, subtests):
    net, data, options = case.net, inputs(case), case.options
    x, mask = data.rows(slice(None))
    gram = net.kernel(x, x_mask=mask, **options)
    values = {kind: getattr(gram, kind) for kind in KINDS}

    for kind, K in values.items():
        with subtests.test("finite, symmetric", kind=kind):
            assert np.isfinite(K).all()
            np.testing.assert_array_equal(matrix(K), matrix(K).T)
        if not case.random:
            with subtests.test("positive semidefinite", kind=kind):
                assert least_eigenvalue(K) >= -1e-10
        if not case.dropout:
            with subtests.test("a copy is the same input", kind=kind):
                close(K[5, :5], K[0, :5])
                close(K[5, 5], K[0, 0])
        if case.permutes != "no":
            with subtests.test("permuted tokens", kind=kind):
                order = data.order if case.permutes == "equivariant" else slice(None)
                desired = K[1, 0] if K.ndim == 2 else K[1, 0][order]
                close(K[6, 0], desired)

    if data.kept is not None:
        out = outputs_kept(case, gram, data)
        for kind, K in values.items():
            with subtests.test("padding on the right, on the left, with a gap", kind=kind):
                for i in (3, 4):
                    for j in (0, 1):
                        close(
                            tokens(K[i, j], out[i], out[j]),
                            tokens(K[2, j], out[2], out[j]),
                        )
            with subtests.test("zero on padding", kind=kind):
                if K.ndim == 4:
                    for i in (2, 3, 4):
                        padded = np.setdiff1d(np.arange(K.shape[2]), out[i])
                        assert not K[i][:, padded].any()
        if case.input != "image":
            full, _ = data.rows(slice(0, 2))
            cut = net.kernel(full, data.short, **options)
            for kind, K in values.items():
                with subtests.test("padded is truncated, lengths differ", kind=kind):
                    desired = getattr(cut, kind)
                    for j in (0, 1):
                        close(tokens(K[j, 2], out[j], out[2]), desired[j, 0])
        else:
            cut = net.kernel(data.short)
            for kind, K in values.items():
                with subtests.test("padded is truncated", kind=kind):
                    close(tokens(K[2, 2], out[2], out[2]), getattr(cut, kind)[0, 0])

    x5, mask5 = data.rows(slice(0, 5))
    kinds = KINDS if case.fast else "nngp"
    blocks = net.kernel(x5, x_mask=mask5, memory=1, kinds=kinds, **options)
    for kind in KINDS if case.fast else ("nngp",):
        with subtests.test("block by block", kind=kind):
            close(getattr(blocks, kind), values[kind][:5, :5])

    alone = net.kernel(x5, x_mask=mask5, kinds="nngp", **options) if case.fast else blocks
    with subtests.test("the NNGP alone"):
        assert alone.ntk is None
        close(alone.nngp, values["nngp"][:5, :5])

    if not case.random:
        last = list(net.trace(x5, x_mask=mask5).values())[-1]
        for kind, K in values.items():
            with subtests.test("the last entry of the trace", kind=kind):
                close(getattr(last, kind), K[:5, :5])

    if case.input != "ids" and not case.random:  # draws depend on the type
        x2, _ = data.rows(slice(0, 2))
        single = net.kernel(single_precision(x2), **options)
        for kind, K in values.items():
            with subtests.test("float32", kind=kind):
                value = np.asarray(getattr(single, kind))
                assert value.dtype == np.float32
                close(value, K[:2, :2], 1e-4)


def single_precision(x):
    return tuple(a.astype(np.float32) for a in x) if isinstance(x, tuple) else x.astype(np.float32)


def outputs_kept(case: Case, gram, data):
    """Valid output tokens of every row, from where the diagonal of K(x, x) is not zero.

    Windows move tokens and valid tokens come first, so for most rows this is a prefix.
    """
    K = gram.nngp
    if K.ndim == 2:
        return [None] * len(K)
    return [np.flatnonzero(np.diagonal(K[i, i]) > 0) for i in range(len(K))]


def test_scores_of_patches_are_drawn_from_their_features():
    """Attention right after a first convolution: one draw serves all inputs, so K is a mean of
    positive semidefinite kernels whatever the number of draws."""
    x = np.random.default_rng(0).normal(size=(12, 6, 6, 2))
    patches = lf.Conv((2, 2), 1.2, 0.3, stride=2, padding="valid")
    net = lf.Serial(patches, lf.LayerNorm(), lf.Attention(qk_std=3.0), lf.MeanPool())
    values = np.linalg.eigvalsh(net.kernel(x, kinds="nngp", draws=16).nngp)
    assert values[0] > -1e-12 * values[-1]
