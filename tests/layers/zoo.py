"""The zoo: networks that together hold every layer and option, for the tests that run over all.

A `Case` is a network with the kind of input it takes and what is known of it. Its inputs are built
so that one call shows many laws at once (see `sequences`).
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

import limitformer as lf

FEATURES = 5
LENGTH = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """A network of the zoo.

    Attributes:
        input: "sequence", "image", "ids", "flat" or "two" (two sequences).
        masks: "any", "contiguous" (windows on sequences) or "none" (circular windows).
        permutes: "invariant" or "equivariant" under permutations of the tokens, or "no".
        fast: in the selection that runs in seconds.
        dropout: an input knows itself, so that a copy is not the same.
        smooth: a smooth function of its inputs, for finite differences.
    """

    name: str
    net: lf.Layer
    input: str = "sequence"
    masks: str = "any"
    permutes: str = "no"
    fast: bool = False
    dropout: bool = False
    smooth: bool = True

    @property
    def random(self) -> bool:
        from limitformer.layers.base import leaves

        return any(leaf.random_scores for _, leaf in leaves(self.net))

    @property
    def options(self) -> dict:
        return {"draws": 32} if self.random else {}


def _dense(*layers, readout=None):
    """Layers between two Dense, on tokens."""
    layers = (lf.Dense(1.3, 0.2), *layers, lf.Dense(0.9, 0.1))
    return lf.Serial(*layers) if readout is None else lf.Serial(*layers, readout)


def _local(n: int) -> np.ndarray:
    """A banded pair mask of length n."""
    i = np.arange(n)
    return np.abs(i[:, None] - i[None]) <= 1


def _triangle(distance2):
    """A triangular decay, the covariance of a moving average: positive semidefinite in 1-D."""
    return jnp.maximum(1 - jnp.sqrt(distance2) / 3, 0.0)


def _bias(difference):
    return 0.3 * np.cos(difference) - 0.1 * np.abs(difference)


def _act(x):
    return jnp.tanh(x) + 0.1 * x


def _cases():
    D, R = lf.Dense, lf.Relu
    A = lf.Attention
    linear = lambda *a, **k: A("linear", *a, qk_std=0.8, ov_std=1.1, b_std=0.2, **k)  # noqa: E731
    sqrt = lambda *a, **k: A("sqrt", *a, qk_std=0.8, ov_std=1.1, b_std=0.2, **k)  # noqa: E731
    out: list[Case] = []

    def add(name, net, **facts):
        out.append(Case(name, net, **facts))

    # Dense, activations
    flat = {"input": "flat", "masks": "none"}
    add("dense flat", lf.Serial(D(1.3, 0.2), R(), D(0.9, 0.1), lf.Gelu(), D()), **flat)
    standard = {"parametrisation": "standard"}
    add(
        "dense standard",
        lf.Serial(
            D(1.3, 0.2, **standard, width=5), lf.Gelu(), D(0.9, **standard, width=64), lf.MeanPool()
        ),
        permutes="invariant",
    )
    add(
        "rectifiers",
        _dense(R(), D(), lf.LeakyRelu(0.2), D(), lf.Abs(), D(), lf.Elu()),
        smooth=False,
    )
    add("error functions", _dense(lf.Erf(), D(), lf.Gelu(), D(), lf.GeluTanh(), D(), lf.Silu()))
    add("sigmoids", _dense(lf.Tanh(), D(), lf.Sigmoid(), D(), lf.Softplus(), D(), lf.Sin()))
    add(
        "other activations",
        _dense(
            lf.Cos(),
            D(),
            lf.Gaussian(),
            D(),
            lf.Polynomial((0.1, 1.0, 0.3)),
            D(),
            lf.Activation(_act),
        ),
        permutes="equivariant",
    )
    add("sign", lf.Serial(D(1.3, 0.2), lf.Sign(), D()), smooth=False)

    # Windows
    seq = {"masks": "contiguous"}
    add("conv same", _dense(lf.Conv((3,), 1.2, 0.2), R()), **seq, smooth=False)
    add("conv even", lf.Serial(lf.Conv((2,), 1.2, 0.2), lf.Erf(), D(), lf.MeanPool()), **seq)
    add("conv valid", _dense(lf.Conv((2,), 1.2, 0.2, padding="valid"), lf.Erf()), **seq)
    add(
        "conv stride",
        _dense(lf.Conv((3,), 1.2, 0.2, stride=2), lf.Erf(), readout=lf.Flatten()),
        **seq,
    )
    add(
        "conv valid stride",
        _dense(lf.Conv((2,), 1.2, 0.2, 2, "valid"), lf.Erf(), readout=lf.SumPool()),
        **seq,
    )
    add(
        "conv circular", _dense(lf.Conv((3,), 1.2, 0.2, padding="circular"), lf.Erf()), masks="none"
    )
    add(
        "conv standard",
        _dense(lf.Conv((3,), 1.2, 0.2, **standard, width=7), lf.Erf(), readout=lf.MeanPool()),
        **seq,
    )
    add("avgpool same", _dense(R(), lf.AvgPool((2,), 1, "same"), D()), **seq, smooth=False)
    add("avgpool valid", _dense(lf.AvgPool((2,)), lf.LayerNorm(), lf.Erf()), **seq)
    image = {"input": "image"}
    add(
        "image conv",
        lf.Serial(
            lf.Conv((3, 3), 1.2, 0.2), R(), lf.Conv((3, 3), 1.2, 0.2), R(), D(), lf.Flatten()
        ),
        **image,
        smooth=False,
    )
    add(
        "image valid stride",
        lf.Serial(lf.Conv((2, 3), 1.2, 0.2, (1, 2), "valid"), lf.Erf(), D()),
        **image,
    )
    add(
        "image circular",
        lf.Serial(lf.Conv((3, 3), 1.2, 0.2, padding="circular"), lf.Erf(), D(), lf.MeanPool()),
        input="image",
        masks="none",
    )
    add(
        "image pool",
        lf.Serial(
            lf.Conv((3, 3), 1.2, 0.2, **standard, width=2),
            lf.Erf(),
            lf.AvgPool((2, 2), padding="same"),
            D(),
            lf.AvgPool((1, 2)),
            lf.FirstToken(),
        ),
        **image,
    )

    # Readouts, tokens
    for pool, permutes in (
        (lf.MeanPool(), "invariant"),
        (lf.SumPool(), "invariant"),
        (lf.FirstToken(), "no"),
        (lf.LastToken(), "no"),
        (lf.Flatten(), "no"),
    ):
        name = type(pool).__name__
        add(name, lf.Serial(D(1.3, 0.2), lf.Erf(), pool, D(), lf.Erf(), D()), permutes=permutes)
    ids = {"input": "ids"}
    add("embed", lf.Serial(lf.Embed(1.2), D(1.1, 0.2), lf.Erf(), D(), lf.MeanPool()), **ids)
    add("embed attention", lf.Serial(lf.Embed(1.2), linear(), lf.Erf(), D()), **ids)
    add(
        "class token",
        lf.Serial(D(1.3, 0.2), lf.ClassToken(0.9), linear(), lf.Erf(), D(), lf.FirstToken()),
        permutes="invariant",
    )
    add("class token raw", lf.Serial(lf.ClassToken(0.9), lf.LayerNorm(), D(1.3), lf.Erf(), D()))
    add(
        "dropout",
        _dense(lf.Erf(), lf.Dropout(0.8), D(), linear(), lf.Dropout(0.7)),
        dropout=True,
        permutes="equivariant",
    )

    # Norms
    add("layernorm raw", lf.Serial(lf.LayerNorm(), D(1.3, 0.2), lf.Erf(), D()))
    add("layernorm act", _dense(R(), lf.LayerNorm(), D(), readout=lf.MeanPool()), smooth=False)
    add("norm all", _dense(R(), lf.LayerNorm("all"), D(), lf.LayerNorm("all")), smooth=False)
    add("norm all raw", lf.Serial(lf.LayerNorm("all"), D(1.3, 0.2), lf.Erf(), D(), lf.Flatten()))
    add(
        "rmsnorm",
        lf.Serial(
            lf.RMSNorm(), D(1.3, 0.2), lf.Erf(), lf.RMSNorm(), D(), lf.RMSNorm(), lf.SumPool()
        ),
        permutes="invariant",
    )

    # Attention, scale "linear"
    equivariant = {"permutes": "equivariant"}
    add("linear softmax", _dense(linear(), lf.Erf()), **equivariant)
    add("linear raw", lf.Serial(linear(), lf.Erf(), D()), **equivariant)
    add("linear identity", _dense(linear("identity"), lf.Erf(), readout=lf.Flatten()))
    add("linear relu per key", _dense(linear("relu", per_key=True), lf.Erf()), smooth=False)
    add("linear untied", _dense(linear(tied=False), lf.Erf()), **equivariant)
    add("linear negative", _dense(A("linear", qk_std=-0.7), lf.Erf(), readout=lf.MeanPool()))
    add("linear zero", _dense(A("linear", qk_std=0.0), lf.Erf(), linear(heads=4)), **equivariant)
    add("linear causal", _dense(linear(causal=True), lf.Erf(), readout=lf.LastToken()))
    add("linear mask", _dense(linear(mask=_local(LENGTH)), lf.Erf()))
    add("linear mask fn", _dense(linear("relu", mask=_local), lf.Erf()), smooth=False)

    # Attention, scale "sqrt", exact
    add(
        "sqrt identity",
        _dense(A(weights="identity", qk_std=0.4, b_std=0.2), lf.Erf()),
        **equivariant,
    )
    add("sqrt identity causal", _dense(sqrt("identity", causal=True), readout=lf.LastToken()))
    add("sqrt identity per key", _dense(sqrt("identity", per_key=True, mask=_local)))
    add("sqrt relu", _dense(sqrt("relu"), lf.Erf()), **equivariant, smooth=False)
    add("sqrt relu per key", lf.Serial(sqrt("relu", per_key=True), D()), smooth=False)
    add("sqrt abs causal", _dense(sqrt("abs", causal=True), readout=lf.MeanPool()), smooth=False)
    add("sqrt erf mask", _dense(sqrt("erf", mask=_local, per_key=True), readout=lf.MeanPool()))
    add("sqrt activation", _dense(sqrt(lf.LeakyRelu(0.3))), **equivariant, smooth=False)

    # Softmax at scale "sqrt"
    add("softmax known", _dense(sqrt()), **equivariant)
    add("softmax raw causal", lf.Serial(sqrt(causal=True), lf.Erf(), D(), lf.MeanPool()))
    add("softmax deep", _dense(lf.Erf(), D(), sqrt(), lf.LayerNorm(), sqrt(mask=_local)))
    add(
        "softmax zero",
        _dense(lf.Erf(), D(), A(qk_std=0.0), readout=lf.MeanPool()),
        permutes="invariant",
    )
    add("softmax negative", _dense(lf.Erf(), D(), A(qk_std=-0.7), readout=lf.MeanPool()))

    # Positions
    one_hot = lf.Position(lf.OneHot(), 0.7, 0.4)
    se = lf.SquaredExponential(2.0, 1.3)
    add("position linear", _dense(linear(position=one_hot), lf.Erf()))
    add("position se", _dense(linear(position=lf.Position(se, 0.4, 0.6, values=True)), lf.Erf()))
    add(
        "position image",
        lf.Serial(lf.Conv((3, 3)), R(), linear(position=lf.Position(se)), D(), lf.Flatten()),
        input="image",
        masks="none",
        smooth=False,
    )
    add("position decay", _dense(sqrt("identity", position=lf.Position(_triangle, trained=False))))
    add("position relu", _dense(sqrt("relu", position=lf.Position(se, 0.4, 0.6))), smooth=False)
    add(
        "position values",
        _dense(sqrt("erf", position=lf.Position(se, 0.4, 0.6, values=True, trained=False))),
    )
    add(
        "position concatenated",
        _dense(sqrt("identity", position=lf.Position.concatenated(3, 2, se, 1.2, values=True))),
    )
    add("position softmax known", _dense(sqrt(position=one_hot)))
    add("position softmax pair", _dense(sqrt(position=lf.Position(se, 0.4, 0.6, values=True))))
    add("position input", lf.Serial(D(1.3), lf.Position(se, weight=0.5), lf.Erf(), linear(), D()))
    add(
        "position raw",
        lf.Serial(lf.Position(se, 0.6, 0.5, trained=False), lf.LayerNorm(), D(1.3), lf.Erf(), D()),
    )
    add("position layer softmax", lf.Serial(D(1.3), lf.Position(lf.OneHot()), sqrt(), D()))
    rotary = lf.Rotary(4, 10.0)
    add("rotary linear", _dense(linear(position=rotary), lf.Erf(), readout=lf.MeanPool()))
    add("rotary identity", _dense(sqrt("identity", position=rotary, causal=True)))
    add("rotary relu", _dense(sqrt("relu", position=rotary)), smooth=False)
    add("rotary softmax", _dense(sqrt(position=rotary)))
    add("alibi linear", _dense(linear(position=lf.Alibi(2)), readout=lf.MeanPool()))
    add("alibi erf", _dense(sqrt("erf", position=lf.Alibi((0.5, 0.1)), causal=True)))
    add("alibi softmax", _dense(lf.Erf(), D(), sqrt(position=lf.Alibi(2))))
    add("relative linear", _dense(linear("relu", position=lf.RelativeBias(_bias))), smooth=False)
    add("relative identity", _dense(sqrt("identity", position=lf.RelativeBias(_bias))))
    add("relative softmax", _dense(sqrt(position=lf.RelativeBias(_bias))))

    # Residual attention, cross-attention
    add("residual attention", _dense(lf.Erf(), lf.ResidualAttention(se, 0.65), lf.LayerNorm(), D()))
    add(
        "residual attention softmax",
        lf.Serial(lf.ResidualAttention(se, 0.3, "softmax", 2.0), D(), lf.MeanPool()),
    )
    for name, decay, rest in (
        ("flatten", se, (lf.LayerNorm(), D(), lf.Flatten())),
        ("pool", se, (lf.MeanPool(), D())),
        ("pixels", lf.OneHot(), (D(),)),
    ):
        layer = lf.ResidualAttention(decay, 0.65, qk_std=1.2)
        net = lf.Serial(lf.Conv((3, 2), 1.2, 0.3), lf.Erf(), layer, *rest)
        add(f"residual attention image {name}", net, input="image")
    two = {"input": "two"}
    both = lf.Parallel(D(1.3, 0.2), lf.Serial(D(0.8, 0.3), lf.Erf(), D()))
    cross = lambda *a, **k: lf.CrossAttention(*a, qk_std=0.8, ov_std=1.1, b_std=0.2, **k)  # noqa: E731
    add("cross linear raw", lf.Serial(cross("linear"), lf.Erf(), D()), **two)
    add("cross linear", lf.Serial(both, cross("linear", "relu"), lf.Erf(), D()), **two)
    add("cross identity", lf.Serial(both, cross("sqrt", "identity"), lf.Erf(), D()), **two)
    add(
        "cross relu",
        lf.Serial(both, cross("sqrt", "relu", per_key=True), D(), lf.MeanPool()),
        **two,
        smooth=False,
    )
    add("cross softmax known", lf.Serial(cross(), D()), **two)
    add("cross softmax", lf.Serial(both, cross(), lf.LayerNorm(), D(), lf.MeanPool()), **two)

    # Products
    gate = lf.Parallel(lf.Serial(D(1.3, 0.2), lf.Erf()), D(0.9, 0.4))
    add("product", lf.Serial(D(), gate, lf.Product(), D(1.1), lf.MeanPool()))
    add("product of tokens", _dense(lf.Residual(lf.RMSNorm(), gate, lf.Product(), D(1.1, 0.3))))

    # Sums, residuals, repeats
    add("residual raw", lf.Serial(lf.Residual(D(1.1), lf.Erf(), D(), skip=0.7, branch=1.2), D()))
    add(
        "residual means",
        _dense(
            R(), lf.Residual(lf.LayerNorm(), linear(), R(), skip=0.5), D(), readout=lf.MeanPool()
        ),
        permutes="invariant",
        smooth=False,
    )
    add(
        "sum",
        lf.Serial(
            lf.Sum(
                lf.Serial(D(1.1), R()), lf.Serial(D(0.7, 0.3), R()), D(), weights=(0.5, 1.5, -1.0)
            ),
            lf.LayerNorm(),
            D(),
        ),
        **equivariant,
        smooth=False,
    )
    add(
        "parallel two",
        lf.Serial(
            lf.Parallel(
                lf.Serial(D(1.1), R(), lf.MeanPool()),
                lf.Serial(D(0.7, 0.3), lf.Erf(), lf.MeanPool()),
            ),
            lf.Sum(weights=(0.5, 1.5)),
            D(),
        ),
        **two,
        smooth=False,
    )
    add("sum two raw", lf.Serial(lf.Sum(lf.MeanPool(), lf.MeanPool()), D(), lf.Erf(), D()), **two)
    mlp = lf.Residual(lf.LayerNorm(), D(1.2, 0.1), lf.Erf(), D(), branch=0.7)
    add(
        "repeat",
        lf.Serial(D(), lf.Repeat(lf.Serial(lf.Residual(lf.LayerNorm(), linear()), mlp), 3), D()),
        **equivariant,
    )
    add(
        "repeat softmax",
        lf.Serial(D(), lf.Repeat(lf.Residual(lf.LayerNorm(), sqrt()), 3), lf.MeanPool(), D()),
        permutes="no",
    )

    # Ready-made and mixed networks: together they hold every layer
    identity = A(weights="identity", qk_std=0.8)
    add(
        "transformer",
        lf.Transformer(
            2,
            lf.Block(identity, b_std=0.1),
            embed=lf.Embed(),
            position=lf.Position(se),
            pool="last",
        ),
        **ids,
        fast=True,
    )
    add(
        "transformer post",
        lf.Transformer(3, lf.Block(linear(causal=True), R(), lf.RMSNorm(), "post")),
        fast=True,
        smooth=False,
    )
    add("transformer softmax", lf.Transformer(2, pool="first"), fast=True)
    add(
        "vision mean",
        lf.VisionTransformer(2, 2, lf.Block(identity, lf.Erf())),
        input="image",
        masks="none",
        fast=True,
    )
    add(
        "vision class",
        lf.VisionTransformer(1, 2, lf.Block(identity, placement="none", branch=0.5), pool="class"),
        input="image",
        masks="none",
    )
    add(
        "mixed sequence",
        lf.Serial(
            lf.Conv((3,), 1.2, 0.2),
            lf.Gelu(),
            lf.Conv((2,), 1.1, 0.1, padding="valid"),
            lf.Residual(lf.LayerNorm(), linear(position=rotary)),
            lf.LayerNorm("all"),
            D(),
            lf.Softplus(),
            lf.AvgPool((2,), 1, "same"),
            lf.ResidualAttention(se, 0.6),
            lf.RMSNorm(),
            D(0.9, 0.2),
            lf.MeanPool(),
            D(**standard, width=32),
        ),
        masks="contiguous",
        fast=True,
    )
    add(
        "mixed image",
        lf.Serial(
            lf.Conv((3, 3), 1.3, 0.4),
            R(),
            lf.AvgPool((2, 2), 1),
            linear(position=lf.Position(se, 0.4, 0.6)),
            lf.LayerNorm(),
            lf.Flatten(),
            D(),
        ),
        input="image",
        masks="none",
        fast=True,
        smooth=False,
    )
    add(
        "mixed two",
        lf.Serial(
            lf.Parallel(
                lf.Serial(D(), lf.Position(lf.OneHot())),
                lf.Serial(D(), lf.Residual(sqrt("identity"), skip=0.8), lf.LayerNorm()),
            ),
            cross("sqrt", "erf"),
            lf.Residual(D(), lf.Tanh(), D()),
            lf.SumPool(),
            D(),
        ),
        **two,
        fast=True,
    )
    add(
        "mixed softmax",
        lf.Serial(
            D(1.3, 0.2),
            lf.ClassToken(),
            lf.Residual(lf.LayerNorm(), sqrt(position=one_hot)),
            lf.Residual(lf.LayerNorm(), D(), lf.Silu(), D()),
            lf.Residual(lf.RMSNorm(), sqrt("relu", per_key=True)),
            lf.FirstToken(),
            D(),
        ),
        fast=True,
        smooth=False,
    )
    add(
        "mixed sums",
        lf.Serial(
            lf.Sum(lf.Serial(D(), R()), lf.Serial(linear(), R()), weights=(0.6, 0.8)),
            lf.LayerNorm(),
            D(),
            sqrt("abs", causal=True),
            lf.LastToken(),
            D(),
        ),
        fast=True,
        smooth=False,
    )
    return out


CASES = {case.name: case for case in _cases()}


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Rows built for the laws.

    Attributes:
        x, mask: rows 0 `a` and 1 `b` of full length; rows 2, 3, 4 the shorter `c` padded on the
            right, on the left and with a gap (contiguous: on the right again), with garbage in the
            padding; row 5 a copy of `a`; row 6 `b` with its tokens permuted. Without masks, rows 2
            to 4 are of full length.
        kept: per row, where the valid tokens are.
        short: `c` without padding, as one row; None without masks.
        order: the permutation of row 6.
    """

    x: tuple | np.ndarray
    mask: tuple | np.ndarray | None
    kept: list[np.ndarray] | None
    short: tuple | np.ndarray | None
    order: np.ndarray

    def rows(self, index) -> tuple:
        """Some rows and their masks."""
        pick = lambda a: None if a is None else a[index]  # noqa: E731
        if isinstance(self.x, tuple):
            masks = None if self.mask is None else tuple(pick(m) for m in self.mask)
            return tuple(pick(a) for a in self.x), masks
        return pick(self.x), pick(self.mask)


def sequences(rng, masks: str, length: int = LENGTH, ids: bool = False) -> Inputs:
    """See `Inputs`."""
    draw = lambda n: rng.integers(0, 4, n) if ids else rng.normal(size=(n, FEATURES))  # noqa: E731
    a, b, c = draw(length), draw(length), draw(length - 1)
    order = rng.permutation(length)
    if masks == "none":
        x = np.stack([a, b, draw(length), draw(length), draw(length), a, b[order]])
        return Inputs(x, None, None, None, order)
    last, first = list(range(length - 1)), list(range(1, length))
    gap = last if masks == "contiguous" else [0, *range(2, length)]
    everything = list(range(length))
    garbage = [0, 0, 3, 1, 0] if ids else [0.0, 0.0, np.nan, np.inf, 1e30]
    rows, kept = [], [everything, everything, last, first, gap, everything, everything]
    for i, places in enumerate(kept[:5]):
        row = np.full((length, *a.shape[1:]), garbage[i], a.dtype)
        row[places] = (a, b, c, c, c)[i]
        rows.append(row)
    x = np.stack([*rows, a, b[order]])
    mask = np.zeros(x.shape[:2], bool)
    for i, places in enumerate(kept):
        mask[i, places] = True
    return Inputs(x, mask, [np.asarray(k) for k in kept], c[None], order)


def images(rng, masks: str) -> Inputs:
    """Images 3 x 4 with two channels; the shorter one lacks the last row and column."""
    h, w, c = 3, 4, 2
    x = rng.normal(size=(7, h, w, c))
    x[5] = x[0]
    order = np.arange(h * w)
    if masks == "none":
        return Inputs(x, None, None, None, order)
    mask = np.ones((7, h, w), bool)
    mask[2:5, -1] = mask[2:5, :, -1] = False
    x[3:5, :-1, :-1] = x[2, :-1, :-1]
    x[~mask] = np.nan
    kept = [np.flatnonzero(m) for m in mask.reshape(7, -1)]
    return Inputs(x, mask, kept, x[2:3, :-1, :-1], order)


def two(rng) -> Inputs:
    """Two sequences, of lengths 4 and 3."""
    left, right = sequences(rng, "any"), sequences(rng, "any", LENGTH - 1)
    return Inputs(
        (left.x, right.x),
        (left.mask, right.mask),
        left.kept,
        (left.short, right.short),
        left.order,
    )


def inputs(case: Case, seed: int = 0) -> Inputs:
    """Inputs for a network of the zoo."""
    rng = np.random.default_rng([seed, *case.name.encode()])
    if case.input == "two":
        return two(rng)
    if case.input == "image":
        return images(rng, case.masks)
    if case.input == "flat":
        x = rng.normal(size=(7, FEATURES))
        x[5] = x[0]
        return Inputs(x, None, None, None, np.zeros(1, int))
    return sequences(rng, case.masks, ids=case.input == "ids")
