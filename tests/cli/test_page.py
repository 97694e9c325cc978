"""docs/commands.md shows what the commands print."""

import doctest
import re
import shlex
from pathlib import Path

import typer

from limitformer.cli import main
from limitformer.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
VARIES = ("show vit", "kernel mlp --data wine --rows 1")  # times, versions
COMMANDS = typer.main.get_command(app).commands.values()
EXAMPLES = {c.epilog.split("limitformer ")[1] for c in COMMANDS if c.epilog}  # test_examples


def test_the_page_shows_what_commands_print(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    page = PAGE.read_text()
    study = re.search(r"^```toml\n(.*?)^```", page, re.M | re.S)[1]
    Path("study.toml").write_text(study)
    Path("wrong.toml").write_text(study.replace("noise", "nosie"))
    check = doctest.OutputChecker()
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) >= 8
    for block in blocks:
        for part in block.split("$ limitformer ")[1:]:
            line, _, shown = part.partition("\n")
            if line in EXAMPLES:
                continue
            status = main(shlex.split(line))
            captured = capsys.readouterr()
            assert status == int("wrong" in line), captured.err
            if not line.startswith(VARIES):
                printed = captured.err + captured.out
                same = check.check_output(shown, printed, doctest.NORMALIZE_WHITESPACE)
                assert same, f"{line}\n{printed}"
