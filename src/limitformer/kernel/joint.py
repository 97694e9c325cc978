"""All inputs through the layers together, with the scores of finitely many heads drawn.

Scores of all inputs and heads are jointly Gaussian, Cov(G_ac(x), G_bd(y)) = s_QK^2 K_ab(x,y)
K_cd(x,y), so a draw needs the joint token kernel of everything that is asked about. Given the
scores, every layer is the map that it is for infinitely many heads.
"""

from __future__ import annotations

import dataclasses
import functools

import jax

from ..layers.base import AnyLayer, Composite, Context
from .loops import is_cross, is_marginal
from .pairs import Joint, PairRun, join, split
from .passes import CrossRun, MarginalRun, turn_name


class JointRun(PairRun):
    """One draw of the conditional kernels of all pairs of some inputs: `Joint(x, None, k)`."""

    def context(self, path: str) -> Context:
        given = self.options.normals
        normals = None if given is None else functools.partial(given, turn_name(path, self.depth))
        new = {"joint": True, "normals": normals, "first": self.options.first}
        return dataclasses.replace(super().context(path), **new)

    def __call__(self, layer: AnyLayer, state, name: str):
        if isinstance(layer, Composite):
            return layer.flow(state, self.inner(name))
        path = f"{self.path}/{name}"
        ctx = self.context(path)
        x, _, k = split(state)
        if layer.random_scores:
            ctx = dataclasses.replace(ctx, features=layer.joint_features(x, k, ctx))
        x, record = layer.marginal(x, ctx)
        k = layer.cross(k, *_both(record), ctx)
        x, k = (
            jax.tree.map(
                lambda s, form=form: s.reduced(form),
                part,
                is_leaf=lambda s: is_marginal(s) or is_cross(s),
            )
            for part, form in ((x, ctx.need.marginal), (k, ctx.need.cross))
        )
        state = join(x, None if not isinstance(k, tuple) else (None,) * len(k), k)
        self.seen(path, state)
        return state

    def _sides(self, act_marginal, act_cross, states):
        run = MarginalRun(self.options, self.path, self.depth)
        x = act_marginal(run, *(s.x for s in states))
        cross = CrossRun(self.options, *_both(run.records), 2, self.path, self.depth)
        return Joint(x, None, act_cross(cross, *(s.k for s in states)))


def _both(record):
    """A record laid out for all pairs of the inputs."""
    return jax.tree.map(lambda a: a[:, None], record), jax.tree.map(lambda a: a[None, :], record)
