"""Plots return the axes that they drew on."""

import importlib

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from limitformer import plot
from limitformer.extras import optional
from limitformer.report.classify import classify
from limitformer.report.convergence import KINDS, Convergence, Width


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def classification():
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    points = rng.normal(size=(40, 4)) + np.eye(4)[labels]
    K = np.exp(-np.sum((points[:, None] - points[None]) ** 2, axis=-1) / 4)
    return classify(K[:20, :20], K[20:, :20], np.diagonal(K)[20:], labels[:20], labels[20:])


@pytest.fixture(scope="module")
def convergence():
    K = {kind: np.eye(2) for kind in KINDS}
    errors = {w: dict.fromkeys(KINDS, w**-0.5 * np.array([0.8, 1.2])) for w in (16, 64)}
    return Convergence(K, tuple(Width(w, 2, 8, e, K) for w, e in errors.items()))


def test_gram(ax):
    K = np.arange(16.0).reshape(4, 4)
    assert plot.plot_gram(K, ax, labels=[1, 0, 1, 0], label="K") is ax
    drawn = np.asarray(ax.images[0].get_array())
    np.testing.assert_array_equal(drawn, K[np.ix_([1, 3, 0, 2], [1, 3, 0, 2])])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1"]


def test_gram_of_two_sets(ax):
    assert plot.plot_gram(np.ones((2, 3)), ax) is ax


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [((2, 2, 2), None, r"\(n, m\), got shape \(2, 2, 2\)"), ((2, 3), [0, 1], "2 labels")],
)
def test_gram_of_other_shapes(ax, shape, labels, message):
    with pytest.raises(ValueError, match=message):
        plot.plot_gram(np.ones(shape), ax, labels=labels)


def test_convergence(ax, convergence):
    assert plot.plot_convergence(convergence, ax) is ax
    names = [t.get_text() for t in ax.get_legend().get_texts()]
    assert names[0] == "1/√width" and names[1].startswith("NNGP: slope −0.50")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    reference = next(line for line in ax.lines if line.get_label() == "1/√width")
    x, y = (np.log(np.asarray(v, float)) for v in reference.get_data())
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(-0.5)


def test_confusion_and_refusal(ax, classification):
    assert plot.plot_confusion(classification, ax) is ax
    assert len(ax.texts) == np.count_nonzero(classification.confusion)
    other = Figure().subplots()
    assert plot.plot_refusal(classification, other) is other


def test_new_axes_without_any(classification, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    made = plot.plot_confusion(classification)
    assert isinstance(made, Axes)
    pyplot.close(made.figure)


def test_a_missing_extra_says_the_command(monkeypatch):
    real = importlib.import_module

    def missing(name, *rest):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError) as caught:
        plot.plot_gram(np.eye(2))
    assert str(caught.value) == (
        'matplotlib is not installed. Run: pip install "limitformer[plot]"'
    )


def test_a_broken_extra_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_extra.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'not_there_at_all'"):
        optional("broken_extra")


def test_importing_plots_does_not_import_matplotlib():
    import subprocess
    import sys

    code = (
        "import sys, limitformer.plot; print(any(m.startswith('matplotlib') for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
