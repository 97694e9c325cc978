"""A sublayer with its attention maps, norms and MLP gates frozen: linear, plus sources.

Every function acts on stacks (..., n, d) of parts of the stream. A frozen LayerNorm is
x -> (x - mean x) gain / sigma, plus its bias; sigma is that of the whole stream, so the norms of
the parts add up to the norm of the sum. Biases, and MLPs taken as sources, belong to no path's
linear map: callers add them to the part of length 0 alone.
"""

from __future__ import annotations

import numpy as np

from ..models.forward import Step
from ..models.spec import Attention, Mlp, Norm


def frozen_norm(norm: Norm | None, scale: np.ndarray | None, S: np.ndarray) -> np.ndarray:
    """The linear part of a norm with its 1 / sigma frozen."""
    if norm is None:
        return S
    if norm.centred:
        S = S - S.mean(axis=-1, keepdims=True)
    return S * (scale * norm.gain)


def add_source(S: np.ndarray, source: np.ndarray | None) -> None:
    """Add a source to the part of length 0 of a stack (..., lengths, n, d), in place."""
    if source is not None:
        S[..., 0, :, :] += source


def frozen_values(step: Step, inner: np.ndarray) -> np.ndarray:
    """(..., n, G, dv): x W_V, of every group, without the bias."""
    W_V = _attention(step).W_V
    flat = np.ascontiguousarray(np.moveaxis(W_V, 0, 1)).reshape(W_V.shape[1], -1)
    return (inner @ flat).reshape(*inner.shape[:-1], len(W_V), -1)


def frozen_heads(step: Step, V: np.ndarray) -> np.ndarray:
    """sum_h A_h V_h W_O,h from values (..., n, H, dv), without the bias."""
    attention, A = _attention(step), np.asarray(step.A)
    *lead, n, H, dv = V.shape
    # one product per head, with everything that shares its map side by side
    side = np.ascontiguousarray(V.reshape(-1, n, H, dv).transpose(2, 1, 0, 3)).reshape(H, n, -1)
    mixed = np.matmul(A, side).reshape(H, n, -1, dv).transpose(2, 1, 0, 3)
    flat = np.ascontiguousarray(mixed).reshape(*lead, n, H * dv)
    return flat @ attention.W_O.reshape(H * dv, -1)


def frozen_mlp(step: Step, inner: np.ndarray) -> np.ndarray:
    """(gates * (x W_in)) W_out: the MLP's linear part, one part of the stack at a time."""
    mlp = step.sublayer.branch
    if not isinstance(mlp, Mlp):
        raise TypeError(f"{step.name} is not an MLP")
    result = np.empty_like(inner)
    for i in np.ndindex(inner.shape[:-2]):
        result[i] = (step.gates * (inner[i] @ mlp.W_in)) @ mlp.W_out
    return result


def mlp_source(step: Step) -> np.ndarray:
    """(n, d): what the frozen MLP adds to the part of length 0: (gates * b_in) W_out + b_out."""
    mlp = step.sublayer.branch
    source = np.zeros_like(step.branch)
    if isinstance(mlp, Mlp):
        if mlp.b_in is not None:
            source = (step.gates * mlp.b_in) @ mlp.W_out
        if mlp.b_out is not None:
            source = source + mlp.b_out
    return source


def advance(step: Step, S: np.ndarray, inside: bool, signs: np.ndarray | None = None) -> np.ndarray:
    """All paths through one sublayer, sorted by length.

        S'^(k) = S^(k) + sum_h A_h S^(k-1) W_h

    between the frozen norms before and after, and with the sources in S'^(0).

    Args:
        step: of the model's forward pass.
        S: (..., K, n, d), the parts of length 0, ..., K - 1.
        inside: MLPs inside paths, by their gates, instead of as sources.
        signs: (..., H), multiplies the heads.

    Returns:
        (..., K', n, d), K' = K + 1 after attention.
    """
    sublayer = step.sublayer
    branch = sublayer.branch
    inner = S
    if isinstance(branch, Attention) or (isinstance(branch, Mlp) and inside):
        inner = frozen_norm(sublayer.before, step.scale_before, S)
        if sublayer.before is not None:
            add_source(inner, sublayer.before.bias)
    new = sublayer.skip * S
    if isinstance(branch, Attention):
        V = frozen_values(step, inner)
        if branch.b_V is not None:
            V[..., 0, :, :, :] += branch.b_V
        V = V if len(branch.W_V) == branch.heads else V[..., branch.group, :]
        if signs is not None:
            V = V * signs[..., None, None, :, None]
        longer = frozen_heads(step, V)
        nothing = np.zeros_like(new[..., :1, :, :])
        new = np.concatenate([new, nothing], axis=-3)
        new[..., 1:, :, :] += longer
        add_source(new, branch.b_O)
    elif isinstance(branch, Mlp) and inside:
        new = new + frozen_mlp(step, inner)
        # the norm's bias is in inner already; what is left is the MLP's own
        add_source(new, mlp_source(step))
    elif isinstance(branch, Mlp):
        add_source(new, step.branch)
    new = frozen_norm(sublayer.after, step.scale_after, new)
    if sublayer.after is not None:
        add_source(new, sublayer.after.bias)
    return new


def skip_over(step: Step, s: np.ndarray, inside: bool) -> np.ndarray:
    """Parts (..., n, d) that have begun, past one sublayer without one of its heads."""
    sublayer = step.sublayer
    new = sublayer.skip * s
    if isinstance(sublayer.branch, Mlp) and inside:
        new = new + frozen_mlp(step, frozen_norm(sublayer.before, step.scale_before, s))
    return frozen_norm(sublayer.after, step.scale_after, new)


def through_head(step: Step, s: np.ndarray, head: int, begins: np.ndarray) -> np.ndarray:
    """Parts (m, n, d) through one head and not its skip; `begins` (m,): s is of length 0."""
    sublayer, attention = step.sublayer, _attention(step)
    inner = frozen_norm(sublayer.before, step.scale_before, s)
    at = begins.astype(s.dtype)[:, None, None]
    if sublayer.before is not None and sublayer.before.bias is not None:
        inner = inner + at * sublayer.before.bias
    group = attention.group[head]
    V = inner @ attention.W_V[group]
    if attention.b_V is not None:
        V = V + at * attention.b_V[group]
    new = np.matmul(step.A[head], V) @ attention.W_O[head]
    return frozen_norm(sublayer.after, step.scale_after, new)


def _attention(step: Step) -> Attention:
    if not isinstance(step.sublayer.branch, Attention):
        raise TypeError(f"{step.name} has no attention")
    return step.sublayer.branch
