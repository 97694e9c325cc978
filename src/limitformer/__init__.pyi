# What `limitformer` offers, and where it is: read by type checkers, and by `__init__.py`, which
# imports a name when it is first used.

from . import data, duals, empirical, files, gp, interop, models, netsor, tiles
from .depth.critical import critical
from .depth.profile import depth_profile
from .files import load
from .gp import (
    Posterior,
    Prediction,
    classify,
    condition,
    learn,
    load_posterior,
    relative,
    ridge_path,
    spectrum,
)
from .kernel.gram import Kernel
from .layers.activation import Activation
from .layers.attention import Attention, inf
from .layers.base import Layer
from .layers.combine import Parallel, Repeat, Residual, Serial, Sum
from .layers.conv import AvgPool, Conv
from .layers.cross_attention import CrossAttention
from .layers.dense import Dense
from .layers.dropout import Dropout
from .layers.embed import ClassToken, Embed
from .layers.named import (
    Abs,
    Cos,
    Elu,
    Erf,
    Gaussian,
    Gelu,
    GeluTanh,
    LeakyRelu,
    Polynomial,
    Relu,
    Sigmoid,
    Sign,
    Silu,
    Sin,
    Softplus,
    Tanh,
)
from .layers.norm import LayerNorm, RMSNorm
from .layers.pool import FirstToken, Flatten, LastToken, MeanPool, SumPool
from .layers.position import Alibi, OneHot, Position, RelativeBias, Rotary, SquaredExponential
from .layers.product import Product
from .layers.residual_attention import ResidualAttention
from .layers.transformer import Block, Transformer, VisionTransformer
from .tiles.gram import Gram, gram

__version__: str

__all__ = [
    "Abs",
    "Activation",
    "Alibi",
    "Attention",
    "AvgPool",
    "Block",
    "ClassToken",
    "Conv",
    "Cos",
    "CrossAttention",
    "Dense",
    "Dropout",
    "Elu",
    "Embed",
    "Erf",
    "FirstToken",
    "Flatten",
    "Gaussian",
    "Gelu",
    "GeluTanh",
    "Gram",
    "Kernel",
    "LastToken",
    "Layer",
    "LayerNorm",
    "LeakyRelu",
    "MeanPool",
    "OneHot",
    "Parallel",
    "Polynomial",
    "Position",
    "Posterior",
    "Prediction",
    "Product",
    "RMSNorm",
    "RelativeBias",
    "Relu",
    "Repeat",
    "Residual",
    "ResidualAttention",
    "Rotary",
    "Serial",
    "Sigmoid",
    "Sign",
    "Silu",
    "Sin",
    "Softplus",
    "SquaredExponential",
    "Sum",
    "SumPool",
    "Tanh",
    "Transformer",
    "VisionTransformer",
    "classify",
    "condition",
    "critical",
    "data",
    "depth_profile",
    "duals",
    "empirical",
    "files",
    "gp",
    "gram",
    "inf",
    "interop",
    "learn",
    "load",
    "load_posterior",
    "models",
    "netsor",
    "relative",
    "ridge_path",
    "spectrum",
    "tiles",
]
