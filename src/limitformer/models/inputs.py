"""What a model reads: text, token ids, an image, or the stream itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from .norms import normalise, plus
from .spec import Embedding, Model, Patches


def stream(model: Model, x: Any) -> np.ndarray:
    """The residual stream (n, d) at the model's input.

    Args:
        model: a `Model`.
        x: text (the model needs a tokenizer), token ids (n,) of integers, an image
            (height, width, channels) for a model of patches, or the stream (n, d) of floats.

    Raises:
        TypeError: none of these.
        ValueError: too long, ids outside the vocabulary, wrong shape, or values not finite.
    """
    if isinstance(x, str):
        if model.tokenize is None:
            raise TypeError(f"{model.name} has no tokenizer: pass token ids (n,) instead of text")
        x = model.tokenize(x)
    x = np.asarray(x)
    if np.issubdtype(x.dtype, np.integer):
        h = embed_tokens(model, x)
    elif x.ndim == 3 and isinstance(model.embedding, Patches):
        h = embed_image(model.embedding, x)
    else:
        h = _given(model, x)
    if not np.isfinite(h).all():
        raise ValueError(f"{model.name}: the embedded input has values that are not finite")
    return h.astype(model.dtype)


def rows(ids: Any, mask: Any = None) -> list[np.ndarray]:
    """The rows of a padded batch of token ids (b, n), each without its padding.

    Attention never sees padding, so a row is the model on its valid tokens; positions count among
    these.

    Args:
        ids: (b, n) integers.
        mask: (b, n) bool or 0/1, True where valid; None where nothing is padded.

    Example:
        >>> rows([[5, 6, 0], [7, 8, 9]], [[1, 1, 0], [1, 1, 1]])
        [array([5, 6]), array([7, 8, 9])]
    """
    ids = np.asarray(ids)
    valid = np.ones(ids.shape, bool) if mask is None else np.asarray(mask).astype(bool)
    if ids.ndim != 2 or valid.shape != ids.shape:
        raise ValueError(f"ids {ids.shape} and mask {valid.shape} must both be (batch, tokens)")
    empty = np.flatnonzero(~valid.any(axis=1))
    if len(empty):
        raise ValueError(f"rows {empty.tolist()} have no valid token")
    return [row[keep] for row, keep in zip(ids, valid, strict=True)]


def embed_tokens(model: Model, ids: np.ndarray) -> np.ndarray:
    """(n, d) from token ids (n,)."""
    table = model.embedding
    if not isinstance(table, Embedding):
        raise TypeError(f"{model.name} has no token table: pass the stream (n, {model.width})")
    if ids.ndim == 2 and len(ids) == 1:
        ids = ids[0]
    if ids.ndim != 1:
        raise ValueError(
            f"token ids of one input have shape (n,), got {ids.shape}; take a padded batch apart "
            "with limitformer.models.rows(ids, mask)"
        )
    if model.max_tokens is not None and len(ids) > model.max_tokens:
        raise ValueError(
            f"the input has {len(ids)} tokens and {model.name} reads at most {model.max_tokens}: "
            f"pass ids[:{model.max_tokens}], or split the text"
        )
    if len(ids) == 0 or ids.min() < 0 or ids.max() >= len(table.tokens):
        raise ValueError(
            f"token ids must be at least one number from 0 to {len(table.tokens) - 1}, got "
            + (f"{ids.min()} to {ids.max()}" if len(ids) else "none")
        )

    h = table.tokens[ids].astype(model.dtype)
    place = None
    if table.positions is not None:
        place = table.positions[table.offset : table.offset + len(ids)].astype(model.dtype)
    if not table.positions_last:
        h = plus(h, place)
    h = plus(h, table.types)
    if table.norm is not None:
        h, _ = normalise(table.norm, h)
    if table.projection is not None:
        h = plus(h @ table.projection.astype(h.dtype), table.projection_bias)
    return plus(h, place) if table.positions_last else h


def embed_image(patches: Patches, image: np.ndarray) -> np.ndarray:
    """(tokens, d) from an image (height, width, channels)."""
    p, q, channels, d = patches.W.shape
    height, width = image.shape[0] // p, image.shape[1] // q
    n = height * width + (patches.class_token is not None)
    if image.shape != (height * p, width * q, channels) or n != len(patches.positions):
        raise ValueError(
            f"an image of shape {image.shape} makes {n} tokens from patches of ({p}, {q}, "
            f"{channels}); the model has {len(patches.positions)} positions"
        )
    cut = image.reshape(height, p, width, q, channels).transpose(0, 2, 1, 3, 4)
    h = cut.reshape(height * width, -1) @ patches.W.reshape(-1, d)
    h = h if patches.b is None else h + patches.b
    if patches.class_token is not None:
        h = np.concatenate([patches.class_token[None], h])
    return h + patches.positions


def _given(model: Model, x: np.ndarray) -> np.ndarray:
    if not np.issubdtype(x.dtype, np.floating):
        raise TypeError(f"expected text, integer token ids or a float stream, got {x.dtype}")
    if x.ndim != 2 or x.shape[1] != model.width or x.shape[0] == 0:
        raise ValueError(
            f"the stream of one input has shape (n, {model.width}), got {x.shape}; run the inputs "
            "of a batch one by one"
        )
    return x
