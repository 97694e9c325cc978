"""Weights by their names in a checkpoint, turned into the shapes of `spec`."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence

import numpy as np

from .spec import Attention, Mlp, Norm, Sublayer


@dataclasses.dataclass(frozen=True)
class Named:
    """Weights of a checkpoint under a prefix.

    Attributes:
        weights: by full name.
        prefix: such as "bert.".
        dtype: of what comes out.
    """

    weights: Mapping[str, np.ndarray]
    prefix: str
    dtype: np.dtype

    @classmethod
    def find(cls, weights: Mapping[str, np.ndarray], landmark: str, dtype: np.dtype) -> Named:
        """The weights with the prefix that stands before `landmark`."""
        full = [name for name in weights if name == landmark or name.endswith(f".{landmark}")]
        if not full:
            raise ValueError(
                f"the checkpoint has no weight {landmark!r}, so it is not of the type that its "
                f"configuration names; it has {', '.join(list(weights)[:3])}, ..."
            )
        prefix = min(full, key=len).removesuffix(landmark)
        return cls(weights, prefix, dtype)

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.weights

    def __getitem__(self, name: str) -> np.ndarray:
        full = self.prefix + name
        if full not in self.weights:
            near = difflib.get_close_matches(full, list(self.weights), 1, 0.0)
            raise ValueError(f"the checkpoint has no weight {full!r}; the nearest is {near}")
        return np.asarray(self.weights[full]).astype(self.dtype)

    def table(self, name: str) -> np.ndarray:
        """An embedding table, checked, as it is stored: it is large and only read by rows."""
        self_checked = self.weights.get(self.prefix + name)
        if self_checked is None:
            return self[name]
        if not np.isfinite(self_checked).all():
            raise ValueError(f"values of {self.prefix + name} are not finite (NaN or infinite)")
        return self_checked

    def get(self, name: str) -> np.ndarray | None:
        """A weight that may be absent."""
        return self[name] if self.prefix + name in self.weights else None

    def norm(self, name: str, eps: float, centred: bool = True) -> Norm:
        """Gain and bias of a norm; gain 1 where a model has none."""
        gain = self.get(f"{name}.weight")
        gain = self[f"{name}.gamma"] if gain is None else gain
        bias = self.get(f"{name}.bias")
        bias = self.get(f"{name}.beta") if bias is None else bias
        return Norm(gain, bias, centred, float(eps))

    def linear(self, name: str) -> tuple[np.ndarray, np.ndarray | None]:
        """(in, out) and bias of a linear map that is stored as (out, in)."""
        return self[f"{name}.weight"].T, self.get(f"{name}.bias")

    def attention(self, maps: Sequence[str], heads: int, **rest) -> Attention:
        """Heads from linear maps Q, K, V, O; keys and values may have fewer groups than heads."""
        (W_Q, b_Q), (W_K, b_K), (W_V, b_V), (W_O, b_O) = (self.linear(name) for name in maps)
        if W_Q.shape[1] % heads:
            raise ValueError(
                f"{maps[0]}: {W_Q.shape[1]} channels cannot be split into {heads} heads"
            )
        groups = W_K.shape[1] * heads // W_Q.shape[1]
        return Attention(
            W_Q=split(W_Q, heads),
            W_K=split(W_K, groups),
            W_V=split(W_V, groups),
            W_O=join(W_O, heads),
            b_Q=split_bias(b_Q, heads),
            b_K=split_bias(b_K, groups),
            b_V=split_bias(b_V, groups),
            b_O=b_O,
            **rest,
        )

    def mlp(self, first: str, last: str, activation: str, gate: str | None = None) -> Mlp:
        """A two-layer MLP, or a gated one."""
        (W_in, b_in), (W_out, b_out) = self.linear(first), self.linear(last)
        W_gate, b_gate = (None, None) if gate is None else self.linear(gate)
        return Mlp(W_in, W_out, b_in, b_out, W_gate, b_gate, activation)


def split(W: np.ndarray, heads: int) -> np.ndarray:
    """(d, H dk) to (H, d, dk)."""
    return np.ascontiguousarray(W.reshape(W.shape[0], heads, -1).transpose(1, 0, 2))


def join(W: np.ndarray, heads: int) -> np.ndarray:
    """(H dv, d) to (H, dv, d)."""
    return np.ascontiguousarray(W).reshape(heads, -1, W.shape[1])


def split_bias(b: np.ndarray | None, heads: int) -> np.ndarray | None:
    """(H dk,) to (H, dk)."""
    return None if b is None else b.reshape(heads, -1)


def pair(
    layer: int,
    attention: Attention,
    mlp: Mlp,
    norms: tuple[Norm, Norm],
    modules: tuple[str, str],
    placement: str,
) -> tuple[Sublayer, Sublayer]:
    """The two sublayers of a transformer layer with norms before ("pre") or after ("post")."""
    pre = placement == "pre"
    made = [
        Sublayer(name, branch, norm if pre else None, None if pre else norm, module=module)
        for name, branch, norm, module in zip(
            (f"layer {layer} attention", f"layer {layer} MLP"),
            (attention, mlp),
            norms,
            modules,
            strict=True,
        )
    ]
    return made[0], made[1]
