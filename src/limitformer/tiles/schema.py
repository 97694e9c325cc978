"""The form of a manifest: one from someone else is data, and names nothing outside its store."""

from __future__ import annotations

import re
from typing import Any

from ..kernel.gram import KINDS

_INPUT = re.compile(r"(array|mask)\d{1,4}|lengths|order")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_form(about: dict[str, Any], url: str) -> None:
    """Refuse a manifest that `lf.gram` would not have written.

    Its names become paths and its numbers sizes, so each is compared with what it may be.

    Raises:
        ValueError: the message has the field.
    """
    sides = {"x"} if _get(about, "tiles", "symmetric") is True else {"x", "y"}
    sizes = [_get(about, "tiles", name) for name in ("n", "m", "tile", "memory")]
    tokens = _get(about, "tiles", "tokens")
    kinds, inputs, data = (about.get(name) for name in ("kinds", "inputs", "data"))
    fine = {
        "kinds": kinds in (*([kind] for kind in KINDS), list(KINDS)),
        "dtype": about.get("dtype") in ("float64", "float32"),
        "network": isinstance(about.get("network"), str),
        "draws": _count(about.get("draws"), 0),
        "tiles": all(_count(size, 1) for size in sizes)
        and isinstance(_get(about, "tiles", "symmetric"), bool)
        and isinstance(tokens, list)
        and len(tokens) in (0, 2)
        and all(_count(size, 1) for size in tokens),
        "inputs": isinstance(inputs, dict)
        and set(inputs) == sides
        and all(isinstance(names, list) and _all(_INPUT, names) for names in inputs.values()),
        "data": isinstance(data, dict) and set(data) == sides and _all(_DIGEST, data.values()),
    }
    wrong = [name for name, good in fine.items() if not good]
    if wrong:
        raise ValueError(
            f"the manifest of {url} is not one that limitformer wrote: "
            + ", ".join(f"{name} is {str(about.get(name))[:80]!r}" for name in wrong)
        )


def _get(about: dict[str, Any], *names: str) -> Any:
    found: Any = about
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _all(form: re.Pattern, texts) -> bool:
    return all(isinstance(text, str) and form.fullmatch(text) for text in texts)
