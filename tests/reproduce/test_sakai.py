"""Figures of Sakai 2025 at small sizes, and one at the paper's."""

import json
import math

import numpy as np
import pytest

from limitformer.cli.reproduce import main
from limitformer.reproduce.sakai import COVARIANCES, REFERENCE_KL, Series, relu_inputs
from limitformer.reproduce.sakai_run import sakai


def test_figure_1_falls_to_its_floor():
    found = sakai("1", runs=4000, seeds=2)
    kl = [p.kl.mean for p in found.points]
    assert [p.n for p in found.points] == [*REFERENCE_KL, 10**6]
    assert kl[0] > 3 * kl[1] > 3 * found.points[0].floor.mean
    assert kl[3] < 3 * found.points[3].floor.mean
    spread = [p.signature.mean for p in found.points]
    assert spread[0] > spread[1] > spread[2] > spread[3] > found.points[3].limit[0]
    assert abs(spread[4] - found.points[4].limit[0]) < 0.02  # 4000 networks a seed
    value, sem = found.points[0].limit
    assert abs(value - 0.285 / math.sqrt(2)) < 5 * sem + 0.0005
    # the Gaussian of the same variance, by the fourth cumulant: kurtosis^2 / 48, to the order
    assert 0.5 < found.points[0].to_gaussian[0] / ((0.243 / 2) ** 2 / 48) < 1.5
    for p in found.points:
        step = p.grid[1] - p.grid[0]
        np.testing.assert_allclose(p.density.sum(axis=1) * step, 1.0)
    assert "difference" in found.table() and "0.033" in found.table()


def test_scores_have_their_exact_spread():
    root, whole = sakai("2a", runs=5000, seeds=4).points
    assert abs(root.signature.mean - (1 + 2 / 256)) < 5 * root.signature.sem
    assert whole.signature.mean == pytest.approx(root.signature.mean / 16)
    assert whole.kl is None and root.kl is not None


def test_relu_covariance():
    C = COVARIANCES[relu_inputs]
    L = relu_inputs(4, 20)(np.random.default_rng(0), 20_000)
    gram = L @ np.swapaxes(L, 1, 2)
    sem = gram.std(axis=0) / np.sqrt(len(gram))
    assert (np.abs(gram.mean(axis=0) - C) < 5 * sem).all()
    np.testing.assert_allclose(C[0, :2], [0.5, 1 / (2 * np.pi)])


def test_low_rank_heads_add_without_their_root():
    found = sakai("3", runs=2000, seeds=1)
    assert [(p.n, p.heads) for p in found.points] == [(64, 1), (256, 4), (1024, 16)]
    widths = [
        np.sqrt(np.sum(p.density[0] * p.grid**2) * (p.grid[1] - p.grid[0])) for p in found.points
    ]
    np.testing.assert_allclose(widths, np.sqrt(0.3918 * np.array([1, 4, 16])), rtol=0.15)
    assert math.isnan(found.points[0].kl.sem)
    json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(name))


def test_the_command_line(tmp_path, capsys):
    assert main(["sakai-5", "--runs", "200", "--seeds", "2", "--out", str(tmp_path)]) == 0
    assert "# Sakai 2025, figure 5" in capsys.readouterr().out
    assert (tmp_path / "sakai-5.png").stat().st_size > 10_000
    content = json.loads((tmp_path / "sakai-5.json").read_text())
    assert len(content["points"][0]["kl"]["seeds"]) == 2
    assert main(["sakai-1", "--runs", "5"]) == 1
    assert "error: runs=5, seeds=10; use at least 100 runs" in capsys.readouterr().err
    with pytest.raises(ValueError, match="figure '4' is not one of 1, 2a, 2b, 3, 5"):
        sakai("4")


def test_series():
    assert Series((1.0, 3.0)).mean == 2.0
    assert Series((1.0, 3.0)).sem == pytest.approx(1.0)


@pytest.mark.slow
def test_figure_1_at_the_papers_settings():
    """Within five standard deviations of a seed of the reference numbers, which have no errors."""
    for p in sakai("1").points[:4]:
        assert abs(p.kl.mean - p.reference) < 5 * p.kl.std
