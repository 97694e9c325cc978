"""The demo's step on heads: what 1, 4, 16 and infinitely many heads predict."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import limitformer as lf
from limitformer.heads.distance import Distances, distances
from limitformer.heads.law import Law
from limitformer.heads.posterior import HeadsPosterior
from limitformer.heads.prediction import MixturePrediction

NOISE = 0.05
PAIR = (3, 8)
_DRAWS = 1024  # of scores, for the limit


@dataclasses.dataclass(frozen=True, eq=False)
class FewHeads:
    """The network with a number of heads: laws at one image, and its posterior.

    Attributes:
        patch: the law of one patch after attention alone.
        law: the law of the whole network's output.
        distance: of the first from a Gaussian.
    """

    heads: int
    patch: Law
    law: Law
    distance: Distances
    posterior: HeadsPosterior
    prediction: MixturePrediction

    def log_density(self, targets: np.ndarray) -> Float[np.ndarray, " m"]:
        return self.prediction.log_density(targets, NOISE)


@dataclasses.dataclass(frozen=True, eq=False)
class Heads:
    """What finitely many heads change; made by `compare_heads`.

    Attributes:
        few: the networks of finitely many heads.
        log_evidence, mean, variance: of the limit of infinitely many.
        images, targets: held out, +1 for the first digit of the pair and -1 for the second.
        train: number of images to learn from.
    """

    few: tuple[FewHeads, ...]
    log_evidence: float
    mean: Float[np.ndarray, " m"]
    variance: Float[np.ndarray, " m"]
    images: Float[np.ndarray, "m 8 8 1"]
    targets: Float[np.ndarray, " m"]
    train: int

    @property
    def log_density(self) -> Float[np.ndarray, " m"]:
        """Of the held-out targets, under the limit."""
        v = self.variance + NOISE
        return -0.5 * ((self.targets - self.mean) ** 2 / v + np.log(2 * np.pi * v))


def compare_heads(
    net: Any,
    attention: lf.Attention,
    images: np.ndarray,
    labels: np.ndarray,
    held_out: np.ndarray,
    held_out_labels: np.ndarray,
    *,
    key,
    heads: tuple[int, ...],
    draws: int,
    particles: int,
    train: int,
    test: int,
    progress=None,
) -> Heads:
    """The law and the posterior of a network by number of heads, on two kinds of digits.

    Args:
        net: a vision transformer with softmax attention and a `Dense` readout, whose gain is chosen
            by the evidence of the limit.
        attention: of that network, to be looked at alone.
        images, labels, held_out, held_out_labels: to learn from, and to ask about.
        heads: numbers of heads.
        draws: of the law at the first image.
        particles: posterior draws.
        train, test: images of the pair that are used.
        progress: called with the part that is done.
    """
    report = progress or (lambda part: None)
    own, new = (
        np.flatnonzero(np.isin(which, PAIR))[:count]
        for which, count in ((labels, train), (held_out_labels, test))
    )
    x, z = images[own].astype(float), held_out[new].astype(float)
    y, y_new = (
        np.where(which == PAIR[0], 1.0, -1.0) for which in (labels[own], held_out_labels[new])
    )
    gain = _gain(np.asarray(net.kernel(x, kinds="nngp", draws=_DRAWS).nngp), y)
    net = lf.Serial(*net.layers[:-1], lf.Dense(gain))
    limit = lf.condition(net, x, y, noise=NOISE, draws=_DRAWS)
    mean, variance = limit.predict(z, cov="diag")
    alone = lf.Serial(*net.layers[:2], lf.LayerNorm(), attention, lf.FirstToken())
    few = []
    for i, h in enumerate(heads):
        report((i + 0.5) / (len(heads) + 0.5))
        k_law, k_post = jax.random.split(jax.random.fold_in(key, h))
        patch, law = (of.with_heads(h).law(x[:1], key=k_law, draws=draws) for of in (alone, net))
        post = lf.condition(net.with_heads(h), x, y, noise=NOISE, key=k_post, draws=particles)
        few.append(FewHeads(h, patch, law, distances(patch), post, post.predict(z)))
    return Heads(tuple(few), limit.log_evidence, mean, variance, held_out[new], y_new, len(x))


def _gain(K: np.ndarray, y: np.ndarray) -> float:
    """The gain of the readout with the largest evidence of a^2 K + noise."""
    w, U = np.linalg.eigh(K)
    c = (U.T @ y) ** 2
    grid = np.geomspace(0.25, 64, 33)
    total = [np.sum(c / (a * a * w + NOISE) + np.log(a * a * w + NOISE)) for a in grid]
    return float(grid[int(np.argmin(total))])
