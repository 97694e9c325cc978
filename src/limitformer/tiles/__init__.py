"""Gram matrices beyond memory and beyond one machine."""

from .check import Status, Verification, resume, status, verify
from .cluster import WORKER_ENVIRONMENT, local_cluster
from .evidence import Evidence, LogDeterminant, evidence, log_determinant
from .gram import Gram, gram, open_gram
from .low_rank import Features, KernelError, Ridge, inducing, kernel_error, ridge, twin_features
from .matrix import Tiled
from .plan import ScalePlan, plan
from .predict import predict
from .solve import Solution, solve
from .store import DamagedTile, MissingTile
from .variance import Variances, variance

__all__ = [
    "WORKER_ENVIRONMENT",
    "DamagedTile",
    "Evidence",
    "Features",
    "Gram",
    "KernelError",
    "LogDeterminant",
    "MissingTile",
    "Ridge",
    "ScalePlan",
    "Solution",
    "Status",
    "Tiled",
    "Variances",
    "Verification",
    "evidence",
    "gram",
    "inducing",
    "kernel_error",
    "local_cluster",
    "log_determinant",
    "open_gram",
    "plan",
    "predict",
    "resume",
    "ridge",
    "solve",
    "status",
    "twin_features",
    "variance",
    "verify",
]
