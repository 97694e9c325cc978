"""The documentation names everything that is public, and shows docstrings as they are meant."""

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import limitformer as lf

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = ["data", "depth", "duals", "empirical", "files", "gp", "interop", "models", "netsor"]
PACKAGES += ["plot", "sklearn", "tiles"]


def module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


docstrings = module(DOCS / "_ext" / "docstrings.py")
notebooks = module(DOCS / "notebooks.py")


def test_reference_has_every_public_name():
    pages = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    there = set(re.findall(r"^\.\. auto\w+:: (\S+)", pages, re.M)) | set(
        re.findall(r"`([\w.]+)`", pages)
    )
    top = {getattr(lf, name) for name in lf.__all__ if callable(getattr(lf, name))}
    wanted = {f"limitformer.{name}" for name in lf.__all__ if callable(getattr(lf, name))}
    for package in PACKAGES:
        found = importlib.import_module(f"limitformer.{package}")
        for name in found.__all__:
            value = getattr(found, name)
            if not (callable(value) and value in top) and name not in there:
                wanted.add(f"limitformer.{package}.{name}")
    missing = sorted(
        name for name in wanted if name not in there and name.split(".", 1)[1] not in there
    )
    assert not missing, f"add these to docs/api: {missing}"


def test_every_page_is_in_the_contents():
    listed = set()
    for page in ("index.md", "examples/index.md"):
        for body in re.findall(r"```{toctree}\n(.*?)```", (DOCS / page).read_text(), re.S):
            lines = [line for line in body.splitlines() if line and not line.startswith(":")]
            listed |= {str(Path(page).parent / line) for line in lines}
    pages = [*DOCS.glob("*.md"), *DOCS.glob("howto/*.md"), *DOCS.glob("api/*.md")]
    pages += DOCS.glob("examples/*.ipynb")
    missing = {str(p.relative_to(DOCS).with_suffix("")) for p in pages} - listed - {"index"}
    assert not missing, f"add these to a toctree of docs/index.md: {sorted(missing)}"


def test_migration_has_every_name_of_neural_tangents():
    # public names of neural_tangents 0.6.5: itself, stax, predict, experimental
    names = """
        batch empirical_kernel_fn empirical_nngp_fn empirical_ntk_fn empirical_ntk_vp_fn linearize
        NtkImplementation taylor_expand monte_carlo_kernel_fn Kernel
        parallel serial repeat ABRelu Abs Cos Elementwise ElementwiseNumerical Erf Exp ExpNormalized
        Gabor Gaussian Gelu Hermite LeakyRelu Monomial Polynomial Rbf RectifiedMonomial Relu
        Sigmoid_like Sign Sin Aggregate AvgPool Conv ConvLocal ConvTranspose Dense Identity Index
        DotGeneral Dropout Flatten GlobalAvgPool GlobalSelfAttention GlobalSumPool ImageResize
        LayerNorm SumPool Slice FanInConcat FanInProd FanInSum FanOut AggregateImplementation
        AttentionMechanism Padding PositionalEmbedding Bool Diagonal MaskedArray layer requires
        supports_masking unmask_fn
        gradient_descent gradient_descent_mse gradient_descent_mse_ensemble gp_inference
        max_learning_rate ODEState
        empirical_ntk_fn_tf get_apply_fn_and_params
    """
    page = (DOCS / "migration.md").read_text()
    tables = page[page.index("## Layers") :]
    there = set(re.findall(r"\w+", " ".join(re.findall(r"^\|([^|]*)\|", tables, re.M))))
    assert not set(names.split()) - there


def test_docstring_becomes_text_code_and_equations():
    lines = """One line with |x| and a_b and `code`.

    K' = w^2 K + b^2

- first
  goes on
- second

Args:
    x, y: inputs
        of any kind.
    **options: more.

Returns:
    K_*X, starred.

Example:
    >>> 1 + 1
    2

Reference: Hron 2020.""".splitlines()
    found = "\n".join(docstrings.convert(lines))
    assert r"One line with \|x\| and a\_b and ``code``." in found
    assert "   :class: equation\n\n   K' = w^2 K + b^2\n" in found
    assert "- first\n  goes on\n" in found
    assert "``x``, ``y``\n   inputs\n   of any kind.\n" in found
    assert "``**options``\n   more." in found
    assert ".. rubric:: Returns\n\nK\\_\\*X, starred." in found
    assert "\n>>> 1 + 1\n2\n" in found
    assert ".. rubric:: Reference\n\nHron 2020." in found


@pytest.mark.parametrize("script", notebooks.SCRIPTS, ids=lambda path: path.stem)
def test_notebook_is_that_of_the_script(script: Path):
    made = json.loads((notebooks.NOTEBOOKS / f"{script.stem}.ipynb").read_text())
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in made["cells"]]
    assert found == notebooks.cells(script.read_text()), (
        f"run: make notebooks NOTEBOOKS={script.stem}"
    )
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert "display_data" in kinds and "error" not in kinds


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", DOCS, tmp_path]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-3000:]
    page = (tmp_path / "training.html").read_text()
    assert "<math" in page and "https://cdn" not in page
