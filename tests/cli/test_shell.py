"""Errors, warnings, exit codes, pipes and interrupts."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from limitformer.cli import INTERRUPTED, main
from limitformer.cli.shell import Shell, plain
from limitformer.layers.base import Layer


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["kernel"], "which network?"),
        (["kernel", "mlp"], "give the inputs either as --x FILE or as --data"),
        (["kernel", "mlp", "--data", "iris"], "--data iris is not built in; choose one of digits"),
        (["kernel", "mlp", "--data", "a.csv"], "(a file is given with --x)"),
        (["kernel", "mlp", "--data", "wine", "--mask", "m.npy"], "belong to --x"),
        (["fit", "mlp", "--data", "wine", "--noise", "much"], "expected auto, or a variance"),
        (["predict"], "which fit?"),
        (["compare", "mlp", "--data", "wine", "--widths", "a"], "whole numbers between commas"),
        (["critical", "mlp", "--data", "wine", "--parameter", "skip"], "has b_std, w_std"),
        (["gram", "compute", "mlp", "--data", "wine"], "where to?"),
        (["show", "mlp", "--shape", "0"], "sizes of at least 1"),
    ],
)
def test_usage_is_status_2(arguments, match, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert match in error
    assert f"See: limitformer {' '.join(arguments[: 1 + (arguments[0] == 'gram')])} --help" in error


@pytest.mark.parametrize("arguments", [["kernl"], ["kernel", "--nope"], ["kernel", "--rows", "x"]])
def test_the_parser_is_status_2_too(arguments, capsys):
    assert main(arguments) == 2
    assert "--help" in capsys.readouterr().err


def test_user_errors_have_no_traceback_unless_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["kernel", "net.toml", "--data", "wine"]
    assert main(given) == 1
    error = capsys.readouterr().err
    assert "limitformer kernel: there is no network 'net.toml'" in error
    assert "built in are attention, mlp, transformer, vit" in error
    assert "Traceback" not in error
    with pytest.raises(FileNotFoundError):
        main([*given, "--debug"])


def test_errors_with_json_leave_standard_output_empty(capsys):
    assert main(["kernel", "nothing.toml", "--data", "wine", "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "there is no network" in captured.err


def test_a_network_that_does_not_fit_its_inputs(capsys):
    assert main(["kernel", "vit", "--data", "wine", "--rows", "2"]) == 1
    error = capsys.readouterr().err
    assert "has a window of 2 dimension(s)" in error
    assert "JAX" not in error


def test_warnings_are_notes(monkeypatch, capsys):
    import warnings

    def kernel(self, *_, **__):
        warnings.warn("mind the gap", stacklevel=2)
        raise ValueError("the end")

    monkeypatch.setattr(Layer, "kernel", kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["kernel", "mlp", "--data", "wine"]) == 1
    error = capsys.readouterr().err
    assert error == ("limitformer kernel: warning: mind the gap\nlimitformer kernel: the end\n")


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["kernel", "mlp", "--data", "wine"], "nothing was written"),
        (["gram", "compute", "mlp", "--data", "wine", "--store", "K"], "finished tiles are kept"),
    ],
)
def test_ctrl_c(arguments, kept, monkeypatch, capsys):
    import limitformer.data

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(limitformer.data, "wine", interrupted)
    assert main(arguments) == INTERRUPTED
    assert f"Interrupted: {kept}." in capsys.readouterr().err


def test_a_closed_pipe_is_no_traceback():
    """As `limitformer doctor | head -0` does: nobody reads."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "limitformer", "gram", "status", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "Traceback" not in done.stderr
    code = "from limitformer.cli import main; import sys; sys.exit(main(['--version']))"
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""


def test_progress_is_silent_without_a_terminal(capsys):
    with Shell("kernel").progress("work") as report:
        assert report is False
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal_shows_the_time_left(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with Shell("kernel").progress("work") as report:
        report(1, 4, 12.0)
    assert "12 s left" in capsys.readouterr().err


def test_tables_keep_everything_in_a_pipe(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    Shell("x").table(("name", "value"), [("a" * 90, 1), ("b", 22)])
    lines = capsys.readouterr().out.splitlines()
    assert "a" * 90 + "       1" in lines
    assert all(line == line.rstrip() for line in lines)


def test_json_of_everything():
    value = {"a": np.float64(2.0), "b": np.array([1.0, np.nan, np.inf]), "c": (1, None, True)}
    assert json.dumps(plain(value), allow_nan=False) == (
        '{"a": 2.0, "b": [1.0, null, "inf"], "c": [1, null, true]}'
    )
