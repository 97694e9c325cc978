"""Real transformers: read a checkpoint, run it, take it apart (theory 4)."""

from typing import TYPE_CHECKING, Any

from .architectures import ARCHITECTURES, from_config
from .checkpoint import load
from .forward import Step, forward, steps
from .initial import initial, reinitialised
from .inputs import rows, stream
from .limit import limit_of
from .profile import AttentionProfile, attention_profile, stream_profile
from .shared import shared_profile
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

if TYPE_CHECKING:
    from .rank import RankReport, rank_report

__all__ = [
    "ARCHITECTURES",
    "Attention",
    "AttentionProfile",
    "Embedding",
    "Mlp",
    "Model",
    "Norm",
    "Patches",
    "RankReport",
    "Relative",
    "Rotary",
    "Step",
    "Sublayer",
    "attention_profile",
    "forward",
    "from_config",
    "from_spec",
    "initial",
    "limit_of",
    "load",
    "rank_report",
    "reinitialised",
    "rows",
    "shared_profile",
    "steps",
    "stream",
    "stream_profile",
]


def __getattr__(name: str) -> Any:
    # the report reads limitformer.depth.paths, which reads this package
    if name in ("RankReport", "rank_report"):
        from . import rank as module

        globals().update(RankReport=module.RankReport, rank_report=module.rank_report)
        return globals()[name]
    raise AttributeError(f"module 'limitformer.models' has no attribute {name!r}")
