"""One neutral description of a transformer with its weights, as NumPy arrays.

A model is a sequence of sublayers acting on the residual stream h (tokens x channels):

    h' = after( skip h + branch( before(h) ) )

with `branch` an attention, an MLP or nothing, and `before`, `after` norms or nothing. Pre-norm
models have only `before`, post-norm models only `after`; a final norm is a sublayer without branch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .gates import activation_name
from .weights import check_weights, map_arrays


@dataclasses.dataclass(frozen=True)
class Norm:
    """LayerNorm or RMSNorm over channels: gain (h - mean) / sqrt(mean square + eps) + bias.

    Attributes:
        gain: (d,).
        bias: (d,) or None.
        centred: True for LayerNorm, False for RMSNorm.
        eps: added to the variance.
    """

    gain: np.ndarray
    bias: np.ndarray | None = None
    centred: bool = True
    eps: float = 1e-12


@dataclasses.dataclass(frozen=True)
class Rotary:
    """Rotary positions: channels (j, j + J) turn by the angle position * frequency_j.

    Attributes:
        frequencies: (J,), J at most half the head's width; channels from 2J on do not turn.
    """

    frequencies: np.ndarray


@dataclasses.dataclass(frozen=True)
class Relative:
    """Relative positions of Transformer-XL and XLNet.

    scores_ij += b_W . k_j + (q_i + b_R) . (r(i - j) W_R),  r the sinusoidal code.

    Attributes:
        W_R: (H, d, dk).
        b_W: (H, dk), added to the queries against the keys.
        b_R: (H, dk), added to the queries against the positions.

    XLNet's segment code adds one number to a row of a single text's scores: softmax forgets it.
    """

    W_R: np.ndarray
    b_W: np.ndarray
    b_R: np.ndarray


@dataclasses.dataclass(frozen=True)
class Attention:
    """H heads: sum_h softmax(scale q_h k_h^T) (x W_V,h + b_V,h) W_O,h + b_O.

    Attributes:
        W_Q: (H, d, dk).
        W_K: (G, d, dk); G divides H, and head h reads group h // (H / G).
        W_V: (G, d, dv).
        W_O: (H, dv, d).
        b_Q, b_K, b_V: (H, dk), (G, dk), (G, dv) or None.
        b_O: (d,) or None.
        scale: multiplies scores; None is 1 / sqrt(dk).
        causal: token i sees tokens j <= i.
        window: token i sees only j > i - window; None for all.
        rotary, relative: positions.
        query_norm, key_norm: norms over dk of each head's queries and keys.
    """

    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    W_O: np.ndarray
    b_Q: np.ndarray | None = None
    b_K: np.ndarray | None = None
    b_V: np.ndarray | None = None
    b_O: np.ndarray | None = None
    scale: float | None = None
    causal: bool = False
    window: int | None = None
    rotary: Rotary | None = None
    relative: Relative | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None

    @property
    def heads(self) -> int:
        """H."""
        return self.W_Q.shape[0]

    @property
    def group(self) -> np.ndarray:
        """(H,): which key and value group each head reads."""
        return np.arange(self.heads) // (self.heads // self.W_K.shape[0])


@dataclasses.dataclass(frozen=True)
class Mlp:
    """act(z) W_out + b_out, z = x W_in + b_in; gated: (act(x W_gate + b_gate) * z) W_out + b_out.

    Attributes:
        W_in: (d, m).
        W_out: (m, d).
        b_in, b_out: (m,), (d,) or None.
        W_gate, b_gate: as W_in, b_in for a gated MLP, else None.
        activation: a name in `limitformer.models.gates`.
    """

    W_in: np.ndarray
    W_out: np.ndarray
    b_in: np.ndarray | None = None
    b_out: np.ndarray | None = None
    W_gate: np.ndarray | None = None
    b_gate: np.ndarray | None = None
    activation: str = "gelu"

    def __post_init__(self):
        object.__setattr__(self, "activation", activation_name(self.activation))


@dataclasses.dataclass(frozen=True)
class Sublayer:
    """h' = after( skip h + branch( before(h) ) ).

    Attributes:
        name: how reports and errors call it, such as "layer 3 attention".
        module: of the checkpoint, whose output is h' where there is a norm after, else the branch;
            captures of the original model are compared there.
    """

    name: str
    branch: Attention | Mlp | None
    before: Norm | None = None
    after: Norm | None = None
    skip: float = 1.0
    module: str = ""


@dataclasses.dataclass(frozen=True)
class Embedding:
    """Token ids to the stream: norm(tokens[id] + positions[offset + i] + types) projection.

    Attributes:
        tokens: (vocabulary, e).
        positions: (length, e), or (length, d) where `positions_last`; or None.
        types: (e,), the segment code of a single text, or None.
        norm: over e, or None.
        offset: of the first position in its table.
        projection: (e, d), with its bias (d,), or None.
        positions_last: add positions after the projection.
    """

    tokens: np.ndarray
    positions: np.ndarray | None = None
    types: np.ndarray | None = None
    norm: Norm | None = None
    offset: int = 0
    projection: np.ndarray | None = None
    projection_bias: np.ndarray | None = None
    positions_last: bool = False


@dataclasses.dataclass(frozen=True)
class Patches:
    """Images (height, width, channels) to the stream: class token and patches, plus positions.

    Attributes:
        W: (patch, patch, channels, d).
        b: (d,) or None.
        class_token: (d,) or None.
        positions: (tokens, d).
    """

    W: np.ndarray
    b: np.ndarray | None
    class_token: np.ndarray | None
    positions: np.ndarray


@dataclasses.dataclass(frozen=True)
class Model:
    """A transformer with its weights; built by `load`, `from_hf`, `from_config` or `from_spec`.

    Attributes:
        name: for reports.
        sublayers: in order; see `Sublayer`.
        embedding: how inputs become the stream; None where the stream itself is the input.
        max_tokens: longest input, or None.
        tokenize: text to token ids, or None.
        config: the configuration it came with, or None.
    """

    name: str
    sublayers: tuple[Sublayer, ...]
    embedding: Embedding | Patches | None = None
    max_tokens: int | None = None
    tokenize: Callable[[str], np.ndarray] | None = None
    config: Mapping[str, Any] | None = None

    def __post_init__(self):
        if not any(isinstance(s.branch, Attention) for s in self.sublayers):
            raise ValueError(f"{self.name}: no attention among its {len(self.sublayers)} sublayers")
        for sublayer in self.sublayers:
            check_weights(sublayer, self.width, f"{self.name}, {sublayer.name}")

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """The attention of every layer, in order."""
        return tuple(s.branch for s in self.sublayers if isinstance(s.branch, Attention))

    @property
    def depth(self) -> int:
        """L, the number of attention layers."""
        return len(self.attentions)

    @property
    def heads(self) -> tuple[int, ...]:
        """H of every attention layer."""
        return tuple(a.heads for a in self.attentions)

    @property
    def width(self) -> int:
        """d, the channels of the stream."""
        return self.attentions[0].W_Q.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """In which everything is computed."""
        return self.attentions[0].W_Q.dtype

    def astype(self, dtype) -> Model:
        """The same model computed in another precision; embedding tables stay as they are."""
        sublayers = tuple(map_arrays(s, lambda _, w: w.astype(dtype)) for s in self.sublayers)
        return dataclasses.replace(self, sublayers=sublayers)

    def __repr__(self) -> str:
        return (
            f"Model({self.name!r}, {self.depth} attention layers, heads {max(self.heads)}, "
            f"width {self.width}, {self.dtype})"
        )
