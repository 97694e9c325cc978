"""Small transformers of Dong 2021, trained here with optax (extra `reproduce`).

A network is a dictionary of arrays: `embed` maps the inputs of a token to channels, the layers are
those of `limitformer.models.from_spec`, post-norm or without norms, and `readout` maps channels to
outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..extras import optional
from ..models import Model, from_spec

Params = dict[str, Any]


@partial(jax.jit, static_argnames=("inputs", "outputs", "width", "depth", "heads", "mlp", "norm"))
def init(
    key, *, inputs: int, outputs: int, width: int, depth: int, heads: int, mlp: bool, norm: bool
) -> Params:
    """Weights N(0, 1 / fan-in), biases 0, gains 1; the MLP is as wide as the stream."""
    keys = iter(jax.random.split(key, 2 + 6 * depth))
    dk = width // heads

    def draw(*shape: int, fan: int) -> jax.Array:
        return jax.random.normal(next(keys), shape) / jnp.sqrt(float(fan))

    def layer() -> Params:
        made: Params = {
            "attention": {
                "W_Q": draw(heads, width, dk, fan=width),
                "W_K": draw(heads, width, dk, fan=width),
                "W_V": draw(heads, width, dk, fan=width),
                "W_O": draw(heads, dk, width, fan=width),
                "b_O": jnp.zeros(width),
            }
        }
        unit = {"gain": jnp.ones(width), "bias": jnp.zeros(width)}
        if mlp:
            W_in, W_out = draw(width, width, fan=width), draw(width, width, fan=width)
            b = jnp.zeros(width)
            made["mlp"] = {"W_in": W_in, "W_out": W_out, "b_in": b, "b_out": b}
        if norm:
            made["attention_norm"] = unit
            made |= {"mlp_norm": unit} if mlp else {}
        return made

    return {
        "embed": {"W": draw(inputs, width, fan=inputs), "b": jnp.zeros(width)},
        "layers": [layer() for _ in range(depth)],
        "readout": {"W": draw(width, outputs, fan=width), "b": jnp.zeros(outputs)},
    }


def apply(params: Params, x: jax.Array, *, skip: bool = True) -> jax.Array:
    """Outputs (n, outputs) of one input (n, inputs); without `skip` attention has none."""
    h = x @ params["embed"]["W"] + params["embed"]["b"]
    for layer in params["layers"]:
        h = _attend(layer["attention"], h) + (h if skip else 0.0)
        h = _normalise(layer.get("attention_norm"), h)
        if "mlp" in layer:
            m = layer["mlp"]
            z = jax.nn.gelu(h @ m["W_in"] + m["b_in"], approximate=False)
            h = _normalise(layer.get("mlp_norm"), h + z @ m["W_out"] + m["b_out"])
    return h @ params["readout"]["W"] + params["readout"]["b"]


def train(
    params: Params,
    batch: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    loss: Callable[[Params, jax.Array, jax.Array], jax.Array],
    *,
    key,
    steps: int,
    rate: float = 1e-3,
) -> tuple[Params, float]:
    """Adam with a cosine schedule, compiled as one loop.

    Args:
        params: to start from.
        batch: inputs and targets from a key.
        loss: of parameters, inputs and targets.
        key: of the batches.
        steps: of training.
        rate: first learning rate.

    Returns:
        The trained parameters, and the mean loss of the last tenth of the steps.
    """
    optax = optional("optax", "reproduce")
    optimiser = optax.adam(optax.cosine_decay_schedule(rate, steps))

    @jax.jit
    def run(params: Params, key) -> tuple[Params, jax.Array]:
        def step(carry, key):
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params, *batch(key))
            updates, state = optimiser.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), value

        start = (params, optimiser.init(params))
        (params, _), losses = jax.lax.scan(step, start, jax.random.split(key, steps))
        return params, losses

    with jax.numpy_dtype_promotion("standard"):  # optax mixes its integer step counts with floats
        params, losses = run(params, key)
    return params, float(losses[-max(1, steps // 10) :].mean())


def to_model(params: Params, name: str) -> tuple[Model, Callable, Callable]:
    """The trained layers as a float64 `Model` of streams, with `embed` and `readout` around it."""
    weights = jax.tree.map(lambda w: np.asarray(w, np.float64), params)
    spec = {"name": name, "placement": "post", "layers": _with_eps(weights["layers"])}

    def linear(part: str) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: x @ weights[part]["W"] + weights[part]["b"]

    return from_spec(spec), linear("embed"), linear("readout")


def _with_eps(layers: list[Params]) -> list[Params]:
    """Norms with the eps of `_normalise`."""
    return [
        {name: part | {"eps": _EPS} if name.endswith("norm") else part for name, part in l.items()}
        for l in layers
    ]


_EPS = 1e-5


def _normalise(norm: Params | None, h: jax.Array) -> jax.Array:
    if norm is None:
        return h
    centred = h - h.mean(axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + _EPS)
    return centred * scale * norm["gain"] + norm["bias"]


def _attend(a: Params, h: jax.Array) -> jax.Array:
    q, k, v = (jnp.einsum("nd,hdk->hnk", h, a[name]) for name in ("W_Q", "W_K", "W_V"))
    A = jax.nn.softmax(jnp.einsum("hik,hjk->hij", q, k) / jnp.sqrt(float(q.shape[-1])), axis=-1)
    return jnp.einsum("hij,hjk,hkd->id", A, v, a["W_O"]) + a["b_O"]
