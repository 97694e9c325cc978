"""Layers that share their weights: the limit of ALBERT at its initialisation.

The stream h_l and what layers add to it, A_l (attention) and M_l (MLP), are joint Gaussians. With
one set of weights, Cov(W x, W y) = std^2 E[x y], so A_l and A_m are correlated for all l and m, as
the outputs of one layer on two inputs are:

    Cov(A_l, A_m) = K'(h_l, h_m),     Cov(A_l, M_m) = 0,     Cov(A_l, h_0) = 0.

The streams of all layers are therefore followed together, as inputs of one layer. Norms become
scales, so every stream is a sum of h_0, A_0, M_0, A_1, ... with one coefficient per token.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..depth.curves import METRICS, Curves
from ..kernel.gram import DRAWS
from ..kernel.joint import JointRun
from ..kernel.network import Network, cast, needs_of
from ..kernel.pairs import Joint
from ..kernel.state import Cross, Facts, Marginal
from ..layers.attention import inf
from ..layers.combine import Serial
from ..scores.replicates import draws_each, replicate_keys
from .limit import branches_of, inputs_of
from .plan import plan_of


def shared_profile(config: Any, ids: Any, *, key=None, draws: int = DRAWS) -> Curves:
    """Collapse metrics of a model whose layers share weights, in its limit, by layer.

    Infinite width and infinitely many heads, at initialisation, as `lf.depth_profile` of
    `limit_of` for a model whose layers do not share weights.

    Args:
        config: as for `limit_of`, of an ALBERT.
        ids: (tokens,) token ids.
        key, draws: score draws, in 8 replicates that give a standard error; fixed unless given.
            All pairs of layers are averaged in every layer: cost grows with the cube of the depth.

    Returns:
        `Curves` at the embedding and after every layer.

    Raises:
        ValueError: the layers of this architecture have weights of their own.

    Example:
        >>> config = {"model_type": "albert", "num_hidden_layers": 2, "initializer_range": 0.01}
        >>> shared_profile(config, np.arange(4), draws=64).mean("cosine").round(2)
        array([0.33, 0.39, 0.5 ])
    """
    p = plan_of(config)
    ids = np.asarray(ids)
    if p.distinct is None:
        raise ValueError(
            f"every layer of {p.kind} has weights of its own; use "
            "lf.depth_profile(lf.models.limit_of(config), ids[None])"
        )
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) < 2:
        raise ValueError(f"ids must be two or more whole numbers, got {ids.dtype} {ids.shape}")
    attention, mlp = branches_of(p)
    group = np.arange(p.depth) * p.distinct // p.depth
    same = (group[:, None] == group[None, :])[:, :, None, None]
    keys = replicate_keys(key=jax.random.key(0) if key is None else key)
    each = draws_each(draws)
    start = Serial(*inputs_of(p)).kernel(ids[None], kinds=("nngp",), dtype=np.float64).nngp
    K0 = np.asarray(start)[0, 0]
    with jax.enable_x64(True):
        first, second = (_network(layer) for layer in (attention.with_heads(inf), Serial(*mlp)))

        def one(key) -> np.ndarray:
            def attend(C):
                return np.where(same, _through(first, C, key, each), 0.0)

            def feed(C):
                return np.where(same, _through(second, C, key, each), 0.0)

            return _streams(K0, p.depth, p.eps, attend, feed)

        kernels = np.stack([one(k) for k in keys])  # (replicates, layers, S, S)
    values = {name: metric(kernel=kernels)[:, None] for name, metric in METRICS.items()}
    names = ("embedding", *(f"layer {i}" for i in range(p.depth)))
    return Curves("kernel", "infinitely many heads, shared weights", names, values, True)


def _streams(K0: np.ndarray, depth: int, eps: float, attend, feed) -> np.ndarray:
    """Token kernels of h_0 ... h_depth, (depth + 1, S, S), of post-norm layers.

    `attend` and `feed` map kernels (depth, depth, S, S) between the streams of all layers to
    those of A and M. Streams that do not exist yet are kept at h_0, so that shapes stay.
    """
    S, parts = len(K0), 1 + 2 * depth
    begin = np.zeros((parts, S))
    begin[0] = 1.0
    h, u = np.tile(begin, (2, depth, 1, 1))  # coefficients before attention, and before the MLP
    A = M = np.zeros((depth, depth, S, S))
    found = [K0]

    def gram(a, b):
        from_A, from_M = (
            np.einsum("lpa,mqb,pqab->lmab", a[:, s], b[:, s], C, optimize=True)
            for s, C in ((slice(1, depth + 1), A), (slice(depth + 1, None), M))
        )
        return a[:, None, 0, :, None] * b[None, :, 0, None, :] * K0 + from_A + from_M

    def normed(stream, part):
        new = stream.copy()
        new[part] += 1.0
        variance = np.diagonal(gram(new[None], new[None])[0, 0])
        return new / np.sqrt(variance + eps)

    for layer in range(depth):
        A = attend(gram(h, h))
        u[layer] = normed(h[layer], 1 + layer)
        M = feed(gram(u, u))
        after = normed(u[layer], 1 + depth + layer)
        found.append(gram(after[None], after[None])[0, 0])
        if layer + 1 < depth:
            h[layer + 1] = after
    return np.stack(found)


def _network(layer: Any) -> Network:
    return Network(cast(layer, np.dtype(float)), *needs_of(layer, all_of_it=True), False, False)


@eqx.filter_jit
def _through(network: Network, C, key, draws: int):
    """The kernels of one layer's outputs on n inputs with kernels C (n, n, S, S)."""
    n, S = C.shape[0], C.shape[-1]
    facts = Facts((S,), gaussian=True, sources=frozenset({("input", ())}))
    own = jnp.einsum("iiab->iab", C)
    x = Marginal(facts, jnp.ones(n), own, index=jnp.arange(n))
    with jax.default_matmul_precision("highest"):
        state: Any = JointRun(network.options(key, draws))(
            network.net, Joint(x, None, Cross(C)), "net"
        )
    return state.k.K
