"""The law of attention scores: fixed, averaged over, or drawn (theory 2 and 3)."""

from .factor import (
    factor_residual,
    joint_features,
    joint_kernel,
    landmark_features,
    landmark_residual,
    semidefinite_cholesky,
)
from .orthogonal import normals
from .replicates import REPLICATES, draws_each, mean_and_error, replicate_keys
from .shells import score_normals, shell_index, square
from .softmax import (
    NTKSums,
    attention_draws,
    draw_scores,
    mean_over_draws,
    ntk_sum,
    rotary_phases,
    value_sum,
)

__all__ = [
    "REPLICATES",
    "NTKSums",
    "attention_draws",
    "draw_scores",
    "draws_each",
    "factor_residual",
    "joint_features",
    "joint_kernel",
    "landmark_features",
    "landmark_residual",
    "mean_and_error",
    "mean_over_draws",
    "normals",
    "ntk_sum",
    "replicate_keys",
    "rotary_phases",
    "score_normals",
    "semidefinite_cholesky",
    "shell_index",
    "square",
    "value_sum",
]
