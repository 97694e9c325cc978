"""`--report`: pages about the runs of commands."""

import json
import sys

import pytest

from limitformer.cli import main

GIVEN = ["kernel", "mlp", "--data", "wine", "--rows", "4", "--report", "k.html"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["limitformer", *GIVEN])
    return tmp_path


def test_a_page_has_the_result_and_what_it_depends_on(here, capsys):
    assert main(GIVEN) == 0
    assert (here / "k.html").as_uri() in capsys.readouterr().out
    page = (here / "k.html").read_text("utf-8")
    for part in ("limitformer " + " ".join(GIVEN), "mean of diagonal", "jaxlib", "float64", "seed"):
        assert part in page
    assert page.count("<svg") == 2
    assert "http://" not in page and "https://" not in page and "<script" not in page
    assert main([*GIVEN, "--json"]) == 0  # its own page is replaced
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["command"] == "kernel"


@pytest.mark.parametrize("content", ["mine", "<html><head><title>mine</title></head></html>"])
def test_other_files_are_left_alone(here, capsys, content):
    (here / "k.html").write_text(content)
    assert main(GIVEN) == 1
    assert "k.html" in capsys.readouterr().err
    assert (here / "k.html").read_text() == content
