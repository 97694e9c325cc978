"""Convolutions over sequences and images, and average pooling over windows."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from ..kernel.state import Cross, Form, Marginal, Need, between
from .activation import on_valid
from .base import Context, Leaf, Work, hyper, kernel_entries
from .dense import bias, bias_feature, check_parametrisation, init_weights, weight_T, weights
from .window import Window, sum_of

_WIDEST_PATCH = 64  # features up to which one product is cheaper than sums over the window


class Conv(Leaf):
    """f_a = w_std / sqrt(|F| fan_in) sum_{f in F} W_f h_{a+f} + b_std b.

    K'_ab = w^2 / |F| sum_f K_{a+f, b+f} + b^2, T'_ab = K'_ab + w^2 / |F| sum_f T_{a+f, b+f};
    the same weights act at every position, so both tokens move together.

    Args:
        window: `(9,)` for sequences, `(3, 3)` for images.
        stride: step of the window.
        padding: "same" (zeros; the centre must be valid), "valid" (the whole window must be) or
            "circular" (no mask).
        parametrisation, width: as for `Dense`; fan_in is |F| times the input channels.
    """

    makes_channels: ClassVar[bool] = True

    window: tuple[int, ...] = eqx.field(static=True)
    w_std: float = eqx.field(converter=hyper, default=1.0)
    b_std: float = eqx.field(converter=hyper, default=0.0)
    stride: int | tuple[int, ...] = eqx.field(static=True, default=1)
    padding: str = eqx.field(static=True, default="same")
    parametrisation: str = eqx.field(static=True, default="ntk")
    width: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_parametrisation(self.parametrisation, self.width)
        Window.of(self.window, self.stride, self.padding)

    @property
    def spec(self) -> Window:
        return Window.of(self.window, self.stride, self.padding)

    @property
    def fan_in(self) -> int | None:
        return None if self.width is None else self.width * self.spec.count

    def needs(self, out: Need) -> Need:
        return out

    def marginal(self, state: Marginal, ctx: Context):
        spec, facts = self.spec, state.facts
        spec.check(facts.grid, state.mask is not None, facts.readout, ctx.path)
        mask = spec.mask(state.mask, facts.grid)
        unit = state.unit if mask is None else jnp.where(jnp.any(mask, -1), state.unit, 0.0)
        new = Marginal(
            facts.fresh(ctx.path, grid=spec.out_grid(facts.grid)),
            unit,
            diag=state.diag,
            mask=mask,
            index=state.index,
        )
        if state.K is not None:
            grid_y = None if state.diag else facts.grid
            total = spec.kernel_total(state.K, facts.grid, grid_y)
            new = dataclasses.replace(new, K=self.w_std**2 / spec.count * total)
            K = new.K + bias(self.b_std, new)
            if mask is not None:
                K = K * new.tokenwise(mask.astype(K.dtype))
            new = dataclasses.replace(new, K=K)
        patches = self._patches(state, mask)
        if patches is not None:
            new = dataclasses.replace(new, F=patches)
            F = jnp.concatenate([patches, bias_feature(self.b_std, new)], axis=-1)
            new = dataclasses.replace(new, F=F)
        return new, WindowRecord(facts.grid, mask, patches=patches)

    def _patches(self, state: Marginal, mask) -> Any:
        """Features of the output without bias, K' = F' F'^T + b^2, while they are few."""
        spec, F = self.spec, state.F
        if F is None or state.unit.ndim != 1 or F.shape[-1] * spec.count > _WIDEST_PATCH:
            return None
        views = jnp.concatenate(list(seen_through(spec, F, state.facts.grid)), axis=-1)
        patches = self.w_std / math.sqrt(spec.count) * views.reshape(len(F), -1, views.shape[-1])
        return patches if mask is None else jnp.where(mask[..., None], patches, 0.0)

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        spec = self.spec
        b2 = self.b_std**2 * jnp.ones((), k.K.dtype)
        grid_y = None if k.diag else ry.grid

        def moved(value) -> Any:
            if value is None:
                return None
            total = self.w_std**2 / spec.count * spec.kernel_total(value, rx.grid, grid_y)
            return k.masked(total, rx.mask, ry.mask)

        b2 = k.masked(b2, rx.mask, ry.mask)
        if rx.patches is None or ry.patches is None:
            linear = moved(k.K)
        else:
            linear = between(rx.patches, ry.patches, k.diag)
        through = moved(k.T) if ctx.ntk else None
        return Cross(linear + b2, weight_T(self, k, linear, through, b2, ctx), k.diag)

    def init(self, key, acts, ctx):
        C = acts.h.shape[-1]
        count = self.spec.count
        return init_weights(self, key, (count, C, ctx.channels), count * C, acts.h.dtype)

    def apply(self, params, acts, ctx):
        spec, n, C = self.spec, acts.h.shape[0], acts.h.shape[-1]
        spec.check(acts.grid, acts.mask is not None, acts.readout, ctx.path)
        w, b = weights(self, params, spec.count * C)
        shifts = seen_through(spec, acts.on_valid(acts.h), acts.grid)
        h = sum_of(shift @ w[i] for i, shift in enumerate(shifts)) + b
        mask = spec.mask(acts.mask, acts.grid)
        return acts.fresh(h.reshape(n, -1, h.shape[-1]), mask=mask, grid=spec.out_grid(acts.grid))

    def work(self, S1, S2, out, draws):
        entries = kernel_entries(S1, S2, out)
        return Work(elements=2 * sum(self.spec.size) * entries, moved=12 * entries)


class AvgPool(Leaf):
    """Mean over a window of tokens, f_a = mean_{f in F} h_{a+f}: K'_ab = mean_{f,g} K_{a+f, b+g}.

    With "same" padding the mean is over the valid tokens of the window; with "valid" padding the
    whole window must be valid. This is the local average pooling of Hron 2020.

    Args:
        window: `(2, 2)` for images, `(4,)` for sequences.
        stride: step of the window; the window's size unless given.
    """

    window: tuple[int, ...] = eqx.field(static=True)
    stride: int | tuple[int, ...] | None = eqx.field(static=True, default=None)
    padding: str = eqx.field(static=True, default="valid")

    def __check_init__(self):
        if self.padding == "circular":
            raise ValueError('AvgPool takes padding="valid" or "same"')
        Window.of(self.window, self.stride or self.window, self.padding)

    @property
    def spec(self) -> Window:
        return Window.of(self.window, self.stride or self.window, self.padding)

    def needs(self, out: Need) -> Need:
        return Need(Form.FULL, Form.FULL if out.marginal else Form.NONE)

    def _inverse_count(self, state_mask, grid, unit):
        """1 / (valid tokens of each window), `(*n, S')`."""
        spec = self.spec
        if spec.padding == "valid":
            tokens = math.prod(spec.out_grid(grid))
            return jnp.broadcast_to(jnp.asarray(1 / spec.count, unit.dtype), (*unit.shape, tokens))
        shape = (*unit.shape, math.prod(grid))
        ones = jnp.ones(shape, unit.dtype) if state_mask is None else state_mask.astype(unit.dtype)
        return 1 / jnp.maximum(spec.kernel_total(ones, grid), 1)

    def _sum(self, K, record_x, record_y):
        """Both token axes of a kernel pooled."""
        spec = self.spec
        K = spec.kernel_total(jnp.swapaxes(K, -1, -2), record_x.grid)
        K = spec.kernel_total(jnp.swapaxes(K, -1, -2), record_y.grid)
        return K * record_x.scale[..., :, None] * record_y.scale[..., None, :]

    def marginal(self, state: Marginal, ctx: Context):
        spec, facts = self.spec, state.facts
        spec.check(facts.grid, state.mask is not None, facts.readout, ctx.path)
        mask = spec.mask(state.mask, facts.grid)
        scale = on_valid(self._inverse_count(state.mask, facts.grid, state.unit), mask)
        record = WindowRecord(facts.grid, mask, scale)
        unit = state.unit if mask is None else jnp.where(jnp.any(mask, -1), state.unit, 0.0)
        m = None if state.m is None else spec.kernel_total(state.m, facts.grid) * scale
        K = None if state.K is None else self._sum(state.K, record, record)
        facts = facts.passed("AvgPool", grid=spec.out_grid(facts.grid))
        return Marginal(facts, unit, K, False, m, None, mask, index=state.index), record

    def cross(self, k: Cross, rx, ry, ctx: Context) -> Cross:
        return Cross(self._sum(k.K, rx, ry), None if k.T is None else self._sum(k.T, rx, ry))

    def apply(self, params, acts, ctx):
        spec = self.spec
        spec.check(acts.grid, acts.mask is not None, acts.readout, ctx.path)
        n, C = acts.h.shape[0], acts.h.shape[-1]
        total = sum_of(seen_through(spec, acts.on_valid(acts.h), acts.grid)).reshape(n, -1, C)
        mask = spec.mask(acts.mask, acts.grid)
        unit = jnp.ones(n, total.dtype)
        scale = on_valid(self._inverse_count(acts.mask, acts.grid, unit), mask)
        h = total * scale[..., None]
        return acts.passed(h, mask=mask, grid=spec.out_grid(acts.grid))

    def work(self, S1, S2, out, draws):
        return Work(elements=4 * sum(self.spec.size) * S1 * S2, moved=12 * S1 * S2)


class WindowRecord(eqx.Module):
    """What a windowed layer keeps of one input: its grid, the new mask, a scale per new token.

    `patches` are the features of a convolution's output, while they are known and few.
    """

    grid: tuple[int, ...] = eqx.field(static=True)
    mask: jnp.ndarray | None
    scale: jnp.ndarray | None = None
    patches: jnp.ndarray | None = None


def seen_through(spec: Window, h, grid):
    """The activations `(n, S, C)` seen through each window position, on the output grid."""
    views = [h.reshape(h.shape[0], *grid, h.shape[-1])]
    for dim in range(len(grid)):
        out = (spec.out_grid(grid)[dim],)
        views = [shift for view in views for shift in spec.shifts(view, dim, (1 + dim,), out)]
    return views
