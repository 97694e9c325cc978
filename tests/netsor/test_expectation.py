"""Quadrature rules: exact for smooth functions, and the spread of replicates shows a kink."""

import numpy as np
import pytest

from limitformer.netsor.expectation import REPLICATES, rules


@pytest.mark.parametrize("d", [1, 2])
def test_smooth_functions_are_exact(d):
    z, w = rules(d, 0)
    found = np.sum(w * np.exp(z.sum(-1)) * np.cos(z[..., 0]), axis=1)
    # E[exp(x) cos(x)] = Re E[exp((1 + i) x)] = cos(1)
    np.testing.assert_allclose(found, np.cos(1) * np.exp((d - 1) / 2), rtol=1e-12)


def test_kinks_show():
    z, w = rules(2, 0)
    found = np.sum(w * np.abs(z[..., 0] + 0.6 * z[..., 1]), axis=1)
    truth = np.sqrt(2 / np.pi * 1.36)
    sem = found.std(ddof=1) / np.sqrt(REPLICATES)
    assert 1e-6 < sem < 1e-2
    assert abs(found.mean() - truth) < 5 * sem


def test_sobol():
    z, w = rules(4, 512)
    assert z.shape == (REPLICATES, 512, 4)
    found = np.sum(w * np.tanh(z.sum(-1)) ** 2, axis=1)
    line, weights = rules(1, 0)
    truth = np.sum(weights[0] * np.tanh(2 * line[0, :, 0]) ** 2)
    assert abs(found.mean() - truth) < 5 * found.std(ddof=1) / np.sqrt(REPLICATES)
