"""Kernels of finite networks: sample NNGP and NTK of any `f(params, x)`, and its Taylor expansion.

Nothing here knows of layers or limits. It takes a function and its parameters, so that a network
of one's own can stand next to its limit:

- `nngp`, `ntk`: the kernels of one network, tile by tile;
- `ntk_vp`: products with the NTK that never form it;
- `linearize`, `taylor`: the network expanded around its parameters;
- `estimate`: mean and standard error over independently drawn networks.
"""

from limitformer.empirical._estimate import Estimate, estimate
from limitformer.empirical._nngp import nngp
from limitformer.empirical._ntk import ntk
from limitformer.empirical._product import NTKProduct, ntk_vp
from limitformer.empirical._taylor import linearize, taylor

__all__ = ["Estimate", "NTKProduct", "estimate", "linearize", "nngp", "ntk", "ntk_vp", "taylor"]
