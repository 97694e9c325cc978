"""Every network of the zoo against the naive oracle (`tests/naive.py`), float64.

The library sees the second input padded, the oracle sees it cut.
"""

import numpy as np
import pytest
from tests import naive
from tests.layers.reading import Reader
from tests.layers.zoo import CASES, Case, _act, images, sequences, two

FUNCTIONS = {
    _act: naive.Map(lambda z: np.tanh(z) + 0.1 * z, lambda z: 1 / np.cosh(z) ** 2 + 0.1),
}
EXACT = [case for case in CASES.values() if not case.random]
RANDOM = [case for case in CASES.values() if case.random]


def pair_of(case: Case):
    """Rows (a, c padded), their mask, and the same two inputs cut to their lengths."""
    rng = np.random.default_rng([3, *case.name.encode()])
    if case.input == "image":
        data = images(rng, case.masks)
        x, mask = data.rows([0, 2])
        return x, mask, (x[0], x[1]), mask
    if case.input == "two":
        data = two(rng)
        x, mask = data.rows([0, 2])
        cut = tuple(tuple(a[i][m[i]] for a, m in zip(x, mask, strict=True)) for i in (0, 1))
        return x, mask, cut, None
    if case.input == "flat":
        x = rng.normal(size=(2, 5))
        return x, None, (x[0], x[1]), None
    data = sequences(rng, case.masks, 3, ids=case.input == "ids")
    x, mask = data.rows([0, 2])
    cut = (x[0], x[1] if mask is None else x[1][mask[1]])
    return x, mask, cut, None


def oracle(case: Case, reader: Reader, cut, image_mask):
    """K and T of (a, a) and (a, c)."""
    if image_mask is not None:
        reader.start = lambda net, x, y: start_image(x, y, image_mask)
    return reader(case.net, cut[0]), reader(case.net, cut[0], cut[1])


def start_image(x, y, mask):
    from tests.layers.reading import Stream

    return Stream(naive.raw(x, y, mask[0], None if y is None else mask[1]))


def entries(K, pair):
    """The tokens of one entry that the oracle has: its valid ones, first in a sequence."""
    if K.ndim == 0:
        return K
    index = []
    for coords, grid in ((pair.cx, pair.gx), (pair.cy, pair.gy)):
        strides = [int(np.prod(grid[i + 1 :])) for i in range(len(grid))]
        index.append([sum(c * s for c, s in zip(at, strides, strict=True)) for at in coords])
    return K[np.ix_(*index)]


def check(actual, desired, tolerance):
    desired = desired if np.ndim(actual) else desired[0, 0]
    np.testing.assert_allclose(actual, desired, rtol=0, atol=tolerance * np.abs(desired).max())


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name) for c in EXACT],
)
def test_exact(case: Case):
    x, mask, cut, image_mask = pair_of(case)
    k = case.net.kernel(x, x_mask=mask)
    own, cross = oracle(case, Reader(FUNCTIONS), cut, image_mask)
    for pair, (i, j) in ((own, (0, 0)), (cross, (0, 1))):
        check(entries(k.nngp[i, j], pair), pair.Kxy, 1e-10)
        if case.name != "sign":  # the dual has the slope 0 that gradient descent sees, not a delta
            check(entries(k.ntk[i, j], pair), pair.Txy, 1e-10)


REPLICATES, DRAWS = 32, 400


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=pytest.mark.slow) for c in RANDOM],
)
def test_softmax(case: Case):
    """Softmax at scale "sqrt" against plain Monte Carlo, within 5 standard errors.

    The oracle has 32 replicates; the library's own error is made small beside it.
    """
    x, mask, cut, _ = pair_of(case)
    k = case.net.kernel(x, x_mask=mask, draws=2048)
    rngs = np.random.default_rng([5, *case.name.encode()]).spawn(REPLICATES)
    found = [oracle(case, Reader(FUNCTIONS, rng, DRAWS), cut, None) for rng in rngs]
    for which, (i, j) in enumerate([(0, 0), (0, 1)]):
        for value, error, field in ((k.nngp, k.nngp_sem, "Kxy"), (k.ntk, k.ntk_sem, "Txy")):
            samples = np.stack([getattr(f[which], field) for f in found])
            pair = found[0][which]
            actual, own = (np.atleast_2d(entries(v[i, j], pair)) for v in (value, error))
            sem = np.hypot(samples.std(0, ddof=1) / np.sqrt(REPLICATES), own)
            # where tokens leave nothing to chance both errors are rounding
            sem = sem + 1e-12 * np.abs(actual).max()
            assert (np.abs(actual - samples.mean(0)) < 5 * sem).all()
            assert sem.max() < 0.05 * np.abs(value[0, 0]).max()
