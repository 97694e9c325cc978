"""Networks and data that commands are asked about."""

import dataclasses
import re
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from limitformer.cli.command import Usage
from limitformer.cli.read import TABLES, read, split, table_names
from limitformer.files import load, loads
from limitformer.layers.base import Layer, leaves

BUILT_IN = ("digits", "wine", "breast_cancer", "diabetes")
ROWS = 100  # of built-in data, unless said otherwise


def network(given: str | None) -> Layer:
    """The network of a TOML file, of an experiment, or one that is built in.

    Raises:
        FileNotFoundError: neither; the message names the built-in ones.
    """
    if given is None:
        raise Usage("which network? Give a TOML file, or mlp, attention, transformer or vit.")
    folder = resources.files("limitformer.cli") / "networks"
    names = sorted(item.name.removesuffix(".toml") for item in folder.iterdir())
    if given in names:
        return loads((folder / f"{given}.toml").read_text(encoding="utf-8"), file=given)
    path = Path(given).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no network {given!r}: no file {path.absolute()}, and built in are "
            f"{', '.join(names)}. To start a file of your own: limitformer show vit --toml net.toml"
        )
    return load(path)


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs and targets.

    Attributes:
        x: as `net.kernel` takes them.
        mask: valid tokens, None: all.
        y: targets, labels (integers or text), or None.
        labels: whether `y` are classes.
        names: columns of a table, empty otherwise.
        text: what they are, in words.
    """

    x: np.ndarray
    mask: np.ndarray | None
    y: np.ndarray | None
    labels: bool
    names: tuple[str, ...]
    text: str


def inputs(
    data: str | None,
    rows: int | None,
    x: str | None,
    y: str | None = None,
    mask: str | None = None,
    *,
    classes: bool = False,
    part: str = "train",
    default: int = ROWS,
) -> Inputs:
    """Read what the options name.

    Args:
        data: the name of a built-in set; a quarter of it is held out.
        rows: use as many.
        x, y, mask: files, instead of `data`.
        classes: numbers in `y` are labels.
        part: of built-in data, "train" or "test".
        default: rows of built-in data, unless said.
    """
    if (data is None) == (x is None):
        raise Usage(
            f"give the inputs either as --x FILE or as --data, one of {', '.join(BUILT_IN)}."
        )
    if data is not None:
        if y is not None or mask is not None:
            raise Usage("--y and --mask belong to --x; --data brings its own.")
        return _built_in(data, rows or default, part)
    assert x is not None
    without = _columns_of_targets(x, y)
    values = read(x, "--x", without)
    targets = None if y is None else read(y, "--y")
    valid = None if mask is None else _mask(read(mask, "--mask"), mask)
    if values.ndim == 0 or values.dtype.kind not in "fiub":
        raise ValueError(f"--x {x}: expected numbers, one input per row, got {_shape(values)}")
    if values.ndim == 1:
        values = values[:, None]
    for option, found in (("--y", targets), ("--mask", valid)):
        if found is not None and len(found) != len(values):
            raise ValueError(
                f"--x {x} has {len(values)} rows and {option} has {len(found)}; give one each"
            )
    if rows is not None:
        values, targets, valid = (None if a is None else a[:rows] for a in (values, targets, valid))
    assert values is not None
    labels = targets is not None and (classes or targets.dtype.kind in "US")
    if targets is not None and labels:
        targets = _label_names(targets)
    return Inputs(values, valid, targets, labels, table_names(x, without), f"{x} {_shape(values)}")


def _columns_of_targets(x: str, y: str | None) -> tuple[str, ...]:
    """The columns of a table that are targets, where inputs are all the others."""
    path, name = split(x)
    if y is None or name is not None or path.suffix.lower() not in TABLES:
        return ()
    file, target = split(y)
    return tuple(target.split(",")) if target and file == path else ()


def _label_names(y: np.ndarray) -> np.ndarray:
    """Labels as text: 3 and 3.0 are one."""
    if y.ndim != 1:
        raise ValueError(f"labels have shape {y.shape}; expected one per input, (n,)")
    return np.array([f"{v:g}" if isinstance(v, float) else str(v) for v in y.tolist()])


def _mask(values: np.ndarray, given: str) -> np.ndarray:
    if values.dtype != bool and not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"--mask {given}: expected True or False (or 1 and 0), got {_shape(values)}"
        )
    return values.astype(bool)


def _built_in(name: str, rows: int, part: str) -> Inputs:
    from limitformer import data

    if name not in BUILT_IN:
        hint = " (a file is given with --x)" if re.search(r"[./\\]", name) else ""
        raise Usage(f"--data {name} is not built in{hint}; choose one of {', '.join(BUILT_IN)}.")
    full = getattr(data, name)()
    n = len(full.x_train)
    held = n // 4
    found = full.take(n - held, held, key=0, balanced=False)
    x, y = (found.x_test, found.y_test) if part == "test" else (found.x_train, found.y_train)
    if rows > len(x):
        which = "held out" if part == "test" else "to learn from"
        raise ValueError(f"--rows {rows}: {name} has {len(x)} inputs {which}")
    x, y = x[:rows], y[:rows]
    classes: Any = found.class_names
    if classes:
        y = np.array(classes)[y]
    return Inputs(x, None, y, bool(classes), (), f"{name} {_shape(x)}")


def _shape(values: np.ndarray) -> str:
    return f"{' × '.join(map(str, values.shape))} {values.dtype}"


def finite_heads(net: Layer) -> bool:
    """Whether attention scores stay random: finitely many heads at scale "sqrt"."""
    return any(
        getattr(leaf, "scale", "") == "sqrt" and np.isfinite(getattr(leaf, "heads", np.inf))
        for _, leaf in leaves(net)
    )
