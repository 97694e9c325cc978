"""How matrix products of float32 kernels are computed: in full, or faster if asked.

A GPU's matrix units multiply short numbers. A float32 is a sum of two or three of them, and a
product is then a sum of three or six products; each name below says the parts and the price.
`benchmarks/results/gpu.md` has the time and the error in the prediction of each.
"""

from __future__ import annotations

import numpy as np

PRODUCTS = {
    "float32": "highest",
    "bf16x6": "BF16_BF16_F32_X6",
    "tf32x3": "TF32_TF32_F32_X3",
    "bf16x3": "BF16_BF16_F32_X3",
    "tf32": "TF32_TF32_F32",
}
"""JAX's name of each way to multiply float32 matrices, most precise first."""


def preset(products: str, dtype, backend: str) -> str:
    """JAX's name of a way to multiply.

    Args:
        products: a key of `PRODUCTS`.
        dtype: of the kernel.
        backend: where it is computed.

    Raises:
        ValueError: there is no such way, or none here.

    Example:
        >>> preset("float32", "float64", "cpu")
        'highest'
    """
    if products not in PRODUCTS:
        raise ValueError(f"products={products!r}; expected one of {', '.join(map(repr, PRODUCTS))}")
    if products != "float32" and (backend != "gpu" or np.dtype(dtype) != np.float32):
        raise ValueError(
            f"products={products!r} is for float32 kernels on a GPU, and this is a kernel in "
            f"{np.dtype(dtype)} on {backend}; leave products away"
        )
    return PRODUCTS[products]
