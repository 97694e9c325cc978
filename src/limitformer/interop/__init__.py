"""Limit kernels inside other Gaussian-process libraries.

- `tinygp_kernel`: a kernel of tinygp, `pip install "limitformer[tinygp]"`;
- `gpjax_kernel`: a kernel of GPJax, `pip install "limitformer[gpjax]"`.

Both libraries are imported by the first call. Whatever takes a matrix needs no adapter: see
docs/interop.md for scikit-learn and GPyTorch.
"""

from limitformer.interop.gpjax import gpjax_kernel
from limitformer.interop.tinygp import tinygp_kernel

__all__ = ["gpjax_kernel", "tinygp_kernel"]
