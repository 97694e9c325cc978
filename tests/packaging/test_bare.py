"""The package without extras, and the papers that go with a release."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import limitformer as lf

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_core_works_alone_and_names_each_missing_extra():
    found = subprocess.run(
        [sys.executable, Path(__file__).parent / "bare.py", "--block"],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr[-2000:]


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert project["version"] == lf.__version__
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == lf.__version__
    assert f"version = {{{lf.__version__}}}" in (ROOT / "docs" / "citing.md").read_text()


def test_extras_are_documented():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "howto" / "extras.md").read_text()
    for extra in project["optional-dependencies"].keys() - {"test", "dev"}:
        assert f"`{extra}`" in page, f"docs/howto/extras.md does not say what {extra!r} is for"
