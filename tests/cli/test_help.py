"""Help of every command: without weight, on one screen, with an example; completion."""

import os
import re
import subprocess
import sys

import pytest

from limitformer.cli.app import app

ALL = """
import contextlib, io, json, sys
from limitformer.cli import main
from limitformer.cli.app import app
import typer

def commands(group, path):
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, [*path, name])

found = {}
for path in commands(typer.main.get_command(app), []):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        status = main([*path, "--help"])
    heavy = sorted({"jax", "numpy", "scipy", "matplotlib", "sklearn"} & set(sys.modules))
    found[" ".join(path)] = (status, heavy, text.getvalue())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def helps():
    import json

    environment = os.environ | {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALL], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_command_is_there(helps):
    wanted = "demo explore show kernel fit predict law compare critical rank gram reproduce bench"
    assert {*wanted.split(), "doctor"} <= set(helps)
    assert {"gram compute", "gram status", "gram verify", "gram resume"} <= set(helps)
    assert {"reproduce merge", "reproduce sakai-5", "reproduce hron-cifar"} <= set(helps)


def test_help_imports_nothing_heavy(helps):
    assert {name: heavy for name, (_, heavy, _) in helps.items() if heavy} == {}
    assert {status for status, _, _ in helps.values()} == {0}


def test_help_fits_a_screen_with_an_example(helps):
    for name, (_, _, text) in helps.items():
        lines = text.rstrip().splitlines()
        assert len(lines) <= 40, f"{name}: {len(lines)} lines"
        assert max(map(len, lines)) <= 100, name
        assert "Traceback" not in text
        example = re.search(r"Example:\s+limitformer (.*?)\s*$", text, re.M)
        assert example, name
        assert example[1].startswith(name), (name, example[1])


def test_completion_knows_commands_and_options():
    for words, wanted in (("limitformer ker", "kernel"), ("limitformer fit --noi", "--noise")):
        environment = os.environ | {
            "_LIMITFORMER_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        done = subprocess.run(
            [sys.executable, "-c", "from limitformer.__main__ import main; main()"],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert wanted in done.stdout, done.stderr


def test_every_command_has_json_and_debug():
    import typer

    def options(group):
        for command in group.commands.values():
            if hasattr(command, "commands"):
                yield from options(command)
            else:
                yield command.name, {name for p in command.params for name in p.opts}

    for name, found in options(typer.main.get_command(app)):
        assert {"--json", "--debug"} <= found, name
