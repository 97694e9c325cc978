"""Dual activations: Φ(v1, v2, c) = E[φ(u) φ(v)] and Φ' = E[φ'(u) φ'(v)] for Gaussian (u, v)."""

from .base import Dual, dual
from .elu import Elu
from .error_function import Erf, Gelu
from .gaussian import Gaussian
from .generic import Generic, WithMean, with_mean
from .periodic import Cos, Sin
from .polynomial import Identity, Polynomial
from .rectifiers import Abs, LeakyRelu, Relu, Sign
from .smooth import GeluTanh, Sigmoid, Silu, Softplus, Tanh

DUALS: dict[str, type[Dual]] = {
    "relu": Relu,
    "leaky_relu": LeakyRelu,
    "abs": Abs,
    "sign": Sign,
    "erf": Erf,
    "gelu": Gelu,
    "gelu_tanh": GeluTanh,
    "silu": Silu,
    "tanh": Tanh,
    "sigmoid": Sigmoid,
    "softplus": Softplus,
    "elu": Elu,
    "sin": Sin,
    "cos": Cos,
    "gaussian": Gaussian,
    "polynomial": Polynomial,
    "identity": Identity,
    "generic": Generic,
}
"""Name -> class of every family."""

__all__ = [
    "DUALS",
    "Abs",
    "Cos",
    "Dual",
    "Elu",
    "Erf",
    "Gaussian",
    "Gelu",
    "GeluTanh",
    "Generic",
    "Identity",
    "LeakyRelu",
    "Polynomial",
    "Relu",
    "Sigmoid",
    "Sign",
    "Silu",
    "Sin",
    "Softplus",
    "Tanh",
    "WithMean",
    "dual",
    "with_mean",
]
