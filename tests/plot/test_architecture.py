"""The picture of a network."""

import numpy as np
import pytest

import limitformer as lf
from limitformer.files import describe
from limitformer.plot import plot_architecture
from limitformer.plot.architecture import _nests, figure_size

figure = pytest.importorskip("matplotlib.figure")

NET = lf.Serial(
    lf.Dense(),
    lf.Repeat(lf.Residual(lf.LayerNorm(), lf.Attention(scale="linear")), 2),
    lf.MeanPool(),
)


def drawn(description):
    ax = figure.Figure(figsize=figure_size(description)).add_subplot()
    return plot_architecture(description, ax)


def test_a_frame_per_composite_and_a_box_per_layer():
    found = describe(NET)
    ax = drawn(found)
    frames = [p for p in ax.patches if p.get_alpha()]
    assert len(frames) == 2 and len(ax.patches) == len(found.rows)
    words = {text.get_text() for text in ax.texts}
    assert {"Dense", "Repeat", "Residual", "Attention", "MeanPool"} <= words


def test_bars_are_shares_of_the_time():
    found = describe(NET, np.ones((2, 5, 3)))
    ax = drawn(found)
    shares = np.array([row.share for row in found.rows if row.share is not None])
    lengths = np.array([bar[0].get_width() for bar in ax.containers])
    np.testing.assert_allclose(lengths / lengths.max(), shares / shares.max(), rtol=1e-12)


def test_nests():
    assert _nests([0, 1, 2, 2, 1, 0]) == [(0, 4, 0), (1, 3, 1)]
    assert _nests([0, 0]) == []
