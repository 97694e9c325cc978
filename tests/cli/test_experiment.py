"""Experiments: options from a file, the command line first."""

import json

import numpy as np
import pytest

from limitformer.cli import main
from limitformer.cli.experiments import schema

FILE = """limitformer = 1

[[network.layers]]
type = "Dense"
w_std = 1.5

[[network.layers]]
type = "Relu"

[[network.layers]]
type = "Dense"

[data]
x = "d.npz:x"
y = "d.npz:y"
test = "d.npz:test"

[kernel]
kinds = "nngp"

[fit]
noise = 0.25
kind = "ntkgp"
scale = false
out = "a.fit"

[predict]
fit = "a.fit"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    where = tmp_path / "study"
    where.mkdir()
    np.savez(where / "d.npz", x=rng.normal(size=(6, 3)), y=np.arange(6.0), test=np.ones((2, 3)))
    (where / "exp.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return where


def answer(arguments, capsys):
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_one_file_serves_several_commands(folder, capsys):
    given = ["--experiment", "study/exp.toml"]
    kernel = answer(["kernel", *given], capsys)
    assert kernel["result"]["network"] == "Serial(Dense(1.5), Relu(), Dense())"
    assert "ntk" not in kernel["result"] and kernel["result"]["shape"] == [6, 6]
    assert kernel["settings"]["kinds"] == "nngp"
    fit = answer(["fit", *given], capsys)["result"]
    assert fit["noise"] == 0.25 and fit["kind"] == "ntkgp"
    assert (folder / "a.fit" / "posterior.toml").is_file()  # beside the experiment
    assert len(answer(["predict", *given], capsys)["result"]["mean"]) == 2
    assert answer(["show", *given], capsys)["result"]["layers"][0]["work"]


def test_the_command_line_comes_first(folder, capsys):
    given = ["--experiment", "study/exp.toml"]
    found = answer(["kernel", *given, "--kinds", "both", "--rows", "2"], capsys)["result"]
    assert found["shape"] == [2, 2] and "ntk" in found
    other = answer(["kernel", "mlp", *given, "--data", "wine", "--rows", "3"], capsys)["result"]
    assert other["shape"] == [3, 3] and "Dense(1.4, 0.2)" in other["network"]


def test_an_experiment_is_a_network_too(folder, capsys):
    found = answer(["show", "study/exp.toml"], capsys)["result"]
    assert found["network"] == "Serial(Dense(1.5), Relu(), Dense())"


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (
            "noise",
            "nosie",
            'exp.toml:22: fit.nosie: unknown key, did you mean "noise"?; [fit] takes',
        ),
        ('"ntkgp"', '"gp"', 'exp.toml:23: fit.kind: expected "nngp" or "ntk" or "ntkgp", got "gp"'),
        ("scale = false", "scale = 1", "exp.toml:24: fit.scale: expected true or false, got 1"),
        ("[data]", "[dat]", 'exp.toml:13: dat: unknown section, did you mean "data"?'),
        ("w_std", "w_st", "exp.toml:5: network.layers[0].w_st: unknown argument, did you mean"),
        ("limitformer = 1", "limitformer = 2", "exp.toml:1: limitformer: the format is 2"),
        ('x = "d.npz:x"', "x = 3", "exp.toml:14: data.x: expected a string, got 3"),
        ("[fit]", "[fit", "exp.toml:21: this is not TOML"),
    ],
)
def test_errors_have_their_line(folder, old, new, match, capsys):
    (folder / "exp.toml").write_text(FILE.replace(old, new, 1))
    assert main(["fit", "--experiment", "study/exp.toml"]) == 1
    assert match in capsys.readouterr().err


def test_a_network_in_a_file_of_its_own(folder, capsys):
    (folder / "net.toml").write_text('limitformer = 1\ntype = "Dense"\nw_std = 2.0\n')
    text = 'limitformer = 1\n[network]\nfile = "net.toml"\n[data]\nx = "d.npz:x"\n'
    (folder / "exp.toml").write_text(text)
    found = answer(["kernel", "--experiment", "study/exp.toml"], capsys)["result"]
    assert found["network"] == "Dense(2.0)"
    (folder / "exp.toml").write_text(text.replace("[data]", "layers = []\n[data]"))
    assert main(["kernel", "--experiment", "study/exp.toml"]) == 1
    assert "exp.toml:4: network.layers: expected either file" in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys):
    assert main(["kernel", "--experiment", "nothing.toml"]) == 1
    assert "--experiment nothing.toml: there is no file" in capsys.readouterr().err


def test_every_section_is_a_command():
    found = schema()
    assert found.keys() == {
        *("data", "show", "kernel", "fit", "predict", "law", "compare", "critical", "gram", "bench")
    }
    assert found["fit"]["kind"].choices == ("nngp", "ntk", "ntkgp")
    assert "force" not in found["fit"] and found["fit"]["out"].path
    assert found["critical"]["low"].types == (float,)
