"""Ways to multiply are asked for by name, and only where they exist."""

import jax
import numpy as np
import pytest

import limitformer as lf
from limitformer.kernel.products import PRODUCTS, preset

NET = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
X = np.ones((2, 3), np.float32)


def test_default_is_in_full():
    assert preset("float32", np.float32, "gpu") == "highest"
    assert np.array_equal(NET.kernel(X, products="float32").nngp, NET.kernel(X).nngp)


@pytest.mark.parametrize("products", [name for name in PRODUCTS if name != "float32"])
def test_faster_ones_are_for_float32_on_a_gpu(products):
    assert preset(products, np.float32, "gpu") != "highest"
    with pytest.raises(ValueError, match="for float32 kernels on a GPU"):
        NET.kernel(X, products=products)
    with pytest.raises(ValueError, match="a kernel in float64 on gpu"):
        preset(products, np.float64, "gpu")


def test_unknown_name():
    with pytest.raises(ValueError, match="products='fp8'; expected one of 'float32', 'bf16x6'"):
        NET.kernel(X, products="fp8")


def test_kernels_inside_jit_are_in_full_too():
    """A GPU's own default would be tf32."""
    jaxpr = str(jax.make_jaxpr(lambda x: NET.kernel(x).nngp)(X))
    assert "Precision.HIGHEST" in jaxpr and "precision=None" not in jaxpr
    with pytest.raises(ValueError, match="for float32 kernels on a GPU"):
        jax.jit(lambda x: NET.kernel(x, products="tf32").nngp)(X)
