"""Every layer and several deep networks against their finite twins (`harness`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.twins.harness import Sizes, compare

import limitformer as lf

FEATURES = 4
TOKENS = 3

D = lf.Dense
SE = lf.SquaredExponential(2.0, 1.3)
STANDARD = {"parametrisation": "standard"}


def tokens(n=2, length=TOKENS, features=FEATURES, seed=0):
    """Inputs and tokens that have much in common, so that no entry of a kernel is near zero."""
    rng = np.random.default_rng(seed)
    shared, by_token = rng.normal(size=features), rng.normal(size=(length, features))
    x = shared + 0.7 * by_token + 0.6 * rng.normal(size=(n, length, features))
    return (x / np.sqrt((x**2).mean())).astype(np.float32)


def image(n=2, height=3, width=3, channels=2):
    return tokens(n, height * width, channels, 1).reshape(n, height, width, channels)


X = tokens()
MASK = np.array([[True] * 3, [True, True, False]])
MASKED = {"x": X, "mask": MASK}
FLAT = {"x": X[:, 0]}
IMAGE = {"x": image(), "features": 2, "tokens": (3, 3)}
IDS = {"x": np.array([[0, 1, 0], [1, 1, 2]], np.int32), "vocabulary": 3, "features": None}
TWO = {"x": (X, tokens(length=2, seed=3)), "features": (FEATURES, FEATURES)}


@dataclasses.dataclass(frozen=True)
class Case:
    """A network, or a function from the twins' width to it, its inputs and sizes."""

    name: str
    net: lf.Layer | Callable
    given: dict = dataclasses.field(default_factory=lambda: {"x": X})
    sizes: Sizes = dataclasses.field(default_factory=Sizes)
    slow: bool = False


def _local(n):
    index = np.arange(n)
    return np.abs(index[:, None] - index[None]) <= 1


def _triangle(distance2):
    return jnp.maximum(1 - jnp.sqrt(distance2) / 3, 0.0)


def _bias(difference):
    return 0.5 * np.cos(difference) - 0.2 * np.abs(difference)


def _fn(u):
    return jnp.tanh(u) + 0.2 * u


def _cases():
    A, pool = lf.Attention, lf.MeanPool()
    few = Sizes(heads=4, head_width=16, outputs=64)
    # heads are what fluctuates most where scores are not normalised
    many = Sizes(16, heads=16, head_width=8, outputs=32)
    more = dataclasses.replace(many, networks=1500)

    def linear(*a, **k):
        return A("linear", *a, qk_std=0.8, ov_std=1.1, b_std=0.3, **k)

    def sqrt(*a, **k):
        return A("sqrt", *a, **({"qk_std": 0.8, "ov_std": 1.1, "b_std": 0.3} | k))

    def cross(*a, **k):
        return lf.CrossAttention(*a, qk_std=0.8, ov_std=1.1, b_std=0.3, **k)

    yield Case("dense", lf.Serial(D(1.3, 0.3), lf.Erf(), D(1.2, 0.2)), FLAT)
    yield Case(
        "dense standard",
        lambda W: lf.Serial(
            D(1.3, 0.3, **STANDARD, width=FEATURES), lf.Relu(), D(1.2, 0.2, **STANDARD, width=W)
        ),
        FLAT,
    )
    for name, acts in {
        "rectifiers": (lf.Relu(), lf.LeakyRelu(0.3), lf.Elu()),
        "abs": (lf.Abs(), lf.Softplus()),
        "error functions": (lf.Gelu(), lf.GeluTanh(), lf.Silu()),
        "sigmoids": (lf.Tanh(), lf.Sigmoid(), lf.Sin()),
        "other activations": (lf.Cos(), lf.Polynomial((0.2, 1.0, 0.3)), lf.Gaussian()),
        "function": (lf.Activation(_fn),),
        "sign": (lf.Sign(),),
    }.items():
        yield Case(name, lf.Serial(D(1.3, 0.3), *(f for act in acts for f in (act, D(1.1)))), FLAT)

    gate = lf.Parallel(lf.Serial(D(1.3, 0.3), lf.Silu()), D(1.1, 0.4))
    yield Case("gated", lf.Serial(D(), gate, lf.Product(), D(1.2), pool), MASKED, slow=True)
    yield Case("conv mask", lf.Serial(lf.Conv((3,), 1.3, 0.3), lf.Relu(), D(), pool), MASKED)
    yield Case(
        "conv valid stride",
        lf.Serial(
            lf.Conv((2,), 1.3, 0.3, padding="valid"), lf.Erf(), lf.Conv((2,), 1.1, 0.2, 2), pool
        ),
        MASKED,
    )
    yield Case(
        "conv circular standard",
        lambda W: lf.Serial(
            lf.Conv((3,), 1.3, 0.3, padding="circular"),
            lf.Erf(),
            lf.Conv((2,), 1.1, 0.3, **STANDARD, width=W),
            lf.FirstToken(),
        ),
    )
    yield Case(
        "image conv",
        lf.Serial(lf.Conv((3, 3), 1.3, 0.3), lf.Relu(), lf.Conv((2, 2), 1.2, 0.2, (1, 2)), pool),
        IMAGE,
    )
    yield Case(
        "average pools",
        lf.Serial(lf.Conv((2, 2), 1.3, 0.3), lf.Relu(), lf.AvgPool((2, 2), 1, "same"), D(),
                  lf.Relu(), lf.AvgPool((2, 2)), D(), lf.Flatten()),
        IMAGE,
    )  # fmt: skip
    yield Case("first, last", lf.Serial(D(1.3, 0.3), lf.Relu(), lf.LastToken(), D()), MASKED)
    yield Case("sum pool", lf.Serial(D(1.3, 0.3), lf.Relu(), lf.SumPool(), D(), lf.Relu()), MASKED)
    yield Case("flatten", lf.Serial(D(1.3, 0.3), lf.Relu(), lf.Flatten(), D()), MASKED)
    yield Case("embed", lf.Serial(lf.Embed(1.2), lf.Relu(), D(1.1, 0.3), pool), IDS)
    yield Case(
        "class token", lf.Serial(D(), lf.ClassToken(0.8), linear(), lf.FirstToken()), MASKED, few
    )
    yield Case("class token raw", lf.Serial(lf.ClassToken(), D(), lf.Relu(), D(), pool), MASKED)
    yield Case("dropout", lf.Serial(D(1.3, 0.3), lf.Relu(), lf.Dropout(0.7), D(), pool))

    yield Case("layernorm raw", lf.Serial(lf.LayerNorm(), D(1.3, 0.3), lf.Relu(), D(), pool))
    yield Case(
        "layernorm act", lf.Serial(D(1.3, 0.8), lf.Relu(), lf.LayerNorm(), D(), pool), MASKED
    )
    yield Case(
        "norm all", lf.Serial(D(1.3, 0.8), lf.Relu(), lf.LayerNorm("all"), D(), pool), MASKED
    )
    yield Case(
        "rmsnorm", lf.Serial(D(1.3, 0.3), lf.Relu(), lf.RMSNorm(), D(), lf.SumPool()), MASKED
    )

    yield Case("linear softmax", lf.Serial(D(), linear(), pool), MASKED, few)
    yield Case("linear untied", lf.Serial(D(), linear(tied=False), pool), sizes=few)
    yield Case(
        "linear relu",
        lf.Serial(D(), lf.RMSNorm(), linear("relu", per_key=True, causal=True), pool),
        sizes=Sizes(heads=2, head_width=64, outputs=32),
    )
    yield Case("linear identity", lf.Serial(linear("identity", mask=_local), pool), MASKED, few)
    identity = sqrt("identity", qk_std=0.4)
    # identity and relu attention are cubic in the channels: a norm before them tames the tails
    yield Case("sqrt identity", lf.Serial(D(), lf.RMSNorm(), identity, pool), MASKED, many)
    yield Case("sqrt relu", lf.Serial(D(), lf.RMSNorm(), sqrt("relu"), pool), MASKED, many)
    yield Case("sqrt abs", lf.Serial(sqrt("abs", causal=True), lf.LastToken()), sizes=many)
    yield Case(
        "sqrt erf", lf.Serial(D(), sqrt("erf", mask=_local, per_key=True), pool), MASKED, many
    )
    yield Case("softmax", lf.Serial(D(), sqrt(), pool), MASKED)
    yield Case("softmax raw", lf.Serial(sqrt(causal=True), lf.LastToken()))

    one_hot = lf.Position(lf.OneHot(), 0.7, 0.4)
    yield Case("position linear", lf.Serial(D(), linear(position=one_hot), pool), MASKED, few)
    yield Case(
        "position values",
        lf.Serial(D(), sqrt(position=lf.Position(SE, 0.5, 0.5, values=True, trained=False)), pool),
        MASKED,
    )
    yield Case(
        "position relu",
        lf.Serial(D(), lf.RMSNorm(), sqrt("relu", position=lf.Position(_triangle, 0.5, 0.5)), pool),
        MASKED,
        many,
    )
    yield Case(
        "position concatenated",
        lf.Serial(
            lf.RMSNorm(),
            sqrt("erf", position=lf.Position.concatenated(3, 2, SE, values=True)),
            pool,
        ),
        sizes=many,
    )
    yield Case(
        "position input", lf.Serial(D(), lf.Position(SE, 0.8, 0.5), lf.Relu(), D(), pool), MASKED
    )
    yield Case(
        "position raw", lf.Serial(lf.Position(SE, trained=False), D(), lf.Relu(), D(), pool), MASKED
    )
    yield Case(
        "position image",
        lf.Serial(D(), linear(position=lf.Position(SE, 0.4, 0.6)), lf.Flatten()),
        IMAGE,
        few,
    )
    rotary = lf.Rotary(4, 10.0)
    yield Case("rotary linear", lf.Serial(D(), linear(position=rotary), pool), sizes=few)
    yield Case(
        "rotary relu", lf.Serial(D(), lf.RMSNorm(), sqrt("relu", position=rotary), pool), sizes=many
    )
    yield Case("rotary softmax", lf.Serial(D(), sqrt(position=rotary), pool), MASKED)
    alibi = lf.Alibi((1.0, 0.3))
    yield Case("alibi softmax", lf.Serial(D(), sqrt(position=alibi, causal=True), pool), MASKED)
    yield Case(
        "relative erf",
        lf.Serial(D(), sqrt("erf", position=lf.RelativeBias(_bias)), pool),
        MASKED,
        many,
    )

    yield Case(
        "residual attention",
        lf.Serial(D(), lf.Relu(), lf.ResidualAttention(SE, 0.6, "softmax", 2.0), D(), pool),
        MASKED,
    )
    yield Case("cross linear", lf.Serial(cross("linear"), pool), TWO, few)
    both = lf.Parallel(D(1.2), lf.Serial(D(1.1), lf.Relu(), D()))
    yield Case("cross relu", lf.Serial(both, cross("sqrt", "relu"), pool), TWO, more)
    yield Case("cross softmax", lf.Serial(both, cross(), pool), TWO)

    branch = (D(1.2, 0.3), lf.Relu(), D())
    yield Case("residual raw", lf.Serial(lf.Residual(*branch, skip=0.7, branch=1.2), pool, D()))
    yield Case(
        "sum of means",
        lf.Serial(
            lf.Sum(
                lf.Serial(D(1.2), lf.Relu()), lf.Serial(D(1.1, 0.5), lf.Relu()), weights=(0.6, 1.2)
            ),
            lf.LayerNorm(),
            D(),
            pool,
        ),
    )
    yield Case(
        "parallel two",
        lf.Serial(
            lf.Parallel(lf.Serial(D(), lf.Relu(), pool), lf.Serial(D(), lf.Erf(), pool)),
            lf.Sum(weights=(0.8, 1.2)),
            D(),
        ),
        TWO,
    )

    mlp = lf.Residual(lf.LayerNorm(), D(1.2, 0.2), lf.Relu(), D(), branch=0.8)
    yield Case(
        "repeat", lf.Serial(D(), lf.Repeat(lf.Serial(lf.Residual(linear()), mlp), 2), pool, D()),
        MASKED, few,
    )  # fmt: skip
    yield Case(
        "block post",
        lf.Transformer(1, lf.Block(sqrt("relu", per_key=True), lf.Relu(), placement="post")),
        MASKED,
    )
    yield Case(
        "vision class",
        lf.VisionTransformer(1, (1, 3), lf.Block(sqrt("identity", qk_std=0.5)), pool="class"),
        IMAGE,
    )
    yield Case(
        "vision mean",
        lf.VisionTransformer(1, (1, 3), lf.Block(linear(), lf.Erf(), lf.RMSNorm())),
        IMAGE,
        few,
    )
    yield Case(
        "mixed masks",
        lf.Serial(
            lf.Conv((2,), 1.2, 0.3),
            lf.Gelu(),
            D(),
            lf.Position(SE, weight=0.5),
            lf.Residual(lf.LayerNorm(), sqrt(position=rotary, causal=True)),
            lf.Residual(lf.LayerNorm(), D(1.2, 0.2), lf.Silu(), D()),
            lf.ResidualAttention(SE, 0.5),
            lf.LayerNorm("all"),
            lf.LastToken(),
            D(),
        ),
        MASKED,
    )
    yield Case("two pre-LN softmax blocks", lf.Transformer(2), MASKED, Sizes())
    yield Case(
        "two pre-LN softmax blocks, causal",
        lf.Transformer(
            2, lf.Block(sqrt(causal=True)), embed=lf.Embed(), position=lf.Position(), pool="last"
        ),
        IDS,
        slow=True,
    )
    yield Case(
        "three blocks, wider",
        lf.Transformer(3, lf.Block(sqrt(), branch=0.7)),
        MASKED,
        Sizes(64, 16, 16),
        slow=True,
    )


CASES = list(_cases())

# A few cases in `make test`; the others, with the same demands, in `make slow`.
DEFAULT = {
    "layernorm act",
    "linear softmax",
    "residual raw",
}


def run(case: Case, key):
    """The comparison of one case."""
    given = {"features": FEATURES, "tokens": TOKENS} | case.given
    given = {name: value for name, value in given.items() if value is not None}
    net = case.net if not isinstance(case.net, lf.Layer) else lambda width: case.net
    x, mask = given.pop("x"), given.pop("mask", None)
    return compare(net, x, mask, key=key, sizes=case.sizes, **given)


@pytest.mark.twin
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c.name, marks=() if c.name in DEFAULT else pytest.mark.slow)
        for c in CASES
    ],
)
def test_twins(case: Case, key):
    for kind, found in run(case, jax.random.fold_in(key, len(case.name))).items():
        report = f"{kind}: ratio {found.ratio}, sem {found.sem}, z {found.z}"
        assert found.sem.max() < 0.02, report
        assert np.abs(found.z).max() < 5, report
