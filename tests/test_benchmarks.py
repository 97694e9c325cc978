"""Benchmarks that reach into the library still find what they reach for."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def run(monkeypatch):
    """A benchmark's globals, and its command line."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def start(name: str, *arguments: str) -> dict:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        return runpy.run_path(str(FOLDER / f"{name}.py"), run_name="benchmark")

    return start


def test_conditioning(run, tmp_path, monkeypatch):
    from limitformer.gp import posterior

    monkeypatch.setattr(posterior, "kernels", posterior.kernels)  # the benchmark puts its own there
    (tmp_path / "results").mkdir()
    main = run("conditioning", "100")["main"]
    monkeypatch.setitem(main.__globals__, "HERE", tmp_path)
    main()
    assert "| 100 | 10 |" in (tmp_path / "results" / "conditioning.md").read_text()


@pytest.mark.slow
def test_gpu_programs(run, capsys, monkeypatch):
    from limitformer.kernel import fused, programs, whole

    for module, names in (
        (fused, ("available", "_SIDES", "TYPES", "AXES")),
        (programs, ("convolved", "from_features")),
        (whole, ("cross", "TOKENS", "_ENTRIES")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))
    run("gpu_programs", "--quick")["main"]()
    assert "in the program" in capsys.readouterr().out
