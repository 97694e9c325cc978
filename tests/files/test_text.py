"""The forms that people see: TOML, one line, a table; and the digest."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.zoo import CASES

import limitformer as lf
from limitformer.files import FORMAT, describe, digest, loads, one_line, to_toml
from limitformer.files.calls import call_of
from limitformer.files.kinds import kinds
from limitformer.files.one_line import argument_text

NET = lf.Serial(
    lf.Dense(1.3, 0.2),
    lf.Repeat(
        lf.Serial(
            lf.Residual(lf.LayerNorm(), lf.Attention(weights="relu", position=lf.Rotary(8))),
            lf.Residual(lf.LayerNorm(), lf.Dense(), lf.LeakyRelu(0.1), lf.Dense(), skip=0.5),
        ),
        3,
    ),
    lf.MeanPool(),
)

TOML = """limitformer = 1  # version of the format

[[layers]]
type = "Dense"
w_std = 1.3
b_std = 0.2

[[layers]]
type = "Repeat"
n = 3
layer = [
  {type = "Residual", layers = [
    {type = "LayerNorm"},
    {type = "Attention", weights = "relu", position = {type = "Rotary", dims = 8}},
  ]},
  {type = "Residual", skip = 0.5, layers = [
    {type = "LayerNorm"},
    {type = "Dense"},
    {type = "LeakyRelu", slope = 0.1},
    {type = "Dense"},
  ]},
]

[[layers]]
type = "MeanPool"
"""


def test_toml():
    assert to_toml(NET) == TOML
    masked = to_toml(lf.Attention(mask=np.tri(3, dtype=bool)))
    assert masked.endswith('type = "Attention"\nmask = [\n  "100",\n  "110",\n  "111",\n]\n')
    many = to_toml(lf.Polynomial(tuple(0.1 * i for i in range(40))))
    assert max(map(len, many.splitlines())) <= 88


def test_ways_to_write_the_same():
    """Ready-made networks, sub-tables, `inf` by name, bools for masks."""
    net = loads(
        """
        limitformer = 1
        type = "Transformer"
        depth = 2
        embed = {type = "Embed"}
        pool = "last"
        [block]
        type = "Block"
        placement = "post"
        [block.attention]
        type = "Attention"
        heads = "inf"
        mask = [[true, false], [true, true]]
        """
    )
    block = lf.Block(lf.Attention(mask=np.tri(2, dtype=bool)), placement="post")
    assert digest(net) == digest(lf.Transformer(2, block, lf.Embed(), pool="last"))
    listed = loads('limitformer = 1\nlayers = [{type = "Sum", layers = [[{type = "Dense"}]]}]')
    assert digest(listed) == digest(lf.Serial(lf.Sum(lf.Serial(lf.Dense()))))


def test_one_line():
    assert one_line(NET) == (
        'Serial(Dense(1.3, 0.2), Repeat(Serial(Residual(LayerNorm(), Attention(weights="relu", '
        "position=Rotary(8))), Residual(LayerNorm(), Dense(), LeakyRelu(0.1), Dense(), skip=0.5)), "
        "3), MeanPool())"
    )
    assert one_line(lf.Attention(mask=np.tri(3, dtype=bool))) == "Attention(mask=<3 x 3>)"
    assert one_line(lf.Position(lf.OneHot(), 1.0, 2.0, True)) == "Position(weight=2.0, values=True)"
    assert one_line(lf.Dropout(0.5), code=True) == "lf.Dropout(0.5)"
    assert one_line(lf.Activation(jnp.tanh, terms=32)) == "Activation(tanh, terms=32)"


def test_one_line_never_fails():
    """It serves as repr, also for networks of arrays, tracers and whatever jax.tree.map leaves."""
    net = CASES["mixed two"].net
    for leaf in (None, object(), jnp.ones(3), np.ones((2, 2)), jax.ShapeDtypeStruct((), "float32")):
        assert one_line(jax.tree.map(lambda _, leaf=leaf: leaf, net)).startswith("Serial(Parallel(")
    assert one_line(jax.tree.map(lambda _: jnp.ones(3), lf.Dense())) == (
        "Dense(<float32 (3,)>, <float32 (3,)>)"
    )
    seen = []
    jax.jit(lambda v: seen.append(one_line(jax.tree.map(lambda _: v, net))) or v)(1.0)
    assert seen[0].startswith("Serial(Parallel(Serial(Dense(<float32 ()>")


def test_describe():
    x = np.zeros((3, 4, 5))
    table = describe(NET, x)
    paths = [row.path for row in table.rows]
    assert paths[:4] == [
        "0.Dense",
        "1.Repeat",
        "1.Repeat/loop/0.Residual",
        "1.Repeat/loop/0.Residual/branch/0.LayerNorm",
    ]
    assert [row.layer for row in table.rows[:2]] == ["Dense", "Repeat"]
    assert table.rows[0].hyper_parameters == "w_std=1.3, b_std=0.2"
    assert table.rows[1].hyper_parameters == "n=3"
    assert sum(row.share or 0.0 for row in table.rows) == pytest.approx(1.0)
    assert {row.path for row in table.rows if row.work is None} == {
        "1.Repeat",
        "1.Repeat/loop/0.Residual",
        "1.Repeat/loop/1.Residual",
    }
    text = str(table)
    assert "hyper-parameters" in text and text.splitlines()[-1].startswith(
        "costs per pair; 6 pairs"
    )
    page = table._repr_html_()
    assert page.count("<tr>") == len(table.rows) + 1 and "weights=&quot;relu&quot;" in page
    assert "flops" not in str(describe(NET))
    with pytest.raises(TypeError, match="draws only matters for costs: give the inputs x as well"):
        describe(NET, draws=3)


@pytest.mark.parametrize("name", ["mixed sequence", "mixed two", "vision class", "mixed sums"])
def test_every_cost_has_its_row(name):
    from tests.layers.zoo import inputs

    case = CASES[name]
    x, mask = inputs(case).rows([0, 1])
    table = describe(case.net, x, x_mask=mask)
    assert table.plan is not None
    assert sum(row.work is not None for row in table.rows) == len(table.plan.layers)


def test_digest():
    # Pinned: a manifest of another machine or version must know its network again.
    assert digest(NET) == "c6df2112b59ecd9406e75ed11a9d542fbe008b0ac544760a9aab6456447986db"
    assert digest(NET) == digest(loads(to_toml(NET)))
    assert digest(NET) != digest(jax.tree.map(lambda v: np.nextafter(v, 9.0).item(), NET))
    assert digest(lf.Dense(b_std=0.0)) != digest(lf.Dense(b_std=-0.0))


REQUIRED = {
    "Activation": lambda: lf.Activation(jnp.tanh),
    "AvgPool": lambda: lf.AvgPool((2,)),
    "Conv": lambda: lf.Conv((3,)),
    "Parallel": lambda: lf.Parallel(lf.Dense()),
    "Polynomial": lambda: lf.Polynomial((1.0,)),
    "RelativeBias": lambda: lf.RelativeBias(jnp.tanh),
    "Repeat": lambda: lf.Repeat(lf.Dense(), 1),
    "Transformer": lambda: lf.Transformer(1),
    "VisionTransformer": lambda: lf.VisionTransformer(1),
    "WithMean": lambda: lf.Activation(lf.duals.WithMean(lf.duals.Relu())),
}


def defaults() -> str:
    """What every type is when nothing is said."""
    lines = []
    known = kinds()
    for name, kind in sorted(known.items()):
        made = REQUIRED.get(name, kind.make)()
        call = call_of(made, known)
        texts = (f"{k}={argument_text(v, k, known)}" for k, v in call.arguments.items())
        shown = ", ".join(texts) if kind.cls else one_line(made)
        lines.append(f"{name}: {shown}".rstrip())
    return "\n".join(lines) + "\n"


def test_defaults_belong_to_the_format():
    """Files leave defaults out, so a default that changes would change what old files mean.

    If this fails because of a new layer or argument, add it to defaults.txt. If a default has
    changed, raise FORMAT and read older files with the older default.
    """
    assert FORMAT == 1
    assert defaults() == (Path(__file__).parent / "defaults.txt").read_text()
