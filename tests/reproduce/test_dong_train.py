"""Experiments of Dong 2021 that train: circle trajectories and path effectiveness; small sizes."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limitformer.cli.reproduce import main
from limitformer.models import forward
from limitformer.reproduce import dong_circle, dong_tasks
from limitformer.reproduce.dong_circle import (
    RADIUS,
    apart,
    circle,
    steps_apart,
)
from limitformer.reproduce.dong_train import apply, init, to_model


@pytest.mark.parametrize(("mlp", "norm"), [(True, True), (False, False)])
def test_the_trained_network_is_the_model(mlp, norm):
    sizes = {"inputs": 3, "outputs": 2, "width": 8, "depth": 1, "heads": 2}
    params = init(jax.random.key(0), **sizes, mlp=mlp, norm=norm)
    rng = np.random.default_rng(0)
    noise = jax.tree.map(lambda w: 0.3 * rng.normal(size=w.shape).astype(np.float32), params)
    params = jax.tree.map(lambda w, e: np.asarray(w) + e, params, noise)
    x = rng.normal(size=(5, 3))
    model, embed, readout = to_model(params, "small")
    wanted = readout(forward(model, embed(x)))
    found = jax.jit(apply)(params, jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_the_circle():
    points = circle(8)
    np.testing.assert_allclose(np.linalg.norm(points, axis=-1), RADIUS)
    np.testing.assert_allclose(points[0], [[-0.3, 0], [0.3, 0]], atol=1e-15)
    np.testing.assert_allclose(points[4, 1], [0, 0.3], atol=1e-15)  # counterclockwise
    np.testing.assert_allclose(apart(points), 1.0)
    merging = points * np.linspace(1, 0, 9)[:, None, None]
    assert steps_apart(merging) == 5 and steps_apart(points) == 8


def test_labels():
    rng = np.random.default_rng(0)
    task = dong_tasks.sorting(rng, 20, 5)
    assert task.x.shape == (20, 8, 18) and task.x_test.shape == (5, 8, 18)
    letters = task.x[..., :10].argmax(axis=-1)
    np.testing.assert_array_equal(np.sort(letters, axis=1), task.y)
    task = dong_tasks.memorisation(rng, 6, 4)
    np.testing.assert_array_equal(task.y_test, task.y[:4])
    assert 0.2 < task.chance < 0.9

    task = dong_tasks.hull(rng, 3, 2)
    for points, labels in zip(task.x, task.y, strict=True):
        for i, label in enumerate(labels):
            others = np.delete(points, i, axis=0)
            triples = itertools.combinations(others, 3)
            covered = any(_inside(points[i], np.array(t)) for t in triples)
            assert label == (not covered)


def _inside(p, corners):
    """In a triangle: on the same side of its three edges."""

    def side(a, b):
        return (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) > 0

    a, b, c = corners
    return side(a, b) == side(b, c) == side(c, a)


def test_circle_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dong_circle, "NETWORKS", {"attention + skip": (True, False)})
    given = ["--widths", "16", "--steps", "400", "--seeds", "1", "--out", str(tmp_path)]
    assert main(["dong-circle", *given]) == 0
    assert "| attention + skip | 16 |" in capsys.readouterr().out
    data = json.loads((tmp_path / "dong-circle.json").read_text())["data"]
    error = data["networks"][0]["error"][0]
    assert error < 20  # without learning 318: the circle's radius in steps
    path = np.array(data["paths of the first seed"]["attention + skip"]["16"])
    assert path.shape == (101, 2, 2)
    np.testing.assert_allclose(path[0], circle()[0], atol=1e-6)
    assert (tmp_path / "dong-circle.png").stat().st_size > 10_000
    assert main(["dong-circle", "--steps", "0"]) == 1
    assert "use at least one step, one seed" in capsys.readouterr().err


@pytest.mark.slow
def test_all_paths_are_the_model(tmp_path, monkeypatch):
    few = {"memorisation": lambda rng: dong_tasks.memorisation(rng, 8, 6)}
    monkeypatch.setattr(dong_tasks, "TASKS", few)
    made = dong_tasks.dong_tasks(steps=150, width=16, depth=2, draws=3)
    assert "**memorisation**: whole model" in made.markdown()
    made.write(tmp_path)
    assert (tmp_path / "dong-tasks.png").stat().st_size > 10_000
    found = json.loads((tmp_path / "dong-tasks.json").read_text())["data"]["memorisation"]
    assert found["loss"] < 0.5 < found["model"]["mean"]  # log 2 at the start
    for mlp in ("source", "inside"):
        by_length = found[f"frozen, MLPs {mlp}"]["mean"]
        assert len(by_length) == 3 and by_length[-1] == found["model"]["mean"]
    assert len(found["recomputed"]["mean"]) == 3
    with pytest.raises(ValueError, match="a width that heads divides"):
        dong_tasks.dong_tasks(width=9)
