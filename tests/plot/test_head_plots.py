"""Plots of finite-head laws: densities, sweeps, phase maps, convergence to the limit."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from limitformer.heads.law import Law
from limitformer.heads.sweep import sweep
from limitformer.plot import (
    plot_density,
    plot_distance_to_limit,
    plot_phase_map,
    plot_second_moment,
    plot_sweep,
)
from limitformer.reproduce.sakai import Series


@pytest.fixture
def ax():
    return Figure().subplots()


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_density_of_a_law_is_the_mixture(ax):
    law = Law([(np.array([0.5, 1.5])[:, None, None], None)])
    assert plot_density(law, ax, label="H = 1") is ax
    y, p = (np.asarray(v) for v in ax.lines[0].get_data())
    want = np.mean([np.exp(-0.5 * y**2 / v) / np.sqrt(2 * np.pi * v) for v in (0.5, 1.5)], axis=0)
    np.testing.assert_allclose(p, want, rtol=1e-12)
    assert ax.get_yscale() == "log"
    assert legend(ax) == ["H = 1", "Gaussian"]
    ax.figure.draw_without_rendering()


def test_the_density_of_samples(ax):
    samples = 3 * np.random.default_rng(0).normal(size=20_000)
    plot_density(samples, ax, gaussian=False)
    y, p = (np.asarray(v) for v in ax.lines[0].get_data())
    want = np.exp(-0.5 * y**2) / np.sqrt(2 * np.pi)
    middle = np.abs(y) < 2
    np.testing.assert_allclose(p[middle], want[middle], rtol=0.12)
    assert np.isnan(p[np.abs(y) * 3 > np.abs(samples).max()]).all()
    assert ax.get_legend() is None
    ax.figure.draw_without_rendering()
    rows = Figure().subplots()
    plot_density(samples.reshape(4, -1), rows)
    np.testing.assert_array_equal(np.asarray(rows.lines[0].get_ydata()), p)


@pytest.fixture(scope="module")
def swept():
    import jax

    return sweep({"qk_std": (0.5, 2.0), "tokens": (2, 4)}, key=jax.random.key(0), draws=200)


def test_sweep(ax, swept):
    assert plot_sweep(swept, ax, along="qk_std") is ax
    assert legend(ax) == ["tokens = 2", "tokens = 4"]
    line = ax.containers[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), swept.column("kl")[[0, 2]])
    ax.figure.draw_without_rendering()
    with pytest.raises(ValueError, match="no parameter 'heads' in this sweep; there are qk_std"):
        plot_sweep(swept, ax)


def test_phase_map(ax, swept):
    assert plot_phase_map(swept, ax, value="kurtosis") is ax
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0.5", "2"]
    shade = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(10**shade, swept.column("kurtosis").reshape(2, 2).T)
    assert len(ax.texts) == 4
    ax.figure.draw_without_rendering()
    with pytest.raises(ValueError, match="no parameter 'depth'"):
        plot_phase_map(swept, x="depth")


def test_convergence_to_the_limit(ax):
    points = [
        SimpleNamespace(
            n=n,
            kl=Series((1 / n, 2 / n)),
            floor=Series((1e-3, 2e-3)),
            reference=1 / n if n < 64 else None,
            signature=Series((0.3, 0.4)),
            limit=(0.2, 0.01),
        )
        for n in (16, 64)
    ]
    assert plot_distance_to_limit(points, ax) is ax
    assert set(legend(ax)) == {"floor: limit against limit", "finite networks", "reference"}
    np.testing.assert_allclose(ax.containers[0].lines[0].get_ydata(), [1.5 / 16, 1.5 / 64])
    ax.figure.draw_without_rendering()
    other = plot_second_moment(points, Figure().subplots())
    np.testing.assert_allclose(other.lines[-1].get_ydata(), 0.2)
    other.figure.draw_without_rendering()
