"""Every code block of the README and the documentation runs as written."""

import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(autouse=True)
def users_promotion():
    """Users have JAX's own promotion rules."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page: Path):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    scope: dict = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), scope)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
