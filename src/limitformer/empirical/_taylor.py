"""A finite network expanded around its parameters."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from limitformer.empirical._network import Network, check_params, join, precision_of, split


def linearize(f: Network, params: PyTree) -> Callable[[PyTree, Any], Any]:
    """The network linear in its parameters that touches f at `params`.

        f_lin(w', x) = f(w, x) + df(w, x)/dw . (w' - w)

    Its NTK is that of f at w, for every w'; training it is kernel regression with that NTK.

    Args:
        f: `f(params, x)` with an array or a pytree of arrays as its value.
        params: w, any pytree with floating-point arrays; other leaves are held fixed.

    Returns:
        `f_lin(params', x)`, with params' in the structure of params.

    Raises:
        ValueError: nothing to differentiate by; when called, params' of another structure.

    Example:
        >>> import jax.numpy as jnp
        >>> from limitformer import empirical
        >>> cube = lambda w, x: x * w**3
        >>> tangent = empirical.linearize(cube, jnp.array(1.0))
        >>> float(tangent(jnp.array(3.0), jnp.array(2.0)))  # 2 (1 + 3 (3 - 1))
        14.0
    """
    return taylor(f, params, 1)


def taylor(f: Network, params: PyTree, degree: int) -> Callable[[PyTree, Any], Any]:
    """The Taylor polynomial of the network in its parameters.

        f_D(w', x) = sum_{k=0}^D 1/k!  d^k/dt^k f(w + t (w' - w), x) at t = 0

    Cost and memory grow as 2^D evaluations of f.

    Args:
        f: `f(params, x)` with an array or a pytree of arrays as its value.
        params: w, any pytree with floating-point arrays; other leaves are held fixed.
        degree: D, at least 0.

    Returns:
        `f_D(params', x)`, with params' in the structure of params.

    Raises:
        ValueError: nothing to differentiate by, a negative degree; when called, params' of
            another structure.

    Example:
        >>> import jax.numpy as jnp
        >>> from limitformer import empirical
        >>> cube = lambda w, x: x * w**3
        >>> parabola = empirical.taylor(cube, jnp.array(1.0), degree=2)
        >>> float(parabola(jnp.array(3.0), jnp.array(2.0)))  # 2 (1 + 3 * 2 + 3 * 2**2)
        38.0
    """
    if isinstance(degree, bool) or not isinstance(degree, int) or degree < 0:
        raise ValueError(f"degree must be an integer of at least 0, got {degree!r}.")
    check_params(params)

    def expanded(new: PyTree, x: Any) -> Any:
        with precision_of(params, new, x) as finish:
            trained, fixed = split(params)
            other, _ = split(new)
            check_structure(trained, other)
            step = jax.tree.map(lambda b, a: b - a, other, trained)

            def term(k: int, at: PyTree) -> Any:
                """d^k f along the step, at `at`."""
                if k == 0:
                    return f(join(at, fixed), x)
                return jax.jvp(lambda at: term(k - 1, at), (at,), (step,))[1]

            value = term(0, trained)
            for k in range(1, degree + 1):
                scale = 1 / math.factorial(k)
                value = jax.tree.map(lambda v, d, s=scale: v + s * d, value, term(k, trained))
            return finish(value)

    return expanded


def check_structure(trained: PyTree, other: PyTree) -> None:
    """Raise unless both trees hold arrays of the same shapes and dtypes in the same places."""

    def shapes(tree):
        return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree)

    if jax.tree.structure(trained) != jax.tree.structure(other) or not eqx.tree_equal(
        shapes(trained), shapes(other)
    ):
        raise ValueError(
            "the new parameters must have the structure, shapes and dtypes of those expanded "
            f"around: {eqx.tree_pformat(trained)}, got {eqx.tree_pformat(other)}."
        )
