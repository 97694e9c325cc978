"""Sums and products of a traced function, gathered before they are computed.

Layers say what they do one after another: s K, then K + b, then w2 K + r2 K'. Where memory is what
counts a compiler fuses them, and the arithmetic is free. A program that keeps a pair of inputs on
the chip (`whole`) waits for nothing else, and compilers must not reorder floating-point numbers. So
values are kept as

    Σ_i c_i Π_j A_ij,    c_i numbers, A_ij arrays,

until an operation needs one that is neither a sum nor a product: numbers are multiplied with
numbers, and an entry of K sees one multiply-add for each term. Products of sums are not expanded:
polynomials stay in Horner's form, and differences are taken where they were written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, jaxpr_as_fun

_CALLS = {  # functions within functions, and where they are kept
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "jit": "jaxpr",
    "pjit": "jaxpr",
}


class Sum(NamedTuple):
    """A value that is not computed yet."""

    terms: dict[tuple[int, ...], Any]
    """Products of arrays, by their numbers in `Values`, and their factors; () is a number alone."""

    def plus(self, other: Sum, sign: int) -> Sum:
        found = dict(self.terms)
        for product, factor in other.terms.items():
            more = _times(sign, factor)
            found[product] = found[product] + more if product in found else more
        return Sum(found)


class Values:
    """What a traced function computes: arrays, and sums of products of them.

    Args:
        multiply_add: a b + c of three arrays.
    """

    def __init__(self, multiply_add: Callable):
        self.multiply_add = multiply_add
        self.arrays: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.products: dict[tuple[int, ...], Any] = {}

    def run(self, jaxpr, consts, given) -> list:
        """Values of a traced function's results; `given` are those of its arguments."""
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))
        read = lambda v: v.val if isinstance(v, Literal) else known[v]  # noqa: E731
        for equation in jaxpr.eqns:
            found = self.step(equation, [read(v) for v in equation.invars])
            known |= zip(equation.outvars, found, strict=True)
        return [read(v) for v in jaxpr.outvars]

    def step(self, equation, given) -> list:
        """One operation."""
        name, params = equation.primitive.name, equation.params
        if name in _CALLS:
            inner = params[_CALLS[name]]
            return self.run(inner.jaxpr, inner.consts, given)
        if name in ("mul", "add", "sub", "neg") and _inexact(equation.outvars[0]):
            a, *others = map(self.sum_of, given)
            if name == "neg":
                return [Sum({}).plus(a, -1)]
            (b,) = others
            return [self.product(a, b) if name == "mul" else a.plus(b, 1 if name == "add" else -1)]
        if name == "broadcast_in_dim" and _inexact(equation.outvars[0]):
            found = self.sum_of(given[0])
            if not any(found.terms):  # a number is the same number everywhere
                return [found]
        arrays = [self.computed(a, v.aval) for a, v in zip(given, equation.invars, strict=True)]
        if name == "while":
            return self.loop(params, arrays)
        if name == "reduce_sum" and arrays[0].ndim > 1 and len(params["axes"]) == arrays[0].ndim:
            return [arrays[0].reshape(-1).sum()]
        found = equation.primitive.bind(*arrays, **params)
        return found if equation.primitive.multiple_results else [found]

    def loop(self, params, arrays) -> list:
        """The same loop with a simplified body."""
        ends = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        kept, given, start = arrays[: ends[0]], arrays[ends[0] : ends[1]], arrays[ends[1] :]
        test, body = (jaxpr_as_fun(params[name]) for name in ("cond_jaxpr", "body_jaxpr"))
        turn = simplified(lambda *state: body(*given, *state), self.multiply_add)
        return jax.lax.while_loop(
            lambda state: test(*kept, *state)[0], lambda state: turn(*state), start
        )

    def sum_of(self, value) -> Sum:
        if isinstance(value, Sum):
            return value
        if jnp.size(value) == 1:
            return Sum({(): value})
        number = self.numbers.setdefault(id(value), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(value)
        return Sum({(number,): 1})

    def product(self, a: Sum, b: Sum) -> Sum:
        """A sum times a number, or two single terms; other sums are computed first."""
        if any(a.terms) and any(b.terms):
            a, b = (s if len(s.terms) == 1 else self.sum_of(self.computed(s)) for s in (a, b))
        order = lambda n: (jnp.size(self.arrays[n]), n)  # noqa: E731 - rows and columns first
        return Sum(
            {
                tuple(sorted((*p, *q), key=order)): _times(c, d)
                for p, c in a.terms.items()
                for q, d in b.terms.items()
            }
        )

    def computed(self, value, like=None):
        """An array, with the shape of another one if that is given."""
        if not isinstance(value, Sum):
            return value
        total: Any = value.terms.get(())
        for product, factor in value.terms.items():
            if product:
                total = self.plus(total, product, factor)
        return total if like is None else jnp.broadcast_to(total, like.shape).astype(like.dtype)

    def plus(self, total, product: tuple[int, ...], factor):
        """One more term."""
        known = len(product) == 1 or product in self.products
        if total is None:
            return _times(factor, self.multiplied(product))
        if not _is_sign(factor):
            return self.multiply_add(self.multiplied(product), factor, total)
        if known:
            array = self.multiplied(product)
            return total + array if factor == 1 else total - array
        *before, last = product
        return self.multiply_add(
            _times(factor, self.multiplied((*before,))), self.arrays[last], total
        )

    def multiplied(self, product: tuple[int, ...]):
        if len(product) < 2:
            return self.arrays[product[0]] if product else None
        if product not in self.products:
            *before, last = product
            self.products[product] = self.multiplied(tuple(before)) * self.arrays[last]
        return self.products[product]


def simplified(function: Callable, multiply_add: Callable = lambda a, b, c: a * b + c) -> Callable:
    """The same function of arrays up to rounding, with fewer operations.

    Args:
        function: of arrays, or of trees of them.
        multiply_add: how a b + c is computed.
    """

    @functools.wraps(function)
    def evaluated(*args):
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        values = Values(multiply_add)
        found = values.run(traced.jaxpr, traced.consts, jax.tree.leaves(args))
        leaves, form = jax.tree.flatten(shapes)
        return form.unflatten(map(values.computed, found, leaves))

    return evaluated


def _times(a, b):
    """a b, without a product where one of them is the integer 1 or -1."""
    if _is_sign(b):
        a, b = b, a
    if _is_sign(a):
        return b if a == 1 else -b
    return a * b


def _is_sign(a) -> bool:
    return isinstance(a, int) and a in (1, -1)


def _inexact(variable) -> bool:
    return jnp.issubdtype(variable.aval.dtype, jnp.inexact)
