"""Ready-made networks: a transformer block, a transformer, a vision transformer."""

from __future__ import annotations

from .activation import Activation
from .attention import Attention
from .base import Layer, choice
from .combine import Repeat, Residual, Serial
from .conv import Conv
from .dense import Dense
from .embed import ClassToken
from .named import Gelu
from .norm import LayerNorm
from .pool import FirstToken, LastToken, MeanPool
from .position import OneHot, Position


def Block(
    attention: Layer | None = None,
    activation: Activation | None = None,
    norm: Layer | None = None,
    placement: str = "pre",
    skip: float = 1.0,
    branch: float = 1.0,
    w_std: float = 1.0,
    b_std: float = 0.0,
) -> Serial:
    """One transformer block: attention and a two-layer MLP, each with a skip and a norm.

    placement="pre":  h + attention(norm(h)), then h + mlp(norm(h)).
    placement="post": norm(h + attention(h)), then norm(h + mlp(h)).
    placement="none": no norms.
    """
    choice("placement", placement, ("pre", "post", "none"))
    attention = Attention() if attention is None else attention
    activation = Gelu() if activation is None else activation
    norm = LayerNorm() if norm is None else norm
    mlp = (Dense(w_std, b_std), activation, Dense(w_std, b_std))
    before = (norm,) if placement == "pre" else ()
    after = (norm,) if placement == "post" else ()
    return Serial(
        Residual(*before, attention, skip=skip, branch=branch),
        *after,
        Residual(*before, *mlp, skip=skip, branch=branch),
        *after,
    )


def Transformer(
    depth: int,
    block: Layer | None = None,
    embed: Layer | None = None,
    position: Position | None = None,
    norm: Layer | None = None,
    pool: str | None = "mean",
    head: Layer | None = None,
) -> Serial:
    """A transformer: embedding, positions, `depth` blocks, a last norm, a readout.

    Args:
        depth: number of blocks.
        block: one block, `Block()` by default.
        embed: `Dense()` by default, for vectors; `Embed()` for token ids.
        position: code added once at the input, for example `Position(OneHot())`.
        norm: last norm, `LayerNorm()` by default.
        pool: "mean", "first", "last", or None for token outputs.
        head: last layer, `Dense()` by default.
    """
    return Serial(
        Dense() if embed is None else embed,
        *(() if position is None else (position,)),
        Repeat(Block() if block is None else block, depth),
        LayerNorm() if norm is None else norm,
        *_readout(pool),
        Dense() if head is None else head,
    )


def VisionTransformer(
    depth: int,
    patch: int | tuple[int, int] = 4,
    block: Layer | None = None,
    position: Position | None = None,
    pool: str = "mean",
    w_std: float = 1.0,
    b_std: float = 0.0,
    head: Layer | None = None,
) -> Serial:
    """A vision transformer on images `(n, height, width, channels)`.

    Args:
        depth: number of blocks.
        patch: side of the square patches, each embedded by one linear map.
        position: code added to the patches; one code per position by default.
        pool: "mean" over the patches, or "class" for a class token.
    """
    choice("pool", pool, ("mean", "class"))
    window = (patch, patch) if isinstance(patch, int) else tuple(patch)
    return Serial(
        Conv(window, w_std, b_std, stride=window, padding="valid"),
        *((ClassToken(),) if pool == "class" else ()),
        Position(OneHot()) if position is None else position,
        Repeat(Block() if block is None else block, depth),
        LayerNorm(),
        FirstToken() if pool == "class" else MeanPool(),
        Dense() if head is None else head,
    )


def _readout(pool: str | None) -> tuple[Layer, ...]:
    if pool is None:
        return ()
    choice("pool", pool, ("mean", "first", "last"))
    return ({"mean": MeanPool, "first": FirstToken, "last": LastToken}[pool](),)
