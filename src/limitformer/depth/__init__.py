"""Signals through depth: collapse metrics, profiles, critical scales, bounds, paths."""

from .bounds import Bound, dobrushin_bound, dong, measured
from .correlation import CorrelationMap, FixedPoint, correlation_map
from .critical import Critical, PhaseDiagram, critical, phase_diagram
from .curves import Curves
from .metrics import (
    attention_entropy,
    cosine_gap,
    dirichlet_energy,
    dobrushin,
    effective_rank,
    mean_cosine,
    relative_residual,
    resolution,
    stable_rank,
)
from .profile import DepthProfile, depth_profile
from .split import Split, split

__all__ = [
    "Bound",
    "CorrelationMap",
    "Critical",
    "Curves",
    "DepthProfile",
    "FixedPoint",
    "PhaseDiagram",
    "Split",
    "attention_entropy",
    "correlation_map",
    "cosine_gap",
    "critical",
    "depth_profile",
    "dirichlet_energy",
    "dobrushin",
    "dobrushin_bound",
    "dong",
    "effective_rank",
    "mean_cosine",
    "measured",
    "phase_diagram",
    "relative_residual",
    "resolution",
    "split",
    "stable_rank",
]
