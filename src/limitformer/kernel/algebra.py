"""Sums and products of a traced function, gathered before they are computed.

Layers say what they do one after another: s K, then K + b, then w2 K + r2 K'. Where memory is what
counts a compiler fuses them, and the arithmetic is free. A program that keeps a pair of inputs on
the chip (`whole`) waits for nothing else, and compilers must not reorder floating-point numbers. So
values are kept as

    Σ_i c_i Π_j A_ij,    c_i numbers, A_ij arrays,

until an operation needs one that is neither a sum nor a product: numbers are multiplied with
numbers, and an entry of K sees one multiply-add for each term. What K' and T' have in common, a
layer's value and its bias, is added up once. Products of sums are not expanded: polynomials stay in
Horner's form, and differences are taken where they were written.
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


class Values:
    """What a traced function computes: arrays, and sums of products of them.

    Args:
        multiply_add: as for `simplified`.
    """

    def __init__(self, multiply_add: Callable):
        self.multiply_add = multiply_add
        self.arrays: list[Any] = []
        # what was computed, to be used again: any operation, products, and sums of some terms
        self.results: dict[tuple, tuple] = {}
        self.products: dict[tuple[int, ...], Any] = {}
        self.sums: dict[frozenset, Any] = {}

    def run(self, closed, given) -> list:
        """Values of a traced function's results; `given` are those of its arguments."""
        jaxpr = closed.jaxpr
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *given), strict=True))
        read = lambda v: v.val if isinstance(v, Literal) else known[v]  # noqa: E731
        for equation in jaxpr.eqns:
            found = self.step(equation, [read(v) for v in equation.invars])
            known |= zip(equation.outvars, found, strict=True)
        return [read(v) for v in jaxpr.outvars]

    def step(self, equation, given) -> list:
        """One operation."""
        name, params = equation.primitive.name, equation.params
        if name in _CALLS:
            return self.run(params[_CALLS[name]], given)
        if name in ("mul", "add", "sub", "neg") and _inexact(equation.outvars[0]):
            a, *others = map(self.sum_of, given)
            if name == "neg":
                return [self.plus(Sum({}), a, -1)]
            (b,) = others
            return [
                self.product(a, b) if name == "mul" else self.plus(a, b, 1 - 2 * (name == "sub"))
            ]
        if name == "broadcast_in_dim" and self.stays(equation, given[0]):
            return [given[0]]
        if name == "select_n" and (found := self.masked(equation, given)) is not None:
            return [found]
        arrays = [self.computed(a, v.aval) for a, v in zip(given, equation.invars, strict=True)]
        if name == "while":
            return self.loop(params, arrays)
        if equation.effects or any(hasattr(p, "jaxpr") for p in params.values()):
            return _applied(equation, arrays)
        return self.once((name, str(params)), arrays, lambda: _applied(equation, arrays))

    def once(self, name: tuple, given, compute: Callable) -> Any:
        """What this computes, or what it was when it was computed from the same values."""
        key = (*name, *map(_key, given))
        if key not in self.results:
            self.results[key] = compute(), given  # both, so that no other array gets their ids
        return self.results[key][0]

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
        ones = lambda: (which if zero[0] else ~which).astype(result.aval.dtype)  # noqa: E731
        valid = self.once(("valid", zero[0]), [which], ones)
        return self.product(*map(self.sum_of, (valid, cases[zero[0]])))

    def sum_of(self, value) -> Sum:
        if isinstance(value, Sum):
            return value
        if jnp.size(value) == 1:
            return Sum({(): value})
        number = self.once(("number",), [value], lambda: len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(value)
        return Sum({(number,): 1})

    def plus(self, a: Sum, b: Sum, sign: int) -> Sum:
        found = dict(a.terms)
        for product, factor in b.terms.items():
            more = self.times(sign, factor)
            if product in found:
                both = found[product], more
                more = self.once(("add",), both, lambda both=both: both[0] + both[1])
            found[product] = more
        return Sum(found)

    def product(self, a: Sum, b: Sum) -> Sum:
        """A sum times a number, or two single terms; other sums are computed first."""
        if any(a.terms) and any(b.terms):
            a, b = (s if len(s.terms) == 1 else self.sum_of(self.computed(s)) for s in (a, b))
        order = lambda n: (self.arrays[n].size, self.arrays[n].shape, n)  # noqa: E731
        return Sum(
            {
                tuple(sorted((*p, *q), key=order)): self.times(c, d)
                for p, c in a.terms.items()
                for q, d in b.terms.items()
            }
        )

    def times(self, a, b):
        """a b of two numbers, without a product where one of them is the integer 1 or -1."""
        if _is_sign(a) or _is_sign(b):
            return _signed(a, b)
        a, b = sorted((a, b), key=lambda value: str(_key(value)))
        return self.once(("mul",), (a, b), lambda: a * b)

    def computed(self, value, like=None):
        """An array, with the shape of another one if that is given."""
        total: Any = self.total(value) if isinstance(value, Sum) else value
        if like is None or (jnp.shape(total), jnp.result_type(total)) == (like.shape, like.dtype):
            return total
        return jnp.broadcast_to(total, like.shape).astype(like.dtype)

    def total(self, value: Sum):
        """The sum of all terms, from the longest part of it that was computed before.

        Numbers come first, because a multiply-add takes one for nothing. Then what is newest and
        rows times columns: a layer's value and its bias, which K' and T' have in common.
        """
        wanted = frozenset((p, _key(c)) for p, c in value.terms.items())
        done = max((part for part in self.sums if part <= wanted), key=len, default=frozenset())
        total = self.sums.get(done)
        for product in self.ordered(value.terms):
            term = product, _key(value.terms[product])
            if term not in done:
                total = self.with_term(total, product, value.terms[product])
                done = done | {term}
                self.sums[done] = total
        return total

    def ordered(self, products) -> list[tuple[int, ...]]:
        """A number, the newest product, products of rows and columns alone, and the others."""
        full = [p for p in products if any(1 not in self.arrays[n].shape for n in p)]
        full.sort(key=max, reverse=True)
        return [
            *(() in products) * [()],
            *full[:1],
            *(p for p in products if p and p not in full),
            *full[1:],
        ]

    def with_term(self, total, product: tuple[int, ...], factor):
        """One more term."""
        if not product:
            return factor if total is None else total + factor
        if total is None and _is_sign(factor):
            return _signed(factor, self.multiplied(product))
        if _is_sign(factor) and (len(product) == 1 or product in self.products):
            term = self.multiplied(product)
            return total + term if factor == 1 else total - term
        left, right = self.halves(product, factor)
        sign = factor if _is_sign(factor) else 1
        return left * right if total is None else self.multiply_add(left, right, total, sign)

    def halves(self, product: tuple[int, ...], factor) -> tuple:
        """Two values whose product is a term but for its sign.

        A factor of rows or columns costs nothing.
        """
        if len(product) > 1 and product not in self.products:
            left, right = self.parts(product)
            if _is_sign(factor):
                return self.multiplied(left), self.multiplied(right)
            if 1 in self.arrays[left[-1]].shape and left not in self.products:
                ahead, last = self.parts(left) if self._mixed(left) else ((), left)
                scaled = factor * self.multiplied(ahead or last)
                scaled = scaled * self.multiplied(last) if ahead else scaled
                return scaled, self.multiplied(right)
        return self.multiplied(product), factor

    def _mixed(self, product: tuple[int, ...]) -> bool:
        """Rows and columns."""
        return len({self.arrays[n].shape for n in product}) > 1

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


def multiply_add(a, b, c, sign: int):
    """c + a b, or c - a b."""
    return c + a * b if sign == 1 else c - a * b


def simplified(function: Callable, multiply_add: Callable = multiply_add) -> Callable:
    """The same function of arrays up to rounding, with fewer operations.

    Args:
        function: of arrays, or of trees of them.
        multiply_add: how c + a b or c - a b is computed, from a, b, c and the sign.
    """

    @functools.wraps(function)
    def evaluated(*args):
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        values = Values(multiply_add)
        given = jax.tree.leaves(args)
        for value in given:
            values.sum_of(value)  # what is given is older than what is computed
        found = values.run(traced, given)
        leaves, form = jax.tree.flatten(shapes)
        return form.unflatten(map(values.computed, found, leaves))

    return evaluated


def _applied(equation, arrays) -> list:
    """An operation as it is; a sum over all axes along one."""
    axes = equation.params.get("axes", ())
    if equation.primitive.name == "reduce_sum" and 1 < arrays[0].ndim == len(axes):
        return [arrays[0].reshape(-1).sum()]
    found = equation.primitive.bind(*arrays, **equation.params)
    return found if equation.primitive.multiple_results else [found]


def _key(value) -> tuple:
    """Equal for the same array, and for equal numbers that are known."""
    if isinstance(value, jax.Array) or np.ndim(value):
        return (type(value).__name__, id(value))
    return type(value).__name__, str(jnp.result_type(value)), float(value)


def _signed(a, b):
    """a b where one of them is the integer 1 or -1."""
    sign, value = (a, b) if _is_sign(a) else (b, a)
    return value if sign == 1 else -value


def _is(a, number: int) -> bool:
    return isinstance(a, int) and a == number


def _is_sign(a) -> bool:
    return _is(a, 1) or _is(a, -1)


def _is_zero(value) -> bool:
    if isinstance(value, Sum):
        value = value.terms.get(()) if len(value.terms) == 1 else None
    return not isinstance(value, jax.Array | None) and np.size(value) == 1 and float(value) == 0


def _inexact(variable) -> bool:
    return jnp.issubdtype(variable.aval.dtype, jnp.inexact)
