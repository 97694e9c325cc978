"""Import the kernels of Neural Tangents 0.6.5 on a current JAX, to time them on one machine.

    import peer_shim; peer_shim.install("folder with neural_tangents")

The package itself does not import there: its `__init__` asks for TensorFlow and for names that JAX
has moved. This leaves the `__init__` out and puts the names back; `neural_tangents.stax`, which is
all that a kernel needs, then works and agrees with ours.
"""

import sys
import types
from pathlib import Path

import jax.core
from jax._src import core, util

_MOVED = ("Jaxpr", "JaxprEqn", "Literal", "ShapedArray", "Value", "Var", "Primitive", "Tracer")


def install(folder: str | Path) -> None:
    """Make `from neural_tangents import stax` work.

    Args:
        folder: the site-packages folder that holds neural_tangents and frozendict.
    """
    place = Path(folder) / "neural_tangents"
    if not place.is_dir():
        raise SystemExit(f"there is no neural_tangents in {folder}; run benchmarks/kernels.py once")
    sys.path.append(str(folder))
    package = types.ModuleType("neural_tangents")
    package.__path__ = [str(place)]
    sys.modules["neural_tangents"] = package
    for name in _MOVED:
        if not hasattr(jax.core, name) and hasattr(core, name):
            setattr(jax.core, name, getattr(core, name))
    moved = types.ModuleType("jax.util")
    moved.safe_map, moved.safe_zip = util.safe_map, util.safe_zip  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules.setdefault("jax.util", moved)
