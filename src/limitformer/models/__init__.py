"""Real transformers: read a checkpoint, run it, take it apart (theory 4)."""

from .architectures import ARCHITECTURES, from_config
from .checkpoint import load
from .forward import Step, forward, steps
from .inputs import rows, stream
from .spec import (
    Attention,
    Embedding,
    Mlp,
    Model,
    Norm,
    Patches,
    Relative,
    Rotary,
    Sublayer,
)
from .specification import from_spec

__all__ = [
    "ARCHITECTURES",
    "Attention",
    "Embedding",
    "Mlp",
    "Model",
    "Norm",
    "Patches",
    "Relative",
    "Rotary",
    "Step",
    "Sublayer",
    "forward",
    "from_config",
    "from_spec",
    "load",
    "rows",
    "steps",
    "stream",
]
