"""Sphinx: `make docs` builds the pages of this folder into `docs/_build/html`, offline."""

import re
import sys
from pathlib import Path

import limitformer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "limitformer"
author = "The limitformer authors"
copyright = "2026, the limitformer authors"
version = release = limitformer.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "docstrings", "mathml"]
exclude_patterns = ["_build", "_ext"]
default_role = "code"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are kept with their outputs: `make notebooks`
suppress_warnings = ["misc.highlighting_failure"]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"limitformer {release}"
html_static_path = ["_static"]
html_css_files = ["limitformer.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"


def benchmark_pages() -> None:
    """A page for every table in `benchmarks/results`."""
    folder = HERE / "benchmarks"
    folder.mkdir(exist_ok=True)
    results = {page.name for page in (HERE.parent / "benchmarks" / "results").glob("*.md")}
    for name in results - {"partial.md"}:
        text = f"```{{include}} ../../benchmarks/results/{name}\n```\n"
        page = folder / name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
    for page in folder.glob("*.md"):
        if page.name not in results:
            page.unlink()


def benchmark_links(app, docname, source):
    """On GitHub benchmark tables are files beside the code, here they are pages."""
    up = "../" * docname.count("/")
    source[0] = re.sub(
        r"\]\((?:\.\./)+benchmarks/results/(\w+)\.md", rf"]({up}benchmarks/\1.md", source[0]
    )


def setup(app):
    """Connect what is specific to these pages."""
    benchmark_pages()
    app.connect("source-read", benchmark_links)
