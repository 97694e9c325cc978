"""Networks that have no kernel of this form, and options that do not exist: what the errors say."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import config

import limitformer as lf

D = lf.Dense
X = np.random.default_rng(0).normal(size=(2, 3, 4))


@pytest.fixture(autouse=True)
def as_users_have_it():
    """Without the tests' shape and type checks, which would speak before the library does."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


def refused(error, words, build):
    with pytest.raises(error) as caught:
        build()
    message = str(caught.value)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("layers", "name"),
    [
        ((lf.Relu(),), "0.Activation"),
        ((lf.LayerNorm(), lf.Relu()), "1.Activation"),
        ((D(), lf.Relu(), lf.Relu()), "2.Activation"),
        ((D(), lf.Relu(), lf.LayerNorm(), lf.Erf()), "3.Activation"),
        ((D(), lf.Relu(), lf.MeanPool(), lf.Erf()), "3.Activation"),
        ((D(), lf.Dropout(), lf.Relu()), "2.Activation"),
        ((lf.Residual(D()), lf.Relu()), "1.Activation"),
        ((lf.Repeat(lf.Serial(D(), lf.Relu()), 2), lf.Relu()), "1.Activation"),
        ((lf.Repeat(lf.Relu(), 2),), "0.Repeat"),
        ((lf.ClassToken(), lf.Relu()), "1.Activation"),
        ((lf.Sum(lf.Serial(D(), lf.Relu()), D()), lf.Relu()), "1.Activation"),
        ((lf.ResidualAttention(), lf.Relu()), "1.Activation"),
        ((lf.Position(), lf.Relu()), "1.Activation"),
    ],
)
def test_an_activation_needs_gaussian_channels(layers, name):
    words = [name, "Gaussian channels", "put a Dense"]
    refused(ValueError, words, lambda: lf.Serial(*layers).kernel(X))
    refused(ValueError, words, lambda: lf.Serial(*layers).trace(X))


@pytest.mark.parametrize(
    "layers",
    [
        (D(), lf.LayerNorm(), lf.Relu()),
        (D(), lf.AvgPool((2,)), lf.Relu()),
        (D(), lf.MeanPool(), lf.Relu()),
        (D(), lf.Position(), lf.Relu()),
        (D(), lf.ClassToken(), lf.Relu()),
        (D(), lf.Residual(lf.LayerNorm(), D()), lf.Relu()),
        (lf.Attention("linear"), lf.Relu()),
        (D(), lf.ResidualAttention(), lf.Relu()),
        (lf.Sum(D(), lf.Serial(D(), lf.Relu(), D())), lf.Relu()),
    ],
)
def test_what_keeps_channels_gaussian(layers):
    assert np.isfinite(lf.Serial(*layers).kernel(X).ntk).all()


@pytest.mark.parametrize(
    "net",
    [
        lf.Serial(D(), lf.Residual(lf.Relu())),
        lf.Serial(D(), lf.Residual(lf.LayerNorm())),
        lf.Serial(D(), lf.Residual(lf.LayerNorm(), lf.Relu(), skip=0.5)),
        lf.Serial(D(), lf.Sum(lf.Serial(), lf.Relu())),
        lf.Serial(D(), lf.Sum(lf.Relu(), lf.Relu())),
        lf.Serial(D(), lf.Residual(lf.Position())),
        lf.Serial(D(), lf.Residual(lf.ResidualAttention())),
        lf.Residual(lf.LayerNorm()),
        lf.Serial(D(), lf.Residual(lf.Repeat(lf.LayerNorm(), 2))),
        lf.Serial(D(), lf.Residual(lf.Repeat(lf.RMSNorm(), 1))),
        lf.Serial(D(), lf.Residual(lf.Residual(lf.LayerNorm(), D()))),
        lf.Serial(D(), lf.Sum(lf.Residual(D()), lf.Residual(D()))),
        lf.Serial(D(), lf.Repeat(lf.Residual(lf.LayerNorm()), 2)),
        lf.Serial(D(), lf.Residual(lf.Dropout())),
        lf.Serial(D(), lf.Residual(lf.Repeat(lf.Residual(lf.LayerNorm(), D()), 3))),
    ],
    ids=lambda net: type(net).__name__,
)
def test_branches_must_be_independent(net):
    words = ["are not independent", "without weights of their own", "put a Dense layer in one"]
    refused(ValueError, words, lambda: net.kernel(X))
    refused(ValueError, words, lambda: lf.Serial(net, lf.MeanPool()).kernel(X))
    refused(ValueError, words, lambda: net.trace(X))


@pytest.mark.parametrize(
    "net",
    [
        lf.Residual(lf.Repeat(lf.Serial(D(), lf.Relu()), 2), D()),
        lf.Residual(lf.Repeat(D(), 2)),
        lf.Repeat(lf.Residual(lf.Repeat(lf.Serial(lf.LayerNorm(), D()), 2)), 2),
        lf.Sum(lf.Repeat(lf.Residual(lf.LayerNorm(), D()), 3), D()),
    ],
)
def test_repeats_with_weights_are_independent(net):
    assert np.isfinite(lf.Serial(D(), net).kernel(X).ntk).all()


def test_dependent_branches_are_named():
    words = ["0.Dense", "one through nothing, the other through LayerNorm then Relu"]
    net = lf.Serial(D(), lf.Residual(lf.LayerNorm(), lf.Relu()))
    refused(ValueError, words, lambda: net.kernel(X))


def test_the_same_stream_several_times_is_merged():
    """h + h = 2h: four times K and T, also when a readout is pulled through it."""
    plain = lf.Serial(D(), lf.MeanPool()).kernel(X)
    for double in (lf.Residual(), lf.Sum(lf.Serial(), lf.Serial())):
        for net in (lf.Serial(D(), double, lf.MeanPool()), lf.Serial(D(), lf.MeanPool(), double)):
            k = net.kernel(X)
            np.testing.assert_allclose(k.nngp, 4 * plain.nngp, rtol=1e-14)
            np.testing.assert_allclose(k.ntk, 4 * plain.ntk, rtol=1e-14)


def test_branches_of_different_shapes():
    net = lf.Serial(D(), lf.Residual(lf.Conv((2,), padding="valid")))
    refused(ValueError, ["different token shapes"], lambda: net.kernel(X))
    net = lf.Serial(D(), lf.Residual(D(), lf.MeanPool()))
    refused(ValueError, ["different token shapes"], lambda: net.kernel(X))


@pytest.mark.parametrize(
    "layer",
    [
        lf.Attention("linear"),
        lf.ResidualAttention(),
        lf.Conv((3,)),
        lf.AvgPool((2,)),
        lf.Position(),
        lf.ClassToken(),
    ],
    ids=lambda layer: type(layer).__name__,
)
@pytest.mark.parametrize("readout", [lf.MeanPool(), lf.Flatten(), lf.FirstToken()])
def test_no_tokens_left(layer, readout):
    net = lf.Serial(D(), readout, layer)
    refused(ValueError, ["tokens left", f"2.{type(layer).__name__}"], lambda: net.kernel(X))
    refused(ValueError, ["tokens left"], lambda: lf.Serial(D(), layer).kernel(X[:, 0]))


@pytest.mark.parametrize(
    "readout", [lf.MeanPool(), lf.SumPool(), lf.FirstToken(), lf.LastToken(), lf.Flatten()]
)
def test_a_readout_of_one_token_is_the_identity(readout):
    """So that a network for sequences also takes (n, features)."""
    once = lf.Serial(D(), lf.MeanPool()).kernel(X)
    twice = lf.Serial(D(), lf.MeanPool(), readout).kernel(X)
    np.testing.assert_allclose(twice.ntk, once.ntk, rtol=1e-14)


def test_windows_and_grids():
    words = ["0.Conv", "window of 2 dimension(s)", "(3,)"]
    refused(ValueError, words, lambda: lf.Serial(lf.Conv((3, 3))).kernel(X))
    images = np.ones((2, 4, 4, 1))
    words = ["window of 1 dimension(s)", "(4, 4)", "(3, 3)"]
    refused(ValueError, words, lambda: lf.Serial(lf.Conv((3,))).kernel(images))
    small = lf.Serial(lf.AvgPool((5, 5)))
    refused(ValueError, ["grid (4, 4) is smaller", "(5, 5)"], lambda: small.kernel(images))
    after = lf.Serial(lf.Conv((3, 3)), lf.ClassToken(), lf.Conv((3, 3)))
    refused(ValueError, ["2.Conv", "grid of 1"], lambda: after.kernel(images))


def test_finite_heads():
    net = lf.Serial(D(), lf.Attention(heads=4), D())
    words = ["1.Attention has heads=4", "net.law", "with_heads(lf.inf)"]
    refused(ValueError, words, lambda: net.kernel(X))
    k = net.with_heads(lf.inf).kernel(X, draws=8)
    assert np.isfinite(k.ntk).all()
    linear = lf.Serial(D(), lf.Attention("linear", heads=4))
    same = lf.Serial(D(), lf.Attention("linear"))
    np.testing.assert_array_equal(linear.kernel(X).ntk, same.kernel(X).ntk)
    crossed = lf.CrossAttention(heads=2)
    refused(ValueError, ["heads=2", "net.law"], lambda: crossed.kernel((X, X)))


def test_a_decay_that_is_no_covariance():
    def box(distance2):
        return (distance2 <= 1).astype(distance2.dtype)

    for layers in (
        (lf.Position(box),),
        (D(), lf.Attention("linear", position=lf.Position(box))),
        (D(), lf.ResidualAttention(box)),
    ):
        words = ["not positive semidefinite", "smallest eigenvalue", "lf.SquaredExponential"]
        net = lf.Serial(*layers)
        refused(ValueError, words, lambda net=net: net.kernel(np.ones((1, 6, 2))))
    infinite = lf.Position(lambda d2: 1 / d2)
    refused(ValueError, ["not finite"], lambda: infinite.kernel(X))


def test_negative_position_weights():
    refused(ValueError, ["content", "-1"], lambda: lf.Position(content=-1.0))
    refused(ValueError, ["weight", "-0.5"], lambda: lf.Position(weight=-0.5))
    refused(ValueError, ["phi", "-1"], lambda: lf.SquaredExponential(phi=-1.0))
    refused(ValueError, ["rho", "-1"], lambda: lf.SquaredExponential(rho=-1.0))


def test_pair_masks():
    square = np.ones((3, 3), bool)
    words = ["square bool array", "query, key"]
    refused(ValueError, words, lambda: lf.Attention(mask=square.astype(int)))
    refused(ValueError, words, lambda: lf.Attention(mask=square[:2]))
    refused(ValueError, words, lambda: lf.Attention(mask=square[0]))
    blind = square.copy()
    blind[1] = False
    refused(ValueError, ["queries [1]", "without any key"], lambda: lf.Attention(mask=blind))
    small = lf.Attention("linear", mask=square[:2, :2])
    refused(ValueError, ["(2, 2)", "3 tokens", "(3, 3)"], lambda: small.kernel(X))
    wrong = lf.Attention("linear", mask=lambda n: np.ones((n, n)))
    refused(ValueError, ["bool array of shape (3, 3)", "float64"], lambda: wrong.kernel(X))
    wrong = lf.Attention("linear", mask=lambda n: np.ones((n, n + 1), bool))
    refused(ValueError, ["(3, 3)", "(3, 4)"], lambda: wrong.kernel(X))
    blind = lf.Attention("linear", mask=lambda n: np.tri(n, k=-1, dtype=bool))
    refused(ValueError, ["queries [0]", "without any key"], lambda: blind.kernel(X))


def test_relative_bias_function():
    wrong = lf.Attention("linear", position=lf.RelativeBias(lambda d: np.ones(3)))
    refused(ValueError, ["RelativeBias", "(3, 3)", "(3,)"], lambda: wrong.kernel(X))


OPTIONS = [
    (ValueError, ["scale='cubic'", "sqrt, linear"], lambda: lf.Attention("cubic")),
    (ValueError, ["weights='softmin'", "softmax"], lambda: lf.Attention(weights="softmin")),
    (TypeError, ["weights must be", "lf.Activation(fn)"], lambda: lf.Attention(weights=jnp.tanh)),
    (ValueError, ["heads must be lf.inf", "0"], lambda: lf.Attention(heads=0)),
    (ValueError, ["heads must be lf.inf", "2.5"], lambda: lf.Attention(heads=2.5)),
    (ValueError, ["tied", 'scale="linear"'], lambda: lf.Attention(tied=True)),
    (ValueError, ["tied", 'scale="linear"'], lambda: lf.CrossAttention(tied=True)),
    (TypeError, ["position must be one of", "lf.Rotary"], lambda: lf.Attention(position="rotary")),
    (ValueError, ["even number", "3"], lambda: lf.Rotary(3)),
    (ValueError, ["slopes"], lambda: lf.Alibi(())),
    (ValueError, ["slopes"], lambda: lf.Alibi(0)),
    (TypeError, ["decay must be", "lf.OneHot()"], lambda: lf.Position("one-hot")),
    (ValueError, ["over='tokens'", "channels, all"], lambda: lf.LayerNorm("tokens")),
    (ValueError, ["parametrisation='mup'", "ntk, standard"], lambda: D(parametrisation="mup")),
    (ValueError, ["give width="], lambda: D(parametrisation="standard")),
    (ValueError, ["give width="], lambda: lf.Conv((3,), parametrisation="standard")),
    (ValueError, ["width", "0"], lambda: D(parametrisation="standard", width=0)),
    (
        ValueError,
        ["padding='full'", "same, valid, circular"],
        lambda: lf.Conv((3,), padding="full"),
    ),
    (ValueError, ["window", "(0,)"], lambda: lf.Conv((0,))),
    (ValueError, ["window", "(2, 2, 2)"], lambda: lf.Conv((2, 2, 2))),
    (ValueError, ["stride", "0"], lambda: lf.Conv((3,), stride=0)),
    (ValueError, ["same length"], lambda: lf.Conv((3,), stride=(1, 1))),
    (ValueError, ['"valid" or "same"'], lambda: lf.AvgPool((2,), padding="circular")),
    (ValueError, ["keep", "0"], lambda: lf.Dropout(0.0)),
    (ValueError, ["keep", "1.5"], lambda: lf.Dropout(1.5)),
    (ValueError, ["alpha", "2"], lambda: lf.ResidualAttention(alpha=2.0)),
    (ValueError, ["finite", "nan"], lambda: D(w_std=float("nan"))),
    (ValueError, ["finite", "inf"], lambda: lf.Attention(qk_std=float("inf"))),
    (TypeError, ["expected layers", "lf.Activation(fn)"], lambda: lf.Serial(D(), jnp.tanh)),
    (TypeError, ["expected layers"], lambda: lf.Residual("Dense")),
    (TypeError, ["Activation needs a function"], lambda: lf.Activation("relu")),
    (ValueError, ["Repeat", "0"], lambda: lf.Repeat(D(), 0)),
    (ValueError, ["Repeat", "2.0"], lambda: lf.Repeat(D(), 2.0)),
    (ValueError, ["at least one layer"], lambda: lf.Parallel()),
    (ValueError, ["2 branches", "3 weights"], lambda: lf.Sum(D(), D(), weights=(1, 1, 1))),
    (ValueError, ["placement='mid'"], lambda: lf.Block(placement="mid")),
    (ValueError, ["pool='max'"], lambda: lf.Transformer(1, pool="max")),
    (ValueError, ["pool='first'", "mean, class"], lambda: lf.VisionTransformer(1, pool="first")),
    (ValueError, ["Repeat", "0"], lambda: lf.Transformer(0)),
]


@pytest.mark.parametrize(("error", "words", "build"), OPTIONS)
def test_options(error, words, build):
    refused(error, words, build)


TWINS = [
    (ValueError, ["give features="], D(), {}),
    (ValueError, ["give features="], D(), {"features": 3, "vocabulary": 4}),
    (ValueError, ["width must be a whole number", "0"], D(), {"features": 3, "width": 0}),
    (ValueError, ["heads must be a whole number", "1.5"], D(), {"features": 3, "heads": 1.5}),
    (ValueError, ["outputs=2", "ends in a sum"], lf.Residual(D()), {"features": 3, "outputs": 2}),
    (ValueError, ["vocabulary="], lf.Embed(), {"features": 3}),
    (
        ValueError,
        ["repeated to the width", "multiple of 3"],
        lf.Residual(D()),
        {"features": 3, "width": 16},
    ),
    (
        ValueError,
        ["multiple of 4", "got 6"],
        lf.Attention(position=lf.Rotary(4)),
        {"features": 3, "width": 6, "tokens": 2},
    ),
    (
        ValueError,
        ["3 head slopes", "4 heads"],
        lf.Attention(position=lf.Alibi((1.0, 0.5, 0.2))),
        {"features": 3, "width": 6, "heads": 4, "tokens": 2},
    ),
]


@pytest.mark.parametrize(("error", "words", "net", "options"), TWINS)
def test_twins(error, words, net, options, key):
    refused(error, words, lambda: net.twin(key=key, **options))


def test_a_twin_with_dropout_needs_a_key(key):
    twin = lf.Serial(D(), lf.Dropout(0.5), D()).twin(key=key, features=4, width=8)
    refused(ValueError, ["needs a key when it is called"], lambda: twin(X))
    assert twin(X, key=key).shape == (2, 3, 1)
