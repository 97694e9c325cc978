"""Gram matrices beyond memory and beyond one machine."""

from .check import Status, Verification, resume, status, verify
from .cluster import WORKER_ENVIRONMENT, local_cluster
from .devices import sharded_kernel
from .evidence import Evidence, LogDeterminant, evidence, log_determinant
from .gram import Gram, gram, open_gram
from .low_rank import Features, KernelError, Ridge, inducing, kernel_error, ridge, twin_features
from .matrix import Tiled
from .predict import predict
from .solve import Solution, solve
from .store import DamagedTile, MissingTile

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
    "Solution",
    "Status",
    "Tiled",
    "Verification",
    "evidence",
    "gram",
    "inducing",
    "kernel_error",
    "local_cluster",
    "log_determinant",
    "open_gram",
    "predict",
    "resume",
    "ridge",
    "sharded_kernel",
    "solve",
    "status",
    "twin_features",
    "verify",
]
