"""A network's kernel as a kernel of GPJax."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..layers.base import Layer
from .matrix import diagonal, matrix, pair, prepared


def gpjax_kernel(
    net: Layer, kind: str = "nngp", *, shape: tuple[int, ...] | None = None, dtype=None
) -> Any:
    """The NNGP or NTK of a network as a `gpjax.kernels.AbstractKernel`.

        k(x, y) = net.kernel(x.reshape(shape), y.reshape(shape)).nngp

    GPJax takes inputs as rows of a matrix, so sequences and images are flattened and `shape` says
    how to undo it. Whole Grams go through `net.kernel`; sums and products of kernels are evaluated
    pair by pair, which is correct and slower. Hyper-parameters of the network are array leaves that
    `gpjax.fit` learns. Put a `gpjax.parameters.PositiveReal` in the place of one, or wrap the
    network in `paramax.non_trainable`, to constrain or to freeze it.

    Args:
        net: a network with a readout.
        kind: "nngp" or "ntk".
        shape: of one input, `(tokens, features)` or `(height, width, channels)`; None: rows are
            plain vectors.
        dtype: float32, or float64 with JAX's 64-bit switch on; None: that of the inputs.

    Returns:
        A kernel for `gpjax.gps.Prior`. (GPJax adds a jitter of its own, 1e-6 unless `Prior` is told
        otherwise.)

    Raises:
        ModuleNotFoundError: GPJax is not installed.
        ValueError: an unknown kind; float64 while the switch is off.

    Example:
        >>> import gpjax, limitformer as lf  # doctest: +SKIP
        >>> kernel = gpjax_kernel(net, shape=(8, 3))  # doctest: +SKIP
        >>> prior = gpjax.gps.Prior(kernel, gpjax.mean_functions.Zero())  # doctest: +SKIP
        >>> posterior = (prior * gpjax.likelihoods.Gaussian()) | data  # doctest: +SKIP
    """
    make, engine = _classes()
    return make(*prepared(net, kind, dtype), kind, shape, engine)


@functools.cache
def _classes() -> tuple[Any, Any]:
    from ..extras import optional

    gpjax = optional("gpjax", "gpjax")
    lineax, paramax = optional("lineax", "gpjax"), optional("paramax", "gpjax")
    computations = optional("gpjax.kernels.computations", "gpjax")

    class LimitComputation(computations.AbstractKernelComputation):
        """Grams by `net.kernel`, half of the work if both sides are one."""

        def _cross_covariance(self, kernel, x, y):
            return kernel.matrix(x, y)

        def _gram(self, kernel, x):
            return kernel.matrix(x, None)

        def _diagonal(self, kernel, inputs):
            return lineax.TaggedLinearOperator(
                lineax.DiagonalLinearOperator(kernel.own(inputs)), lineax.positive_semidefinite_tag
            )

    class LimitKernel(gpjax.kernels.AbstractKernel):
        """The kernel of an infinite network."""

        net: Any
        dtype: Any = eqx.field(static=True)
        kind: str = eqx.field(static=True)
        shape: tuple[int, ...] | None = eqx.field(static=True)
        name: str = eqx.field(static=True, default="Limit")

        def __init__(self, net, dtype, kind, shape, compute_engine):
            self.net, self.dtype, self.kind, self.shape = net, dtype, kind, shape
            self.name = f"Limit {kind}"
            super().__init__(compute_engine=compute_engine)

        def __call__(self, x, y):
            x, y = self._shaped(x), self._shaped(y)
            return pair(paramax.unwrap(self.net), x, y, self.kind, self.dtype)

        def matrix(self, x, y):
            """All pairs; y=None means y is x."""
            x, y = self._shaped(x), None if y is None else self._shaped(y)
            return matrix(paramax.unwrap(self.net), x, y, self.kind, self.dtype)

        def own(self, x):
            """Every input with itself."""
            return diagonal(paramax.unwrap(self.net), self._shaped(x), self.kind, self.dtype)

        def _shaped(self, x):
            x = jnp.asarray(x)
            return x if self.shape is None else x.reshape(*x.shape[:-1], *self.shape)

    return LimitKernel, LimitComputation()
