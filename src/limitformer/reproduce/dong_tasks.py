"""Path effectiveness of Dong 2021: what short paths of a trained network can do by themselves."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import ConvexHull

from ..depth.paths import path_decomposition
from ..depth.paths_recompute import recompute_paths
from ..depth.paths_single import enumerate_paths, sample_paths
from ..models import forward
from .dong_tables import DongResult, Table, mean_sem, number
from .dong_train import Params, apply, init, to_model, train

READINGS = ("frozen, MLPs source", "frozen, MLPs inside", "recomputed")
_BATCH = 64
_EXPLANATION = (
    "Token accuracy, mean ± standard error over inputs. Frozen: the model with its own maps, norms "
    "and MLPs (as sources of length 0, or inside the paths), restricted to paths of length at most "
    "k; the last row is the whole model. Recomputed, as in the paper: outputs of networks that "
    "consist of one random path of length exactly k, averaged before the readout. Chance: the most "
    "frequent label."
)
_NOTES = (
    "The paper prints curves of its own networks, also of 6 layers, whose sizes and data differ: "
    "compare shapes. The authors' plotting code marks whole models at .98 on sorting and .90 on "
    "the convex hull, and the random and majority predictors at .10 and .54.",
    "Recomputed paths are worth less the longer they are where they are worth anything (sorting), "
    "as in the paper, and near chance on the other two. Frozen paths through MLPs tell a different "
    "story of the same networks: sorting and memorisation are done by paths of length up to 3, "
    "the convex hull needs 5 and 6.",
    "Memorisation is judged on its training inputs, as in the paper; the other two on new ones.",
    "Where MLPs are sources, length 0 holds all that MLPs made of the attention before them: it "
    "is enough by itself, and says little about attention. Inside the paths, it is not.",
)


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Inputs (m, n, inputs) and labels (m, n) to train on and to judge by."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def classes(self) -> int:
        """Number of labels."""
        return int(self.y.max()) + 1

    @property
    def chance(self) -> float:
        """Accuracy of the most frequent training label."""
        label = np.bincount(self.y.ravel()).argmax()
        return float(np.mean(self.y_test == label))


def sorting(rng: np.random.Generator, m: int = 4000, test: int = 48) -> Task:
    """The letter at each place once 8 of 10 letters are sorted, repeats allowed."""
    letters = rng.integers(0, 10, size=(m + test, 8))
    x, y = _codes(letters, 10), np.sort(letters, axis=1)
    return Task(x[:m], y[:m], x[m:], y[m:])


def hull(rng: np.random.Generator, m: int = 4000, test: int = 48) -> Task:
    """Whether each of 10 points of the square [-1, 1]^2 is a corner of their convex hull."""
    x = rng.uniform(-1, 1, size=(m + test, 10, 2))
    y = np.zeros(x.shape[:2], int)
    for row, points in zip(y, x, strict=True):
        row[ConvexHull(points).vertices] = 1
    return Task(x[:m], y[:m], x[m:], y[m:])


def memorisation(rng: np.random.Generator, m: int = 64, test: int = 48) -> Task:
    """Random labels 0 and 1 for the tokens of texts of 8 out of 20 words."""
    words = rng.integers(0, 20, size=(m, 8))
    x, y = _codes(words, 20), rng.integers(0, 2, size=(m, 8))
    return Task(x, y, x[:test], y[:test])


TASKS = {"sorting": sorting, "convex hull": hull, "memorisation": memorisation}


def trained(
    task: Task, key, *, steps: int, width: int, depth: int, heads: int
) -> tuple[Params, float]:
    """A transformer with a readout at every token, and its last training loss."""
    first, second = jax.random.split(key)
    x, y = jnp.asarray(task.x, jnp.float32), jnp.asarray(task.y)
    sizes = {"inputs": x.shape[-1], "outputs": task.classes, "width": width}
    params = init(first, **sizes, depth=depth, heads=heads, mlp=True, norm=True)

    def batch(key):
        at = jax.random.randint(key, (_BATCH,), 0, len(x))
        return x[at], y[at]

    def loss(params, x, y):
        log_p = jax.nn.log_softmax(jax.vmap(lambda one: apply(params, one))(x))
        return -jnp.mean(jnp.take_along_axis(log_p, y[..., None], axis=-1))

    return train(params, batch, loss, key=second, steps=steps)


def effectiveness(
    task: Task, params: Params, *, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Token accuracies by path length.

    Args:
        task: with the inputs to judge by.
        params: of a trained network.
        draws: paths per length and input of the recomputed reading; all where there are no more.
        rng: of the draws.

    Returns:
        (inputs, L + 1) for each of `READINGS`, and (inputs,) for "model".
    """
    model, embed, readout = to_model(params, "trained")
    uniform = [np.ones(H) for H in model.heads]
    found: dict[str, list] = {name: [] for name in ("model", *READINGS)}
    for x, y in zip(task.x_test, task.y_test, strict=True):
        h = embed(x)

        def accuracy(out: np.ndarray, y=y) -> float:
            return float(np.mean(readout(out).argmax(axis=-1) == y))

        found["model"].append(accuracy(forward(model, h)))
        for mlp in ("source", "inside"):
            paths = path_decomposition(model, h, mlp=mlp)
            found[f"frozen, MLPs {mlp}"].append(paths.effectiveness(accuracy))
        alone = []
        for k in range(model.depth + 1):
            if k == 0:
                paths = enumerate_paths(model.heads, 0)
            else:
                paths, _ = sample_paths(uniform, k, draws, rng)
            alone.append(accuracy(recompute_paths(model, h, paths).mean(axis=0)))
        found["recomputed"].append(alone)
    return {name: np.array(values) for name, values in found.items()}


def dong_tasks(
    *,
    steps: int = 600,
    width: int = 48,
    depth: int = 6,
    heads: int = 2,
    draws: int = 20,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> DongResult:
    """Path effectiveness on sorting, convex hull and memorisation.

    Args:
        steps: of training.
        width, depth, heads: of the networks.
        draws: recomputed paths per length and input.
        seed: of data, weights, batches and paths.
        report: called with a line of text now and then.
    """
    start = time.perf_counter()
    if steps < 1 or draws < 1 or width % heads:
        raise ValueError(
            f"steps={steps}, draws={draws}, width={width}, heads={heads}; use at least one step "
            "and draw, and a width that heads divides"
        )
    tables, data = [], {}
    for i, (name, make) in enumerate(TASKS.items()):
        rng = np.random.default_rng([seed, i])
        task = make(rng)
        key = jax.random.fold_in(jax.random.key(seed), i)
        params, loss = trained(task, key, steps=steps, width=width, depth=depth, heads=heads)
        found = effectiveness(task, params, draws=draws, rng=rng)
        by_name = {k: mean_sem(v) for k, v in found.items()}
        data[name] = {
            "chance": task.chance,
            "loss": loss,
            **{k: {"mean": mean, "sem": sem} for k, (mean, sem) in by_name.items()},
        }
        rows = [
            [str(k), *(number(by_name[n][0][k], by_name[n][1][k]) for n in READINGS)]
            for k in range(depth + 1)
        ]
        whole = number(*(float(v) for v in by_name["model"]))
        caption = f"**{name}**: whole model {whole}, chance {number(task.chance)}"
        tables.append(Table(caption, ["k", *READINGS], rows))
        if report is not None:
            report(f"{name}: {whole} after {time.perf_counter() - start:.0f} s")
    return DongResult(
        name="tasks",
        title="path effectiveness on sorting, convex hull, memorisation",
        explanation=_EXPLANATION,
        tables=tables,
        data=data,
        settings={
            "networks": f"{depth} layers, {heads} heads, {width} channels, post-norm",
            "training": f"Adam, {steps} steps of {_BATCH} inputs",
            "recomputed paths": f"{draws} per length and input",
            "seed": seed,
        },
        notes=_NOTES,
        seconds=time.perf_counter() - start,
    )


def _codes(ids: np.ndarray, n: int) -> np.ndarray:
    """(m, places, n + places): which id, and which place."""
    places = np.broadcast_to(np.eye(ids.shape[1]), (*ids.shape, ids.shape[1]))
    return np.concatenate([np.eye(n)[ids], places], axis=-1)
