import json

import numpy as np
import pytest

from limitformer.cli.reproduce import main
from limitformer.data import Dataset, Vectors
from limitformer.data.cifar import CLASS_NAMES
from limitformer.reproduce import prepare
from limitformer.reproduce.hron_cifar import Images, hron_cifar, network, readouts
from limitformer.reproduce.hron_imdb import hron_imdb
from limitformer.reproduce.reviews import Reviews


def images(n=40):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 10
    x = rng.integers(0, 200, size=(n, 4, 4, 3)) + 5 * labels[:, None, None, None]
    return Dataset.of_rows("toy", x.astype(np.uint8), labels, class_names=CLASS_NAMES)


def reviews():
    words = ("good", "bad", "film", "the")
    vectors = Vectors(words, np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32))
    texts = [f"the {('bad', 'good')[i % 2]} film, " + "the " * (i % 5) for i in range(24)]
    rows = np.empty(24, object)
    rows[:] = texts
    data = Dataset.of_rows("toy", rows, np.arange(24) % 2, class_names=("neg", "pos"))
    return Reviews.of(data, vectors, tokens=7, train=12, validation=8)


def test_hron_cifar_reports_as_it_goes_and_ends_with_the_table():
    seen = []
    found = hron_cifar(
        images(),
        size=2,
        train=20,
        validation=20,
        depths=(2, 1),
        kinds="nngp",
        qk=(0.1, 2.0),
        pilot=10,
        band=10,
        report=seen.append,
    )
    assert [result.rows[0].n for result in seen] == [0, 10, 20]
    assert [row.depth for row in found.rows] == [1] * 5 + [2] * 5
    names = [row.network.split(" ")[0] for row in found.rows[:5]]
    assert names == ["flatten", "mean", "vanilla", "structured", "residual"]
    assert all(0 <= row.fixed <= 1 and 0 <= row.chosen <= 1 for row in found.rows)
    assert "block means" in found.notes[0]
    assert json.loads(found.to_json())["rows"][0]["published"] is None


def test_validation_images_are_not_training_images():
    found = Images.of(images(), 4, 20, 20, 0)
    assert np.bincount(found.labels).tolist() == [2] * 10
    assert found.targets[0, found.labels[0]] == 0.9
    together = np.concatenate([found.x, found.x_validation]).reshape(40, -1)
    assert len(np.unique(together, axis=0)) == 40
    np.testing.assert_allclose(found.x.mean((1, 2, 3)), 0, atol=1e-6)
    with pytest.raises(ValueError, match="size=3 does not divide images of 4"):
        Images.of(images(), 3, 20, 20, 0)


def test_readings_and_depths_are_checked():
    assert len(readouts(1.0)) == 5
    assert len(readouts((1.0, 2.0), "all")) == 10
    with pytest.raises(ValueError, match="readings='some' is not known"):
        readouts(1.0, "some")
    with pytest.raises(ValueError, match="no depths"):
        network({})


def test_hron_imdb_from_its_prepared_file(tmp_path):
    made = reviews()
    made.save(tmp_path / "imdb.npz")
    loaded = Reviews.load(tmp_path / "imdb.npz")
    np.testing.assert_array_equal(loaded.ids, made.ids)
    np.testing.assert_allclose(loaded.vectors, made.vectors, atol=1e-2)
    assert np.all(loaded.values(slice(3))[~loaded.mask[:3]] == 0)
    found = hron_imdb(tmp_path / "imdb.npz", tokens=5, train=12, validation=8, qk=(1.0,))
    assert [row.network for row in found.rows[:2]] == ["mean of words", "mean pool + FC, relu"]
    assert found.rows[0].published == 0.73
    assert all(row.chosen > 0.7 for row in found.rows)  # one word tells
    assert "cut after 5 tokens" in found.settings["reviews"]


def test_reviews_say_what_is_missing(tmp_path):
    np.savez(tmp_path / "x.npz", ids=np.zeros(3))
    with pytest.raises(ValueError, match=r"no lengths.*prepare imdb"):
        Reviews.load(tmp_path / "x.npz")
    with pytest.raises(ValueError, match="12 training and 8 validation reviews; 13 and 8"):
        reviews().take(13, 8, 5)


def test_the_command_line(tmp_path, capsys):
    data = images()
    np.savez(
        tmp_path / "toy.npz", x_train=data.x_train, y_train=data.y_train, class_names=CLASS_NAMES
    )
    prepare.cifar(tmp_path / "toy.npz", tmp_path / "small.npz", images=30)
    with np.load(tmp_path / "small.npz") as file:
        assert file["x_train"].shape == (30, 4, 4, 3)
    options = ["--size", "2", "--train", "10", "--validation", "10", "--depths", "1"]
    options += ["--qk", "1", "--kinds", "nngp", "--out", str(tmp_path), "--name", "found"]
    assert main(["hron-cifar", "--data", str(tmp_path / "small.npz"), *options]) == 0
    assert "# Hron 2020, figure 4" in capsys.readouterr().out
    assert (tmp_path / "found.md").exists()
    assert json.loads((tmp_path / "found.json").read_text())["rows"]
    assert main(["hron-cifar", "--data", str(tmp_path / "not-there.npz")]) == 1
    assert "error: CIFAR-10 was looked for at" in capsys.readouterr().err
