"""Every example runs at its small size, with what pip brings and no data files."""

import runpy
import sys
from pathlib import Path

import jax
import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(script: Path, monkeypatch, tmp_path, capsys):
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("sklearn")
    plt.switch_backend("agg")
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.get_fignums()))
    monkeypatch.setattr(sys, "argv", [str(script), "--quick"])
    monkeypatch.setenv("LIMITFORMER_DATA", str(tmp_path))
    try:
        with jax.numpy_dtype_promotion("standard"):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        plt.close("all")
    assert shown and capsys.readouterr().out
