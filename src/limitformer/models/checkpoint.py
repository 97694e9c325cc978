"""Checkpoints on disk: config.json, safetensors and a tokenizer, without PyTorch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..extras import optional
from .architectures import from_config
from .reader import SafetensorsFile, Sharded
from .spec import Model

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def load(path: str | Path, dtype=np.float64) -> Model:
    """A pretrained transformer from a folder in the layout of Hugging Face.

    Read are `config.json`, `model.safetensors` (or its shards) and, if it is there,
    `tokenizer.json` (extra `models`). Types: see `limitformer.models.ARCHITECTURES`.

    Args:
        path: the folder.
        dtype: in which the model will be computed; float64 or float32.

    Raises:
        FileNotFoundError: there is no such folder, config.json or weights.
        ValueError: the weights are pickles, broken, not finite, or of an unknown architecture.

    Example:
        >>> load("no/such/folder")
        Traceback (most recent call last):
        FileNotFoundError: no folder no/such/folder with a config.json
    """
    folder = Path(path)
    if folder.suffix in _PICKLES:
        raise _refused(folder)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"no folder {folder} with a config.json")
    config = json.loads((folder / "config.json").read_text())
    config.setdefault("_name_or_path", folder.name)
    model = from_config(config, _weights(folder), dtype=dtype)
    file = folder / "tokenizer.json"
    if not file.is_file():
        return model
    return dataclasses.replace(model, tokenize=_tokenizer(file))


def _weights(folder: Path) -> Mapping[str, np.ndarray]:
    if (folder / "model.safetensors").is_file():
        return SafetensorsFile(folder / "model.safetensors")
    if (folder / "model.safetensors.index.json").is_file():
        return Sharded(folder / "model.safetensors.index.json")
    pickles = sorted(file for file in folder.iterdir() if file.suffix in _PICKLES)
    if pickles:
        raise _refused(pickles[0])
    raise FileNotFoundError(f"{folder} has no model.safetensors")


def _refused(file: Path) -> ValueError:
    return ValueError(
        f"{file} is a pickle, and reading a pickle runs whatever code it holds. Convert it where "
        "you trust it: AutoModel.from_pretrained(...).save_pretrained(folder) writes safetensors"
    )


def _tokenizer(file: Path) -> Callable[[str], np.ndarray]:
    def tokenize(text: str) -> np.ndarray:
        tokenizer = optional("tokenizers", "models").Tokenizer.from_file(str(file))
        tokenizer.no_truncation()  # a text that is too long is an error, not silently another text
        tokenizer.no_padding()
        return np.asarray(tokenizer.encode(text).ids, np.int64)

    return tokenize
