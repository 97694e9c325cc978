"""Plots of depth: what is drawn is what was computed."""

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

import limitformer as lf
from limitformer.depth import correlation_map, dong, phase_diagram, split
from limitformer.plot.depth import (
    plot_correlation_map,
    plot_decay,
    plot_depth_profile,
    plot_phase_diagram,
)

X = np.random.default_rng(0).normal(size=(1, 4, 8))
LINEAR = lf.Attention(scale="linear")


@pytest.fixture
def ax():
    return Figure().subplots()


def test_profile(ax):
    profile = lf.depth_profile(lf.Repeat(LINEAR, 2), X)
    profile = profile.with_twins(2, key=jax.random.key(0), width=16, heads=1)
    assert plot_depth_profile(profile, "residual", ax, log=True) is ax
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), profile["residual"])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["infinitely many heads", "2 twins of width 16, 1 heads"]
    assert ax.get_yscale() == "log" and ax.get_ylabel() == "relative residual"
    ax.figure.draw_without_rendering()


def test_correlation_map(ax):
    found = correlation_map(lf.Residual(LINEAR), 3)
    plot_correlation_map(found, ax)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), found.after)
    assert ax.texts[0].get_text() == f"slope {found.fixed_points[0].slope:.3g}"
    ax.figure.draw_without_rendering()


def test_phase_diagram(ax):
    def build(a, b):
        return lf.Residual(LINEAR, branch=a * b)

    found = phase_diagram(build, X, [0.1, 1.0], [0.5, 1.0, 2.0], names=("a", "b"))
    plot_phase_diagram(found, ax, float(np.median(found.values)))
    np.testing.assert_array_equal(ax.collections[0].get_array(), found.values)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("b", "a")
    ax.figure.draw_without_rendering()


def test_decay(ax):
    rng = np.random.default_rng(0)
    x, (A, B) = 0.02 * rng.normal(size=(4, 6)), rng.normal(size=(2, 3, 1, 6, 6)) / 6**0.5
    found = split(x, A, B)
    plot_decay(found, (dong(x, A, B),), ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), found.log_distance() / np.log(10))
    assert [t.get_text() for t in ax.texts] == [f"{e:.2f}" for e in found.exponents[1:]]
    ax.figure.draw_without_rendering()
