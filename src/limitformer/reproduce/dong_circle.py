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
# name: (skip from points to points, MLP)
NETWORKS = {
    "attention only": (False, False),
    "attention + MLP": (False, True),
    "attention + skip": (True, False),
}
_BATCH = 64
_EXPLANATION = (
    "Two opposite points of a circle of radius 0.3 are the two tokens of one input. A network of "
    "one layer (points to channels, one head, channels to points) is trained to turn both by "
    f"pi / {POINTS}, and then fed with its own output {POINTS} times. Error: root mean square of "
    "one trained step over the step's length, for each seed. Apart: how many steps the two points "
    "stay more than half a diameter from each other, for each seed; on the circle they always do."
)
_NOTES = (
    "The paper shows pictures and no numbers. As there, widths are 32, 64 and 128, one layer, one "
    "head, trained on pairs of consecutive points only: the network never sees its own output.",
    "The paper's picture is that attention alone falls onto one point, and that MLP, skip and "
    "width help. Here the points fall onto each other without a skip, width helps, and with the "
    "skip they never do at any width; that the MLP helps cannot be told from three seeds.",
    "Why they fall: the difference of the two points and their mean are two modes. Training fixes "
    "the gain of the first at 1 and says nothing about the second, which is zero in all training "
    "data; where its gain is above 1 rounding grows until both points are one. Of the first "
    "seed's attention only it is 1.42 per step at width 32 and 0.9998 at width 128. A skip adds "
    "the points to what is left to learn, so both gains are near 1 from the start.",
    "The skip adds the input points to the output points, as the paper's code does. A skip around "
    "attention only, in channels, between the norm and the matrices that lead to and from points, "
    "does not help: of its nine networks six fell onto each other within 1000 steps. Adam with a "
    "cosine schedule from 1e-3; post-norm, without which the mean would grow without end; the MLP "
    "is as wide as the stream. An error above 10 is a training that failed.",
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
    """The layer in the units of the circle; the skip, if any, adds the points themselves."""
    return RADIUS * apply(params, x / RADIUS, skip=False) + (x if skip else 0.0)


def apart(path: np.ndarray) -> np.ndarray:
    """Distance of the two points over the circle's diameter; 1 on the circle."""
    return np.linalg.norm(path[:, 0] - path[:, 1], axis=-1) / (2 * RADIUS)


def steps_apart(path: np.ndarray) -> int:
    """Applications after which the points are nearer than half a diameter; all if they never are.

    Example:
        >>> steps_apart(circle(8))
        8
    """
    near = np.flatnonzero(apart(path) < 0.5)
    return int(near[0]) if len(near) else len(path) - 1


def dong_circle(
    *,
    widths: Sequence[int] = (32, 64, 128),
    steps: int = 3000,
    seeds: int = 3,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> DongResult:
    """Trajectories of two points, for every network of `NETWORKS` and every width.

    Args:
        widths: channels.
        steps: of training.
        seeds: networks of each kind.
        seed: of weights and batches.
        report: called with a line of text now and then.
    """
    start = time.perf_counter()
    if steps < 1 or seeds < 1 or not widths or min(widths) < 2:
        raise ValueError(
            f"steps={steps}, seeds={seeds}, widths={widths}; use at least one step, one seed and "
            "one width of two channels"
        )
    paths: dict[str, dict[str, np.ndarray]] = {name: {} for name in NETWORKS}
    numbers, rows = [], []
    for i, (name, (skip, mlp)) in enumerate(NETWORKS.items()):
        for width in widths:
            errors, stayed = [], []
            for j in range(seeds):
                key = jax.random.key(seed)
                for part in (i, width, j):
                    key = jax.random.fold_in(key, part)
                params, error = trained_step(key, width=width, skip=skip, mlp=mlp, steps=steps)
                path = trajectory(params, skip=skip)
                errors.append(error)
                stayed.append(steps_apart(path))
                paths[name].setdefault(str(width), path[::10])
            numbers.append({"network": name, "width": width, "error": errors, "apart": stayed})
            cells = (", ".join(number(e) for e in errors), ", ".join(str(n) for n in stayed))
            rows.append([name, str(width), *cells])
            if report is not None:
                report(f"{name}, width {width}: {time.perf_counter() - start:.0f} s")
    return DongResult(
        name="circle",
        title="circle trajectories of recurrent attention",
        explanation=_EXPLANATION,
        tables=[Table("**Two points, fed back**", ["network", "width", "error", "apart"], rows)],
        data={"networks": numbers, "paths of the first seed": paths},
        settings={"training steps": steps, "seeds": seeds, "precision": "float32"},
        notes=_NOTES,
        seconds=time.perf_counter() - start,
    )
