"""Circle trajectories of Dong 2021: one attention layer, applied again and again to two points."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from .dong_tables import DongResult, Table, number
from .dong_train import Params, apply, init, train

RADIUS = 0.3
POINTS = 1000  # of one half of the circle: one application should turn by pi / POINTS
# name: (skip around attention, MLP)
NETWORKS = {
    "attention only": (False, False),
    "attention + MLP": (False, True),
    "attention + skip": (True, False),
}
_BATCH = 64
_EXPLANATION = (
    "Two opposite points of a circle of radius 0.3 are the two tokens of one input. A layer "
    f"(points to channels, one head, channels to points) is trained to turn both by pi / {POINTS}, "
    "and then fed with its own output. Error: root mean square of one trained step over the step's "
    "length. Distance: of the two points from each other over 0.6, after a sixteenth, a quarter and "
    "a whole of the half circle: 1 on the circle, 0 where both points have become one."
)
_NOTES = (
    "The paper shows pictures and no numbers. As there, widths are 32, 64 and 128, one layer, one "
    "head, trained on pairs of consecutive points only (the layer never sees its own output).",
    "The skip is the one around attention, in channels. The paper's code adds the input points.",
    "Adam with a cosine schedule from 1e-3; no norms; the MLP is as wide as the stream and has its "
    "own skip.",
    "One seed per network: how long a trajectory stays on the circle varies between seeds.",
)


def circle(n: int = POINTS) -> np.ndarray:
    """(n + 1, 2, 2): the two points, from (-0.3, 0) and (0.3, 0), counterclockwise."""
    angle = np.pi * np.arange(n + 1) / n
    one = RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return np.stack([-one, one], axis=1)


def trained_step(key, *, width: int, skip: bool, mlp: bool, steps: int) -> tuple[Params, float]:
    """A layer that turns both points by pi / POINTS, and its relative error of one step."""
    points = jnp.asarray(circle(), jnp.float32)
    first, second = jax.random.split(key)
    sizes = {"inputs": 2, "outputs": 2, "width": width, "depth": 1, "heads": 1}
    params = init(first, **sizes, mlp=mlp, norm=True)

    def batch(key):
        at = jax.random.randint(key, (_BATCH,), 0, POINTS)
        return points[at], points[at + 1]

    def loss(params, x, y):
        out = jax.vmap(partial(_turn, params, skip=skip))(x)
        return jnp.mean(jnp.sum((out - y) ** 2, axis=-1)) / RADIUS**2

    params, value = train(params, batch, loss, key=second, steps=steps)
    return params, float(np.sqrt(value) / (np.pi / POINTS))


def trajectory(params: Params, *, skip: bool, n: int = POINTS) -> np.ndarray:
    """(n + 1, 2, 2): the two points under n applications of the layer to its own output."""

    def step(x, _):
        x = _turn(params, x, skip=skip)
        return x, x

    start = jnp.asarray(circle()[0], jnp.float32)
    path = jax.jit(lambda x: jax.lax.scan(step, x, length=n)[1])(start)
    return np.concatenate([np.asarray(start)[None], np.asarray(path)]).astype(np.float64)


def _turn(params: Params, x: jax.Array, *, skip: bool) -> jax.Array:
    """The layer in the units of the circle."""
    return RADIUS * apply(params, x / RADIUS, skip=skip)


def apart(path: np.ndarray) -> np.ndarray:
    """Distance of the two points over the circle's diameter; 1 on the circle."""
    return np.linalg.norm(path[:, 0] - path[:, 1], axis=-1) / (2 * RADIUS)


def dong_circle(
    *,
    widths: Sequence[int] = (32, 64, 128),
    steps: int = 3000,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> DongResult:
    """Trajectories of two points, for every network of `NETWORKS` and every width.

    Args:
        widths: channels.
        steps: of training.
        seed: of weights and batches.
        report: called with a line of text now and then.
    """
    start = time.perf_counter()
    if steps < 1 or not widths or min(widths) < 1:
        raise ValueError(
            f"steps={steps}, widths={widths}; use at least one step, width and channel"
        )
    at = (POINTS // 16, POINTS // 4, POINTS)
    paths: dict[str, dict[str, np.ndarray]] = {name: {} for name in NETWORKS}
    rows = []
    for i, (name, (skip, mlp)) in enumerate(NETWORKS.items()):
        for width in widths:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), i), width)
            params, error = trained_step(key, width=width, skip=skip, mlp=mlp, steps=steps)
            path = trajectory(params, skip=skip)
            paths[name][str(width)] = path[::10]
            rows.append([name, str(width), number(error), *(number(apart(path)[t]) for t in at)])
            if report is not None:
                report(f"{name}, width {width}: {time.perf_counter() - start:.0f} s")
    head = ["network", "width", "error", *(f"distance, step {t}" for t in at)]
    return DongResult(
        name="circle",
        title="circle trajectories of recurrent attention",
        explanation=_EXPLANATION,
        tables=[Table("**Two points, fed back**", head, rows)],
        data={"paths": paths},
        settings={"training steps": steps, "seed": seed, "precision": "float32"},
        notes=_NOTES,
        seconds=time.perf_counter() - start,
    )
