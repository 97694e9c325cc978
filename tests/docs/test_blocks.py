"""Every code block of the README and the documentation runs as written."""

import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# .ci/run has them
LONG = ("kernels.md", "text.md", "heads.md", "estimators.md", "depth.md", "netsor.md", "finite.md")
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("howto/*.md"))]


@pytest.fixture(autouse=True)
def users_promotion():
    """Users have JAX's own promotion rules."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in filter(blocks, PAGES)
    ],
)
def test_blocks_run(page: Path):
    scope: dict = {}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), scope)


def test_links_lead_somewhere():
    pages = [*PAGES, *DOCS.glob("examples/*.md"), *DOCS.glob("api/*.md"), *DOCS.glob("notes/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
