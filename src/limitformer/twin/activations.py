"""What flows through a finite network."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

_KEEP = object()


class Activations(eqx.Module):
    """Channels of every token, `(n, S, C)`, with the mask and the shape of the token grid.

    `raw` says that no layer with weights has acted yet: such channels may be repeated to a width.
    """

    h: jax.Array | jax.ShapeDtypeStruct
    mask: jax.Array | None
    grid: tuple[int, ...] = eqx.field(static=True)
    readout: bool = eqx.field(static=True, default=False)
    raw: bool = eqx.field(static=True, default=True)

    def passed(self, h, mask=_KEEP, grid=None) -> Activations:
        """After a layer without weights."""
        return dataclasses.replace(
            self,
            h=h,
            mask=self.mask if mask is _KEEP else mask,
            grid=self.grid if grid is None else grid,
        )

    def fresh(self, h, mask=_KEEP, grid=None) -> Activations:
        """After a layer with weights of its own."""
        return dataclasses.replace(self.passed(h, mask, grid), raw=False)

    def pooled(self, h) -> Activations:
        """After a readout: one token, no mask."""
        return dataclasses.replace(self, h=h, mask=None, grid=(1,), readout=True)

    def on_valid(self, h):
        """`h` on valid tokens, zero on padding."""
        if self.mask is None:
            return h
        return jnp.where(self.mask[..., None], h, jnp.zeros((), h.dtype))

    def widened(self, width: int) -> Activations:
        """Raw channels repeated to the width, so that a code added to them has a limit."""
        return self.repeated(width) if self.raw else self

    def repeated(self, channels: int) -> Activations:
        """Raw channels repeated to a width, which keeps their second moment and mean."""
        C = self.h.shape[-1]
        if channels == C:
            return self
        if not self.raw or channels % C:
            raise ValueError(
                f"a sum of branches with {C} and {channels} channels: raw inputs are repeated to "
                f"the width, so choose a width that is a multiple of {C}"
                if self.raw
                else f"a sum of branches with {C} and {channels} channels, which do not match"
            )
        return dataclasses.replace(self, h=jnp.tile(jnp.asarray(self.h), (1, 1, channels // C)))
