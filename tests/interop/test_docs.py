"""The blocks of docs/interop.md that need other libraries, where those are installed."""

import re
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "interop.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.mark.parametrize("library", ["tinygp", "gpjax", "gpytorch"])
def test_block(library, x64):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's own imports
        pytest.importorskip(library, reason=f"{library} is not installed")
    (block,) = (b for b in blocks("py") if re.search(rf"^import .*\b{library}\b", b, re.M))
    block = re.sub(r"^jax.config.update.*$", "", block, flags=re.M)  # x64 is on in this test only
    scope: dict = {}
    with jax.numpy_dtype_promotion("standard"):
        exec(compile(blocks("python")[0], "interop.md", "exec"), scope)
        exec(compile(block, "interop.md", "exec"), scope)
    net, x, y, z, posterior = (scope[name] for name in ("net", "x", "y", "z", "posterior"))
    # GPJax's likelihood starts at one, and its jitter joins it.
    noise = 1 + 1e-6 if library == "gpjax" else 0.1
    A = np.asarray(net.kernel(x).nngp) + noise * np.eye(len(x))
    dense = np.asarray(net.kernel(z, x).nngp) @ np.linalg.solve(A, y)
    mean = posterior.loc if library == "tinygp" else posterior.mean
    np.testing.assert_allclose(np.asarray(mean), dense, rtol=1e-6)
