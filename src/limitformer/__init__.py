"""limitformer: the limits of transformers.

Describe a network once; read it as a Gaussian process or its training limit (`net.kernel`,
`lf.condition`), as the law of finitely many heads (`net.law`) or as a finite network (`net.twin`).

Names are imported when they are first used; `__init__.pyi` says where they are.
"""

import ast
import importlib
import pkgutil
from typing import Any

__version__ = "0.1.0"


def _places() -> dict[str, str]:
    """Public names and the modules that they come from."""
    stub = ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"")
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


_PLACES = _places()
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'limitformer' has no attribute {name!r}")
    place = _PLACES[name]
    if place:
        value = getattr(importlib.import_module(f".{place}", __name__), name)
    else:
        value = importlib.import_module(f".{name}", __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
