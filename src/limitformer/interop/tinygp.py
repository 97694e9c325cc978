"""A network's kernel as a kernel of tinygp."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..layers.base import Layer
from .matrix import diagonal, matrix, pair, prepared


def tinygp_kernel(net: Layer, kind: str = "nngp", *, dtype=None, masked: bool = False) -> Any:
    """The NNGP or NTK of a network as a `tinygp.kernels.Kernel`.

        k(x, y) = net.kernel(x, y).nngp

    Whole Grams go through `net.kernel`, not through pairs. In sums and products tinygp evaluates
    pair by pair, which is correct and slower. Hyper-parameters of the network are array leaves of
    the kernel: `jax.grad` of `log_probability` reaches them.

    Args:
        net: a network with a readout.
        kind: "nngp" or "ntk".
        dtype: float32, or float64 with JAX's 64-bit switch on; None: that of the inputs, as
            JAX takes them.
        masked: inputs are pairs `(x, mask)`, with mask True where a token is valid.

    Returns:
        A kernel for `tinygp.GaussianProcess(kernel, X, diag=noise)`. X has any shape that the
        network takes, inputs on the first axis.

    Raises:
        ModuleNotFoundError: tinygp is not installed.
        ValueError: an unknown kind; float64 while the switch is off.

    Example:
        >>> import tinygp, limitformer as lf  # doctest: +SKIP
        >>> kernel = tinygp_kernel(lf.Serial(lf.Dense(), lf.Relu(), lf.Dense()))  # doctest: +SKIP
        >>> gp = tinygp.GaussianProcess(kernel, X, diag=0.1)  # doctest: +SKIP
        >>> gp.condition(y, X_new).gp.loc  # doctest: +SKIP
    """
    make = _class()
    return make(*prepared(net, kind, dtype), kind, masked)


@functools.cache
def _class() -> Any:
    from ..extras import optional

    tinygp = optional("tinygp", "tinygp")

    class LimitKernel(tinygp.kernels.Kernel):
        """The kernel of an infinite network."""

        net: Layer
        dtype: Any = eqx.field(static=True)
        kind: str = eqx.field(static=True)
        masked: bool = eqx.field(static=True)

        def evaluate(self, X1, X2):
            (x, x_mask), (y, y_mask) = self._split(X1), self._split(X2)
            return pair(self.net, x, y, self.kind, self.dtype, x_mask, y_mask)

        def evaluate_diag(self, X):
            return self(jax.tree.map(lambda a: jnp.asarray(a)[None], X))[0]

        def __call__(self, X1, X2=None):
            x, x_mask = self._split(X1)
            if X2 is None:
                return diagonal(self.net, x, self.kind, self.dtype, x_mask)
            if X2 is X1:
                return matrix(self.net, x, None, self.kind, self.dtype, x_mask)
            y, y_mask = self._split(X2)
            return matrix(self.net, x, y, self.kind, self.dtype, x_mask, y_mask)

        def _split(self, X):
            return X if self.masked else (X, None)

    return LimitKernel
