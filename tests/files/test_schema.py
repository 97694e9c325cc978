"""The schema of network files, by a validator that is not ours."""

import json
import tomllib
from pathlib import Path

import pytest

import limitformer as lf
from limitformer import cli
from limitformer.files import schema

jsonschema = pytest.importorskip("jsonschema", reason="comes with the docs extra")
READY = sorted(Path(cli.__file__).parent.glob("networks/*.toml"))


@pytest.fixture(scope="module")
def check():
    found = schema()
    jsonschema.Draft202012Validator.check_schema(found)
    assert json.loads(json.dumps(found)) == found
    return jsonschema.Draft202012Validator(found)


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_ready_made_networks_are_valid(check, path):
    check.validate(tomllib.loads(path.read_text()))


def test_whatever_is_written_is_valid(check):
    net = lf.Serial(
        lf.Embed(),
        lf.Repeat(lf.Residual(lf.LayerNorm(), lf.Attention(position=lf.Rotary())), 3),
        lf.Residual(lf.LayerNorm(), lf.Dense(1.5), lf.LeakyRelu(0.1), skip=0.5),
        lf.Parallel(lf.Dense(), lf.Serial(lf.Dense(), lf.Erf())),
        lf.Sum(),
        lf.MeanPool(),
    )
    check.validate(tomllib.loads(net.to_toml()))
    check.validate(tomllib.loads(lf.Conv((3, 3), stride=(2, 2)).to_toml()))


@pytest.mark.parametrize(
    "text",
    [
        '[[layers]]\ntype = "Dense"',
        'limitformer = 1\n[[layers]]\ntype = "Dens"',
        'limitformer = 1\n[[layers]]\ntype = "Dense"\nw_sd = 1.0',
        'limitformer = 1\n[[layers]]\ntype = "Dense"\nparametrisation = 3',
        'limitformer = 1\n[[layers]]\ntype = "Repeat"\nn = 3',
    ],
)
def test_wrong_files_are_not(check, text):
    assert not check.is_valid(tomllib.loads(text))
    with pytest.raises(ValueError):
        lf.files.loads(text)
