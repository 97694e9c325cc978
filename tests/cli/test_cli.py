"""The command line: help without weight, clear errors, nothing half-written."""

import io
import subprocess
import sys

import pytest

from limitformer.cli import main
from limitformer.cli.progress import StepProgress
from limitformer.report import demo as steps


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(option):
    """Names of the package are imported when they are first used."""
    done = python(f"""
import sys
from limitformer.cli import main
try:
    main([{option!r}])
except SystemExit as error:
    assert not error.code
heavy = {{"jax", "numpy", "scipy", "matplotlib", "sklearn"}} & set(sys.modules)
print("heavy:", sorted(heavy))
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("heavy: []")
    assert "limitformer" in done.stdout


def test_no_command_shows_help(capsys):
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


def no_work(*_):
    raise AssertionError("the work began")


def test_a_file_in_the_way_stops_the_demo_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(steps, "run", no_work)
    (tmp_path / "report.html").write_text("my own report")
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "left alone" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text() == "my own report"


def test_a_missing_package_stops_the_demo_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(steps, "run", no_work)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert 'pip install "limitformer[demo]"' in capsys.readouterr().err


def test_interrupting_leaves_nothing(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "run", interrupted)
    assert main(["demo", "--quick", "--out", str(tmp_path / "out")]) == 130
    assert "nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal_shows_the_time_left():
    stream = Terminal()
    progress = StepProgress({"one": 1.0, "two": 3.0}, stream)
    progress.start -= 10.0
    progress("two", 0.0)
    assert "25 %  two  about 30 s left" in stream.getvalue()
    assert progress.done("two", 1.0) == 1.0


def test_progress_in_a_log_is_one_line_per_step():
    stream = io.StringIO()
    progress = StepProgress({"one": 1.0, "two": 3.0}, stream)
    for step in ("one", "two"):
        for part in (0.0, 0.5, 1.0, 1.0):
            progress(step, part)
    progress.close()
    assert [line.split("s] ")[1].split("  ")[0] for line in stream.getvalue().splitlines()] == [
        "one",
        "two",
    ]


def test_progress_never_breaks_the_work():
    stream = io.StringIO()
    progress = StepProgress({"one": 1.0}, stream)
    stream.close()
    progress("one", 1.0)
    progress.close()
