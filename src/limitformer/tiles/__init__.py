"""Gram matrices beyond memory and beyond one machine."""

from .check import Status, Verification, resume, status, verify
from .cluster import WORKER_ENVIRONMENT, local_cluster
from .evidence import Evidence, LogDeterminant, evidence, log_determinant
from .gram import Gram, gram, open_gram
from .matrix import Tiled
from .predict import predict
from .solve import Solution, solve
from .store import DamagedTile, MissingTile

__all__ = [
    "WORKER_ENVIRONMENT",
    "DamagedTile",
    "Evidence",
    "Gram",
    "LogDeterminant",
    "MissingTile",
    "Solution",
    "Status",
    "Tiled",
    "Verification",
    "evidence",
    "gram",
    "local_cluster",
    "log_determinant",
    "open_gram",
    "predict",
    "resume",
    "solve",
    "status",
    "verify",
]
