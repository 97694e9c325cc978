"""A fit on disk: a folder with `posterior.toml` and `arrays.safetensors`; nothing is executed.

The network is in the TOML as `limitformer.files` writes it, the arrays beside it with their sha256.
A fit is written under another name and renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..extras import optional
from ..files import digest, loads, to_toml
from .posterior import Posterior
from .training import KernelOptions, Replicated

FORMAT = 1
_ARRAYS, _TEXT, _NET = "arrays.safetensors", "posterior.toml", "network.toml"


def save(post: Posterior, path) -> None:
    """Write a fit into the new folder `path`.

    Raises:
        FileExistsError: there is something at `path` already.
        NetworkFileError: the network holds Python functions, which no file can keep.
    """
    safetensors = optional("safetensors.numpy", "save")
    target = Path(path)
    if target.exists():
        raise FileExistsError(f"{target} exists; nothing is overwritten, choose another name")
    network = to_toml(post.net)
    arrays = _arrays(post)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        safetensors.save_file(arrays, folder / _ARRAYS)
        (folder / _NET).write_text(network)
        (folder / _TEXT).write_text(_text(post, _sha256(folder / _ARRAYS)))
        os.rename(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def load_posterior(path) -> Posterior:
    """Read a fit that `Posterior.save` wrote.

    Raises:
        FileNotFoundError: `path` is not a folder with a saved fit.
        ValueError: another format, or files that do not match their digests.
    """
    safetensors = optional("safetensors.numpy", "save")
    folder = Path(path)
    for name in (_TEXT, _NET, _ARRAYS):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder} has no {name}; expected a folder that Posterior.save wrote"
            )
    try:
        about = tomllib.loads((folder / _TEXT).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{folder / _TEXT} is not TOML ({error}); the fit is damaged") from None
    if about.get("limitformer_posterior") != FORMAT:
        raise ValueError(
            f"{folder / _TEXT} has format {about.get('limitformer_posterior')!r}, this version "
            f"reads {FORMAT}"
        )
    if _sha256(folder / _ARRAYS) != about["arrays_sha256"]:
        raise ValueError(f"{folder / _ARRAYS} does not match its digest; the fit is damaged")
    net: Any = loads((folder / _NET).read_text())
    if digest(net) != about["network_digest"]:
        raise ValueError(f"{folder / _NET} does not match its digest; the fit was changed")
    arrays = safetensors.load_file(folder / _ARRAYS)
    options = KernelOptions(
        dtype=about.get("dtype"), key=_key(arrays, about), draws=about["draws"], memory=None
    )
    return Posterior(
        net,
        _inputs(arrays, "x", about["inputs"], about["single"]),
        _inputs(arrays, "x_mask", about["inputs"], about["single"]),
        arrays["targets"],
        about["kind"],
        arrays["noise"],
        options,
        _estimate(arrays, "K"),
        _estimate(arrays, "T"),
    )


def _arrays(post: Posterior) -> dict[str, np.ndarray]:
    arrays = {"targets": post.targets, "noise": post.noise}
    for name, given in (("x", post.x), ("x_mask", post.x_mask)):
        parts = given if isinstance(given, tuple) else (given,)
        for i, part in enumerate(parts):
            if part is not None:
                arrays[f"{name}.{i}"] = np.asarray(part)
    for name, estimate in (("K", post.K), ("T", post.T)):
        if estimate is not None:
            arrays[name] = estimate.value
            if estimate.deviations is not None:
                arrays[f"{name}.deviations"] = estimate.deviations
    if post.options.key is not None:
        key = post.options.key
        typed = jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
        arrays["key"] = np.asarray(jax.random.key_data(key) if typed else key)
    return {name: np.ascontiguousarray(a) for name, a in arrays.items()}


def _text(post: Posterior, sha256: str) -> str:
    from .. import __version__

    options = post.options
    single = not isinstance(post.x, tuple)
    lines = [
        f"limitformer_posterior = {FORMAT}",
        f'limitformer = "{__version__}"',
        f'kind = "{post.kind}"',
        f"draws = {options.draws}",
        f"single = {str(single).lower()}",
        f"inputs = {1 if single else len(post.x)}",
        f'network_digest = "{digest(post.net)}"',
        f'arrays_sha256 = "{sha256}"',
    ]
    if options.dtype is not None:
        lines.append(f'dtype = "{np.dtype(options.dtype).name}"')
    if options.key is not None and jax.numpy.issubdtype(options.key.dtype, jax.dtypes.prng_key):
        lines.append(f'key_impl = "{jax.random.key_impl(options.key)}"')
    return "\n".join(lines) + "\n"


def _key(arrays, about) -> Any:
    if "key" not in arrays:
        return None
    data = jax.numpy.asarray(arrays["key"])
    return jax.random.wrap_key_data(data, impl=about["key_impl"]) if "key_impl" in about else data


def _inputs(arrays, name: str, inputs: int, single: bool) -> Any:
    parts = tuple(arrays.get(f"{name}.{i}") for i in range(inputs))
    if single:
        return parts[0]
    return None if all(p is None for p in parts) else parts


def _estimate(arrays, name: str) -> Replicated | None:
    if name not in arrays:
        return None
    return Replicated(arrays[name], arrays.get(f"{name}.deviations"))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
