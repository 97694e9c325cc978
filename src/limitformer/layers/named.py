"""The named activations, each an `Activation` with its dual."""

from __future__ import annotations

from .. import duals
from .activation import Activation


def _named(dual: type[duals.Dual]):
    def make(*args, **options) -> Activation:
        return Activation(dual(*args, **options))

    make.__name__ = make.__qualname__ = dual.__name__
    summary = (dual.__doc__ or "").split("\n\n")[0]  # the example is the dual's, not the layer's
    make.__doc__ = f"Activation layer. {summary}"
    return make


Relu = _named(duals.Relu)
LeakyRelu = _named(duals.LeakyRelu)
Abs = _named(duals.Abs)
Sign = _named(duals.Sign)
Erf = _named(duals.Erf)
Gelu = _named(duals.Gelu)
GeluTanh = _named(duals.GeluTanh)
Silu = _named(duals.Silu)
Tanh = _named(duals.Tanh)
Sigmoid = _named(duals.Sigmoid)
Softplus = _named(duals.Softplus)
Elu = _named(duals.Elu)
Sin = _named(duals.Sin)
Cos = _named(duals.Cos)
Gaussian = _named(duals.Gaussian)
Polynomial = _named(duals.Polynomial)
