"""Inputs at the public entry points: shapes, masks and types, checked and put in one form."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..layers.base import Layer, leaves


class Stream(eqx.Module):
    """One input of a network: values `(n, S, features)` or token ids `(n, S)`.

    Valid tokens come first in every row (`order` tells where they were), so that a position is an
    index; padded values are zero.
    """

    x: jax.Array
    mask: jax.Array | None
    order: jax.Array | None
    grid: tuple[int, ...] = eqx.field(static=True)
    readout: bool = eqx.field(static=True)
    ids: bool = eqx.field(static=True)
    dtype: np.dtype = eqx.field(static=True)

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def tokens(self) -> int:
        return math.prod(self.grid)

    def take(self, index) -> Stream:
        """The inputs with these indices."""
        return jax.tree.map(lambda a: a[index], self)


def padded(s: Stream, tokens: int) -> Stream:
    """The same inputs with padding up to this number of tokens."""
    more = tokens - s.tokens
    if not more:
        return s
    mask = jnp.ones((s.n, s.tokens), bool) if s.mask is None else s.mask
    widths = [(0, 0), (0, more)] + ([] if s.ids else [(0, 0)])
    order = (
        None
        if s.order is None
        else jnp.concatenate(
            [s.order, jnp.broadcast_to(jnp.arange(s.tokens, tokens), (s.n, more))], axis=1
        )
    )
    return Stream(
        jnp.pad(s.x, widths),
        jnp.pad(mask, [(0, 0), (0, more)]),
        order,
        (tokens,),
        s.readout,
        s.ids,
        s.dtype,
    )


def is_traced(tree) -> bool:
    """Whether any array in the tree is being traced by a JAX transformation."""

    def traced(leaf) -> bool:
        if not isinstance(leaf, jax.Array):
            return False
        try:
            leaf.devices()
        except jax.errors.ConcretizationTypeError:
            return True
        return False

    return any(traced(leaf) for leaf in jax.tree.leaves(tree))


def float_type(arrays, dtype) -> np.dtype:
    """The type kernels are computed in: NumPy's promotion of the floating inputs.

    Half precision becomes float32, integers float64, unless `dtype` says otherwise.
    """
    if dtype is not None:
        dtype = np.dtype(dtype)
        if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be float32 or float64, got {dtype}")
        return dtype
    kinds = [np.dtype(a.dtype) for a in arrays]
    floats = [k for k in kinds if jnp.issubdtype(k, jnp.floating)]
    wide = [np.dtype(np.float32) if k.itemsize < 4 else k for k in floats]
    if len(floats) < len(kinds) or not floats:
        wide = wide or [np.dtype(np.float64)]
    return np.result_type(*wide)


def as_arrays(given, name: str) -> tuple:
    """One or several inputs as a tuple of arrays."""
    arrays = given if isinstance(given, tuple) else (given,)
    arrays = tuple(a if isinstance(a, (jax.Array, np.ndarray)) else _array(a, name) for a in arrays)
    for a in arrays:
        if not any(
            jnp.issubdtype(a.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)
        ):
            raise TypeError(f"{name} must be an array of numbers, got dtype {a.dtype}")
    return arrays


def _array(given, name: str) -> np.ndarray:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ValueError(
            f"{name} is not a rectangular array ({error}); pad sequences of different lengths and "
            f"pass {name}_mask, True where a token is valid"
        ) from None


def streams_of(
    net: Layer, x, mask, name: str, *, dtype, checked: bool = True
) -> tuple[Stream, ...]:
    """The inputs of a network in one form; `checked` values are concrete and get looked at."""
    arrays = as_arrays(x, name)
    masks = mask if isinstance(mask, tuple) else (mask,) * (1 if len(arrays) == 1 else 0)
    if mask is None:
        masks = (None,) * len(arrays)
    if len(masks) != len(arrays):
        raise ValueError(
            f"{name} has {len(arrays)} inputs but {name}_mask has {len(masks)}; give a tuple with "
            "one mask (or None) each"
        )
    counts = {a.shape[0] if a.ndim else 0 for a in arrays}
    if len(counts) > 1:
        raise ValueError(f"the inputs in {name} have different numbers of rows {sorted(counts)}")
    takes_ids = any(type(leaf).__name__ == "Embed" for _, leaf in leaves(net))
    windows = any(len(getattr(leaf, "window", ())) == 1 for _, leaf in leaves(net))
    labels = [name if len(arrays) == 1 else f"{name}[{i}]" for i in range(len(arrays))]
    return tuple(
        _stream(a, m, label, dtype, checked, takes_ids, windows, len(arrays) == 1)
        for a, m, label in zip(arrays, masks, labels, strict=True)
    )


def _stream(x, mask, name, dtype, checked, takes_ids, windows, alone) -> Stream:
    ids = takes_ids and x.ndim == 2 and (jnp.issubdtype(x.dtype, jnp.integer) or alone)
    if ids:
        x = _token_ids(x, name, checked)
    elif x.ndim not in (2, 3, 4):
        raise ValueError(
            f"{name} has shape {x.shape}; expected (n, features), (n, tokens, features), "
            "(n, height, width, channels), or (n, tokens) integers for a network with lf.Embed"
            + (f"; one input alone is {name}[None]" if x.ndim == 1 else "")
        )
    if 0 in x.shape:
        raise ValueError(f"{name} has shape {x.shape}: it is empty (no rows, tokens or features)")
    grid = (x.shape[1],) if ids else ((1,) if x.ndim == 2 else tuple(x.shape[1:-1]))
    readout = not ids and x.ndim == 2
    order = None
    if mask is not None:
        mask = _check_mask(mask, x.shape[0], grid, name, readout)
        mask = mask.reshape(mask.shape[0], -1)
        traced = is_traced(mask)
        if not traced:
            mask = np.asarray(mask)
            empty = np.flatnonzero(~mask.any(axis=1))
            if empty.size:
                raise ValueError(
                    f"{name}_mask leaves no valid token in rows {_some(empty)}; drop these rows"
                )
            if len(grid) == 1:
                contiguous = _contiguous(mask)
                if windows and not contiguous.all():
                    raise ValueError(
                        f"{name}_mask has gaps in rows {_some(np.flatnonzero(~contiguous))}, and "
                        "convolutions or pools over sequences need contiguous valid tokens"
                    )
            if mask.all():
                mask = None
    values = x if ids else x.reshape(x.shape[0], math.prod(grid), x.shape[-1])
    if mask is not None and len(grid) == 1 and _reorders(mask):
        order = jnp.argsort(~jnp.asarray(mask), axis=1, stable=True)
        rows = jnp.arange(values.shape[0])[:, None]
        mask, values = jnp.asarray(mask)[rows, order], jnp.asarray(values)[rows, order]
    if checked and not ids and jnp.issubdtype(values.dtype, jnp.floating):
        finite = np.isfinite(np.asarray(values)).all(axis=-1)
        finite = finite if mask is None else finite | ~np.asarray(mask)
        bad = np.flatnonzero(~np.all(finite, axis=1))
        if bad.size:
            raise ValueError(
                f"{name} has NaN or infinite values in rows {_some(bad)}; remove or impute them, "
                f"or mask the tokens with {name}_mask"
            )
    values = jnp.asarray(values) if ids else jnp.asarray(values).astype(dtype)
    if mask is not None:
        mask = jnp.asarray(mask)
        keep = mask if ids else mask[..., None]
        values = jnp.where(keep, values, jnp.zeros((), values.dtype))
    return Stream(values, mask, order, grid, readout, ids, np.dtype(dtype))


def _token_ids(x, name: str, checked: bool):
    if not jnp.issubdtype(x.dtype, jnp.integer):
        if not checked or not bool(np.all(np.asarray(x) == np.round(np.asarray(x)))):
            raise TypeError(
                f"{name} has dtype {x.dtype}, but the network starts with lf.Embed and takes token "
                "ids: integers of shape (n, tokens)"
            )
        raise TypeError(
            f"{name} holds whole numbers as {x.dtype}; pass {name}.astype(int) for token ids"
        )
    if checked and bool(np.any(np.asarray(x) < 0)):
        raise ValueError(f"{name} has negative token ids; ids start at 0, mask padding instead")
    return x


def _check_mask(mask, n: int, grid, name: str, readout: bool):
    mask = mask if isinstance(mask, (jax.Array, np.ndarray)) else np.asarray(mask)
    if readout:
        raise ValueError(f"{name} of shape (n, features) has no tokens, so it takes no mask")
    if mask.dtype != bool:
        raise TypeError(
            f"{name}_mask has dtype {mask.dtype}; it must be bool, True where a token is valid "
            f"(for 0/1 use {name}_mask.astype(bool))"
        )
    if mask.shape != (n, *grid):
        raise ValueError(f"{name}_mask has shape {mask.shape}, expected {(n, *grid)}")
    return mask


def _reorders(mask) -> bool:
    """Whether some row has a valid token after an invalid one (or that is not known yet)."""
    return is_traced(mask) or bool((np.diff(np.asarray(mask).astype(int), axis=1) > 0).any())


def _contiguous(mask: np.ndarray) -> np.ndarray:
    """Rows whose valid tokens have no gap between them."""
    starts = (np.diff(mask.astype(int), axis=1, prepend=0) > 0).sum(axis=1)
    return starts <= 1


def _some(rows) -> str:
    shown = ", ".join(str(r) for r in rows[:8])
    return f"[{shown}{', ...' if len(rows) > 8 else ''}]"
