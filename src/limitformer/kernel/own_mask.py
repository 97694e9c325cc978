"""Records that are the mask of the input itself.

Most layers keep the mask of their tokens for the cross pass, and it is the same one: that of the
input, once for every layer and turn of a repeat. A program of a whole network (`whole`) would load
each of them and hold it in registers. Whether they are equal is seen when the records are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .inputs import Stream


class OwnMask(eqx.Module):
    """In place of a record: the mask of the input itself, which a program then loads once.

    Attributes:
        turns: of the repeats around the layer that keeps it.
    """

    turns: tuple[int, ...] = eqx.field(static=True)

    def of(self, mask):
        """The record `(n, *turns, S)` of a mask `(n, S)`."""
        lines = mask.reshape(len(mask), *(1 for _ in self.turns), -1)
        return jnp.broadcast_to(lines, (len(mask), *self.turns, mask.shape[-1]))


def own_masks(streams: tuple[Stream, ...], records) -> list:
    """For every array of some records, whether it is the mask of the inputs; [] if none can be."""
    mask: Any = streams[0].mask
    if mask is None or len(streams) > 1:
        return []

    def is_own(a):
        fits = a.dtype == bool and a.ndim > 1 and (a.shape[0], a.shape[-1]) == mask.shape
        return jnp.all(a == OwnMask(a.shape[1:-1]).of(mask)) if fits else jnp.zeros((), bool)

    return [is_own(a) for a in jax.tree.leaves(records)]


def marked(records, own: list):
    """Records with `OwnMask` where `own_masks` found them."""
    leaves, structure = jax.tree.flatten(records)
    own = own or [False] * len(leaves)
    found = [OwnMask(a.shape[1:-1]) if o else a for a, o in zip(leaves, own, strict=True)]
    return structure.unflatten(found)


def filled(records, make: Callable):
    """Records without `OwnMask`: `make` gives the array instead of one."""
    is_own = lambda a: isinstance(a, OwnMask)  # noqa: E731
    return jax.tree.map(lambda a: make(a) if is_own(a) else a, records, is_leaf=is_own)
