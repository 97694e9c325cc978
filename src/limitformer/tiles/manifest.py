"""What a store of tiles was computed from: canonical JSON, and its SHA-256 as an identity.

Two runs are one if everything but the revision is equal: the revision says where to find the
sources, the engine's digest says whether they compute the same.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

FORMAT = 1
"""Version of the format of stores."""
PRECISION = "highest"
"""Precision of matrix products: full float32 or float64 on every device."""
_PACKAGES = ("jax", "jaxlib", "equinox", "numpy")
_ENGINE = ("duals", "kernel", "layers", "scores", "tiles/compute.py", "tiles/inputs.py")
_RECORDED = ("revision",)  # told, not compared


def versions() -> dict[str, str]:
    """Versions of everything that computes a tile's numbers."""
    from .. import __version__

    found = {name: metadata.version(name) for name in _PACKAGES}
    return {"limitformer": __version__, "python": platform.python_version(), **found}


@functools.cache
def engine(*more: str) -> str:
    """SHA-256 of the code that computes a tile, without its comments and docstrings.

    Args:
        more: other files of the package that take part in a computation.
    """
    root = Path(__file__).parents[1]
    files = [path for name in _ENGINE for path in sorted((root / name).rglob("*.py"))]
    files += [root / name for name in (*_ENGINE, *more) if name.endswith(".py")]
    sha = hashlib.sha256()
    for path in sorted(files):
        sha.update(
            f"{path.relative_to(root).as_posix()}\n{code(path.read_text('utf-8'))}\n".encode()
        )
    return sha.hexdigest()


def code(source: str) -> str:
    """What a Python file does, in text: its syntax tree without docstrings.

    Example:
        >>> code("x = 1  # one") == code("'Numbers.'\\nx  =  1") != code("x = 2")
        True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            del body[0]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@functools.cache
def revision() -> str | None:
    """The git revision of limitformer's sources, None for an installed package."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def canonical(manifest: dict[str, Any]) -> str:
    """The manifest as JSON with sorted keys: the same text on every machine.

    Example:
        >>> canonical({"b": 1, "a": [0.5, None]})
        '{"a":[0.5,null],"b":1}'
    """
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)


def compared(manifest: dict[str, Any]) -> dict[str, Any]:
    """What makes a run the same run: everything but what is only told."""
    return {name: value for name, value in manifest.items() if name not in _RECORDED}


def identity(manifest: dict[str, Any]) -> str:
    """SHA-256 of the canonical form of what is compared, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(compared(manifest)).encode()).hexdigest()


def here() -> dict[str, Any]:
    """What this process computes tiles with."""
    return {"versions": versions(), "precision": PRECISION, "engine": engine()}


def advice(stored: dict[str, Any], lines: list[str]) -> str:
    """How to go on with a store whose engine is not this one, if that is what differs."""
    revision = stored.get("revision")
    if revision is None or not any(line.startswith("engine") for line in lines):
        return ""
    return (
        f"\nits engine is that of revision {revision}: git worktree add ../engine {revision[:12]}"
    )


def differences(stored: dict[str, Any], asked: dict[str, Any], path: str = "") -> list[str]:
    """What two manifests disagree on, one line each.

    Example:
        >>> differences({"dtype": "float64", "data": {"x": 1}}, {"dtype": "float32", "data": {}})
        ['data.x: stored 1, asked for nothing', "dtype: stored 'float64', asked for 'float32'"]
    """
    found = []
    for name in sorted({*stored, *asked}):
        old, new = (m.get(name, _NOTHING) for m in (stored, asked))
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{path}{name}.")
        elif old != new:
            found.append(f"{path}{name}: stored {_shown(old)}, asked for {_shown(new)}")
    return found


_NOTHING = object()


def _shown(value) -> str:
    if value is _NOTHING:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 200 else text[:90] + " ... " + text[-90:]


def key_to_json(key) -> dict[str, Any] | None:
    """A random key as numbers."""
    if key is None:
        return None
    typed = jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
    data = np.asarray(jax.random.key_data(key) if typed else key)
    return {"impl": str(jax.random.key_impl(key)) if typed else None, "data": data.tolist()}


def key_from_json(about: dict[str, Any] | None) -> Any:
    """The random key that `key_to_json` wrote."""
    if about is None:
        return None
    data = jax.numpy.asarray(np.array(about["data"], np.uint32))
    return jax.random.wrap_key_data(data, impl=about["impl"]) if about["impl"] else data
