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
import numpy as np
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
        self.masks: dict[tuple[int, bool], tuple] = {}

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
        if name == "broadcast_in_dim" and self.stays(equation, given[0]):
            return [given[0]]
        if name == "select_n" and (found := self.masked(equation, given)) is not None:
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

    def stays(self, equation, value) -> bool:
        """Whether a value may stay as it is where it was broadcast: a number, a row or a column."""
        (variable,), (result,) = equation.invars, equation.outvars
        axes = equation.params["broadcast_dimensions"]
        number = _inexact(variable) and variable.aval.size == 1
        return number or axes == tuple(range(result.aval.ndim))

    def masked(self, equation, given) -> Sum | None:
        """x where a mask of rows or columns is true, 0 elsewhere: a product with ones and zeros."""
        which, *cases = given
        (result,) = equation.outvars
        zero = [_is_zero(case) for case in cases]
        line = 1 in jnp.shape(which)
        if not (line and _inexact(result) and len(cases) == 2 and sum(zero) == 1):
            return None
        key = id(which), zero[0]
        if key not in self.masks:
            ones = (which if zero[0] else ~which).astype(result.aval.dtype)
            self.masks[key] = which, ones  # both, so that no other array gets this id
        return self.product(*map(self.sum_of, (self.masks[key][1], cases[zero[0]])))

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
        order = lambda n: (self.arrays[n].size, self.arrays[n].shape, n)  # noqa: E731
        return Sum(
            {
                tuple(sorted((*p, *q), key=order)): _times(c, d)
                for p, c in a.terms.items()
                for q, d in b.terms.items()
            }
        )

    def computed(self, value, like=None):
        """An array, with the shape of another one if that is given."""
        total: Any = value
        if isinstance(value, Sum):
            total = value.terms.get(())
            for product, factor in value.terms.items():
                if product:
                    total = self.plus(total, product, factor)
        if like is None or (jnp.shape(total), jnp.result_type(total)) == (like.shape, like.dtype):
            return total
        return jnp.broadcast_to(total, like.shape).astype(like.dtype)

    def plus(self, total, product: tuple[int, ...], factor):
        """One more term."""
        if total is None:
            return _times(factor, self.multiplied(product))
        if len(product) > 1 and product not in self.products:
            left, right = self.parts(product)
            line = (
                len({self.arrays[n].shape for n in left}) == 1 and 1 in self.arrays[left[0]].shape
            )
            if line or _is_sign(factor):  # a factor of a row or a column is for nothing
                left = _times(factor, self.multiplied(left))
                return self.multiply_add(left, self.multiplied(right), total)
        array = self.multiplied(product)
        if _is_sign(factor):
            return total + array if factor == 1 else total - array
        return self.multiply_add(array, factor, total)

    def multiplied(self, product: tuple[int, ...]):
        """An array; rows are multiplied with rows, columns with columns, then all of them."""
        if len(product) == 1:
            return self.arrays[product[0]]
        if product not in self.products:
            left, right = map(self.multiplied, self.parts(product))
            self.products[product] = left * right
        return self.products[product]

    def parts(self, product: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Two factors: the last of a kind, and what comes before them."""
        shapes = [self.arrays[n].shape for n in product]
        first = shapes.index(shapes[-1]) or len(product) - 1
        return product[:first], product[first:]


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


def _is_zero(value) -> bool:
    if isinstance(value, Sum):
        value = value.terms.get(()) if len(value.terms) == 1 else None
    return not isinstance(value, jax.Array | None) and np.size(value) == 1 and float(value) == 0


def _inexact(variable) -> bool:
    return jnp.issubdtype(variable.aval.dtype, jnp.inexact)
