"""Plots of spectra, learning curves and ridge paths."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from limitformer.gp.learning_curve import learning_curve
from limitformer.gp.spectrum import spectrum
from limitformer.plot.learning_curve import plot_learning_curve
from limitformer.plot.ridge import plot_ridge_path
from limitformer.plot.scales import log_ticks
from limitformer.plot.spectrum import plot_spectrum


@pytest.fixture
def ax():
    return Figure().subplots()


def gram(d):
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(len(d), len(d))))[0]
    return (Q * d) @ Q.T, Q


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_spectrum(ax):
    K, Q = gram(np.arange(1, 41) ** -1.5)
    s = spectrum(K, Q[:, 2])
    assert plot_spectrum(s, ax) is ax
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), s.eigenvalues)
    assert legend(ax) == ["eigenvalues", "rank$^{−1.50}$, ± 0.00"]
    right = ax.figure.axes[1]
    np.testing.assert_allclose(right.lines[0].get_ydata()[[1, 2]], [0, 100], atol=1e-9)
    ax.figure.draw_without_rendering()


def test_spectrum_with_negative_eigenvalues(ax):
    s = spectrum(gram(np.concatenate([np.arange(1, 31) ** -1.0, [-0.2, -0.1], np.zeros(8)]))[0])
    plot_spectrum(s, ax)
    names = legend(ax)
    assert names[1] == f"{len(s.negative)} negative, as −λ" and names[-1] == "rounding"
    assert np.all(np.asarray(ax.lines[1].get_ydata()) > 0)
    assert len(ax.figure.axes) == 1
    ax.figure.draw_without_rendering()


def test_a_bad_power_law_is_not_drawn(ax):
    plot_spectrum(spectrum(gram(np.repeat([1.0, 1e-4], [30, 30]))[0], fit=(1, 60)), ax)
    assert legend(ax) == ["eigenvalues"]


def test_learning_curve(ax):
    K, Q = gram(50 * np.arange(1, 51) ** -1.5)
    curve = learning_curve(K, 5 * Q[:, 0], [5, 20, 40], noise=0.1, repeats=3)
    assert plot_learning_curve(curve, ax) is ax
    assert legend(ax)[:3] == ["measured, 3 subsets", "predicted from spectrum", "leave-one-out"]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), curve.predicted)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["5", "10", "20"]
    ax.figure.draw_without_rendering()


@pytest.mark.parametrize("chosen", [1e-2, 2])
def test_ridge_path(ax, chosen):
    path = SimpleNamespace(
        ridges=np.array([1.0, 1e-1, 1e-2, 1e-3]),
        loo_mse=np.array([4.0, 2.0, 1.0, 3.0]),
        log_evidence=None,
        chosen=chosen,
    )
    assert plot_ridge_path(path, ax) is ax
    assert len(ax.figure.axes) == 1
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), path.ridges[::-1])
    assert [float(v[0]) for v in ax.lines[1].get_data()] == pytest.approx([1e-2, 1.0])
    assert ax.texts[0].get_text() == "0.01"
    other = Figure().subplots()
    path.log_evidence = np.array([-3.0, -2.0, -1.0, -4.0])
    plot_ridge_path(path, other)
    right = other.figure.axes[1]
    np.testing.assert_array_equal(right.lines[0].get_ydata(), path.log_evidence[::-1])
    other.figure.draw_without_rendering()


def test_ticks_over_many_decades(ax):
    log_ticks(ax, "y", 2e-9, 3e9)
    assert [t.get_text() for t in ax.get_yticklabels()][:2] == ["$10^{−6}$", "$10^{−3}$"]
