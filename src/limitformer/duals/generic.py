"""Any activation, and Gaussians with a mean, by quadrature and a full Mehler series.

    a_k = E[φ(m + √v z) h_k(z)],     Φ = Σ_{k<n} a_k(x) a_k(y) ρ^k + tail   (see `hermite`)

A kink of φ makes a_k² fall only like a power of k: the coefficients and the diagonal are still
accurate (panels end at `kinks`), the series between is not, and `error` says so.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

from .base import Dual, derivative_of, roots
from .hermite import Series, defect, project, series_sum, with_tail
from .quadrature import enough_nodes, hermite_table, moving_coefficients, moving_rule, whole_line


def _integrals(fn, v, mean, kinks, terms, nodes):
    """Coefficients of φ and φ', E[φ²] and E[φ'²]."""
    nodes = enough_nodes(terms) if nodes is None else nodes
    if mean is None and all(kink == 0 for kink in kinks):
        z, w = whole_line(nodes)
        table = jnp.asarray(hermite_table(whole_line, nodes, terms), v.dtype)
        f, df = derivative_of(fn, roots(v).q[..., None] * jnp.asarray(z, v.dtype))
        w = jnp.asarray(w, v.dtype)
        return project(f, table), project(df, table), project(f * f, w), project(df * df, w)
    z, u, w = moving_rule(v, mean, kinks, nodes)
    f, df = derivative_of(fn, u)
    a, d = moving_coefficients((f, df), z, w, terms)
    return a, d, jnp.sum(f * f * w, -1), jnp.sum(df * df * w, -1)


def _prepare(fn, v, mean, kinks, terms, nodes):
    a, d, f2, df2 = _integrals(fn, v, mean, kinks, terms, nodes)
    return Series(with_tail(f2, a), with_tail(df2, d), roots(v).r)


def _mix(c, px, py, derivative):
    rho = c * px.r * py.r
    value = series_sum(rho, px.a, py.a)
    return value, series_sum(rho, px.d, py.d) if derivative else None


def _error(fn, v, mean, kinks, terms, nodes):
    a, _, f2, _ = _integrals(fn, v, mean, kinks, terms, nodes)
    return defect(f2, a) + 16 * float(jnp.finfo(v.dtype).eps) * f2


class Generic(Dual):
    """φ = function, any elementwise function that JAX can differentiate.

    Args:
        function: u -> φ(u); static, so hashable and without array parameters.
        kinks: places where φ or φ' jumps.
        terms: Hermite degrees kept.
        nodes: Gauss-Legendre nodes per panel; None for as many as the terms need.
    """

    function: Callable = eqx.field(static=True)
    kinks: tuple[float | int, ...] = eqx.field(static=True, default=())
    terms: int = eqx.field(static=True, default=64)
    nodes: int | None = eqx.field(static=True, default=None)
    exact: ClassVar[bool] = False
    supports_mean: ClassVar[bool] = True

    def fn(self, u):
        return self.function(u)

    def prepare(self, v, mean=None) -> Series:
        return _prepare(self.fn, v, mean, self.kinks, self.terms, self.nodes)

    def mix(self, c, px, py, derivative):
        return _mix(c, px, py, derivative)

    def mean(self, v, mean=None):
        return _integrals(self.fn, v, mean, self.kinks, 2, self.nodes)[0][..., 0]

    def second(self, v, mean=None):
        return _integrals(self.fn, v, mean, self.kinks, 2, self.nodes)[2]

    def error(self, v, mean=None):
        return _error(self.fn, v, mean, self.kinks, self.terms, self.nodes)


class WithMean(Dual):
    """The activation of another dual, for Gaussians with a mean, by quadrature.

    Args:
        inner: the dual whose φ (with its parameters) and kinks are used.
        terms: Hermite degrees kept.
        nodes: Gauss-Legendre nodes per panel; None for as many as the terms need.
    """

    inner: Dual
    terms: int = eqx.field(static=True, default=64)
    nodes: int | None = eqx.field(static=True, default=None)
    exact: ClassVar[bool] = False
    supports_mean: ClassVar[bool] = True

    @property
    def kinks(self) -> tuple[float, ...]:
        return self.inner.kinks

    def fn(self, u):
        return self.inner.fn(u)

    def prepare(self, v, mean=None) -> Series:
        return _prepare(self.fn, v, mean, self.kinks, self.terms, self.nodes)

    def mix(self, c, px, py, derivative):
        return _mix(c, px, py, derivative)

    def mean(self, v, mean=None):
        return _integrals(self.fn, v, mean, self.kinks, 2, self.nodes)[0][..., 0]

    def second(self, v, mean=None):
        return _integrals(self.fn, v, mean, self.kinks, 2, self.nodes)[2]

    def error(self, v, mean=None):
        return _error(self.fn, v, mean, self.kinks, self.terms, self.nodes)


def with_mean(phi: Dual, terms: int = 64, nodes: int | None = None) -> Dual:
    """A dual of the same φ whose `prepare` takes a Gaussian mean (φ's own dual if it does)."""
    if phi.supports_mean:
        return phi
    # `kinks` is a property there, which pyright takes for a field.
    return WithMean(inner=phi, terms=terms, nodes=nodes)  # pyright: ignore[reportCallIssue]
