"""Inputs that are refused at the public entry points, and what the error says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import config

import limitformer as lf
from limitformer.scores import REPLICATES

NET = lf.Serial(lf.Dense(), lf.Erf(), lf.Dense())
EMBED = lf.Serial(lf.Embed(), lf.Dense(), lf.MeanPool())
POOL = lf.Serial(lf.Dense(), lf.MeanPool())
CONV = lf.Serial(lf.Conv((3,), padding="valid"), lf.Erf(), lf.Dense(), lf.MeanPool())
IMAGE = lf.Serial(lf.Conv((3, 3)), lf.Relu(), lf.Dense(), lf.MeanPool())
SOFTMAX = lf.Serial(lf.Dense(), lf.Attention(), lf.MeanPool())
X = np.random.default_rng(0).normal(size=(4, 3, 5))
FULL = np.ones((4, 3), bool)


@pytest.fixture(autouse=True)
def as_users_have_it():
    """Without the tests' shape and type checks, which would speak before the library does."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


def refused(error, words, net, *args, **options):
    """The call raises `error`, and its message holds all of `words`."""
    with pytest.raises(error) as caught:
        net.kernel(*args, **options)
    message = str(caught.value)
    for word in words:
        assert word in message, message


class TestShapes:
    def test_one_input_alone(self):
        words = ["x has shape (5,)", "(n, tokens, features)", "x[None]"]
        refused(ValueError, words, NET, X[0, 0])

    @pytest.mark.parametrize("shape", [(), (2, 3, 4, 5, 6)])
    def test_wrong_rank(self, shape):
        refused(ValueError, [f"x has shape {shape}", "(n, features)"], NET, np.ones(shape))
        refused(ValueError, [f"y has shape {shape}"], NET, X, np.ones(shape))

    @pytest.mark.parametrize("shape", [(0, 3, 5), (4, 0, 5), (4, 3, 0), (0, 5)])
    def test_empty(self, shape):
        refused(ValueError, [f"x has shape {shape}", "empty"], NET, np.ones(shape))

    def test_ragged(self):
        words = ["x is not a rectangular array", "x_mask"]
        refused(ValueError, words, NET, [[[1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0]]])

    @pytest.mark.parametrize("x", [np.array([["a", "b"]]), np.array([[1j]])])
    def test_not_numbers(self, x):
        refused(TypeError, ["x must be an array of numbers", str(x.dtype)], NET, x)

    def test_features_differ(self):
        refused(ValueError, ["5", "4", "features"], NET, X, X[..., :4])
        refused(ValueError, ["features"], NET, X, X[:, :2, :4])

    def test_kinds_of_input_differ(self):
        refused(ValueError, ["grid"], POOL, X, np.ones((2, 3, 3, 5)))

    def test_image_sizes_differ(self):
        words = ["(4, 4)", "(4, 5)", "images must have the same size"]
        refused(ValueError, words, IMAGE, np.ones((2, 4, 4, 1)), np.ones((2, 4, 5, 1)))

    def test_number_of_inputs(self):
        net = lf.Serial(lf.Parallel(lf.Dense(), lf.Dense()), lf.Sum())
        refused(ValueError, ["2 layers", "3 inputs", "x=(x1, x2, ...)"], net, (X, X, X))
        refused(ValueError, ["different numbers of rows [2, 4]"], net, (X, X[:2]))
        refused(ValueError, ["Sum", "only one"], lf.Serial(lf.Dense(), lf.Sum()), X)
        refused(ValueError, ["ends in 2 streams", "lf.Sum()"], lf.Parallel(NET, NET), (X, X))
        words = ["two streams", "lf.Parallel"]
        refused(ValueError, words, lf.Serial(lf.Dense(), lf.CrossAttention("linear")), X)

    def test_one_argument_for_two(self):
        net = lf.Serial(lf.Parallel(lf.Dense(), lf.Dense()), lf.Sum())
        refused(ValueError, ["x", "y", "inputs"], net, (X, X), X)


class TestValues:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_rows_are_named(self, bad):
        x = X.copy()
        x[1, 2, 0] = x[3, 0, 4] = bad
        words = ["x has NaN or infinite values in rows [1, 3]", "x_mask"]
        refused(ValueError, words, NET, x)
        refused(ValueError, ["y has NaN or infinite values in rows [1, 3]"], NET, X, x)

    def test_in_one_of_several_inputs(self):
        net = lf.Serial(lf.Parallel(lf.Dense(), lf.Dense()), lf.Sum())
        x = X.copy()
        x[2] = np.nan
        refused(ValueError, ["x[1] has NaN or infinite values in rows [2]"], net, (X, x))

    def test_padding_may_hold_anything(self):
        x, mask = X.copy(), FULL.copy()
        x[1, 2], mask[1, 2] = np.nan, False
        assert np.isfinite(NET.kernel(x, x_mask=mask).ntk).all()

    def test_many_rows(self):
        x = np.full((20, 2, 3), np.nan)
        refused(ValueError, ["[0, 1, 2, 3, 4, 5, 6, 7, ...]"], NET, x)

    def test_trace_checks_too(self):
        with pytest.raises(ValueError, match=r"NaN or infinite values in rows \[0\]"):
            NET.trace(X[:1] * np.nan)


class TestMasks:
    def test_all_padded_rows_are_named(self):
        mask = FULL.copy()
        mask[[0, 2]] = False
        words = ["x_mask leaves no valid token in rows [0, 2]", "drop these rows"]
        refused(ValueError, words, NET, X, x_mask=mask)
        refused(ValueError, ["y_mask leaves no valid token"], NET, X, X, y_mask=mask)

    @pytest.mark.parametrize("dtype", [int, float])
    def test_dtype(self, dtype):
        words = ["x_mask has dtype", "it must be bool", "x_mask.astype(bool)"]
        refused(TypeError, words, NET, X, x_mask=FULL.astype(dtype))

    @pytest.mark.parametrize("shape", [(4,), (3, 3), (4, 4), (4, 3, 1)])
    def test_shape(self, shape):
        words = [f"x_mask has shape {shape}", "expected (4, 3)"]
        refused(ValueError, words, NET, X, x_mask=np.ones(shape, bool))

    def test_image(self):
        words = ["x_mask has shape (2, 16)", "expected (2, 4, 4)"]
        refused(ValueError, words, IMAGE, np.ones((2, 4, 4, 1)), x_mask=np.ones((2, 16), bool))

    def test_without_tokens(self):
        refused(ValueError, ["no tokens", "no mask"], NET, X[:, 0], x_mask=np.ones(4, bool))

    def test_without_y(self):
        refused(ValueError, ["y_mask was given without y"], NET, X, y_mask=FULL)

    def test_of_several_inputs(self):
        net = lf.Serial(lf.Parallel(lf.Dense(), lf.Dense()), lf.Sum())
        refused(
            ValueError, ["2 inputs", "tuple", "one mask (or None) each"], net, (X, X), x_mask=FULL
        )

    def test_gaps_before_a_convolution(self):
        mask = FULL.copy()
        mask[1, 1] = False
        words = ["x_mask has gaps in rows [1]", "contiguous"]
        refused(ValueError, words, lf.Serial(lf.Conv((2,)), lf.MeanPool()), X, x_mask=mask)
        refused(ValueError, words, lf.Serial(lf.Dense(), lf.AvgPool((2,))), X, x_mask=mask)

    def test_circular_convolution(self):
        mask = FULL.copy()
        mask[1, 2] = False
        net = lf.Serial(lf.Conv((3,), padding="circular"), lf.MeanPool())
        words = ["0.Conv", "circular padding with a mask", 'padding="same"']
        refused(ValueError, words, net, X, x_mask=mask)

    def test_an_all_true_mask_is_no_mask(self):
        net = lf.Serial(lf.Conv((3,), padding="circular"), lf.MeanPool())
        np.testing.assert_array_equal(net.kernel(X, x_mask=FULL).nngp, net.kernel(X).nngp)

    def test_too_short_for_a_window(self):
        refused(ValueError, ["0.Conv", "(2,)", "(3,)"], CONV, X[:, :2])
        mask = FULL.copy()
        mask[2, 2] = False
        words = ["x rows [2] have no token left", 'padding="same"']
        refused(ValueError, words, CONV, X, x_mask=mask)
        refused(ValueError, ["y rows [2] have no token left"], CONV, X, X, y_mask=mask)


class TestTokenIds:
    def test_floats(self):
        refused(TypeError, ["x has dtype float64", "token ids"], EMBED, X[:, :, 0])
        refused(TypeError, ["whole numbers", "x.astype(int)"], EMBED, np.ones((2, 3)))

    def test_negative(self):
        words = ["negative token ids", "mask padding"]
        refused(ValueError, words, EMBED, np.array([[0, -1]]))

    def test_vectors_into_embed(self):
        refused(ValueError, ["takes token ids", "lf.Dense"], EMBED, X)

    def test_embed_is_first(self):
        net = lf.Serial(lf.Dense(), lf.Embed())
        refused((ValueError, TypeError), ["token ids"], net, X)

    def test_ids_without_embed_are_features(self):
        k = NET.kernel(np.array([[1, 2], [3, 4]]))
        assert k.nngp.shape == (2, 2)

    def test_ids_against_vectors(self):
        refused(ValueError, ["shape (2,)", "(3, 5)"], EMBED, np.array([[0, 1]]), X)


class TestOptions:
    def test_kinds(self):
        refused(ValueError, ["kinds=('ntkgp',)", '"nngp", "ntk"'], NET, X, kinds="ntkgp")
        refused(ValueError, ["kinds=()"], NET, X, kinds=())

    def test_dtype(self):
        refused(ValueError, ["dtype must be float32 or float64"], NET, X, dtype=np.float16)

    @pytest.mark.parametrize("memory", ["2 parsecs", "GiB", 0, -1])
    def test_memory(self, memory):
        refused(ValueError, ["memory"], NET, X, memory=memory)

    @pytest.mark.parametrize("memory", ["1KiB", "0.5 MB", 2**20, 1.5e6, "64"])
    def test_memory_is_a_size(self, memory):
        assert NET.kernel(X, memory=memory).nngp.shape == (4, 4, 3, 3)

    def test_draws(self):
        refused(ValueError, ["10 draws", f"draws={2 * REPLICATES}"], SOFTMAX, X, draws=10)
        refused(ValueError, ["draws"], SOFTMAX, X, draws=0)

    def test_too_few_draws_for_the_precision(self):
        words = ["16 score draws", "relative standard error", "precision 1e-06", "try draws="]
        refused(ValueError, words, SOFTMAX, X, draws=16, precision=1e-6)
        k = SOFTMAX.kernel(X, draws=16, precision=0.5)
        assert k.draws == 16
        assert k.nngp_sem.shape == k.nngp.shape

    def test_the_draws_that_the_error_names_are_about_enough(self):
        k = SOFTMAX.kernel(X[:2], draws=64)
        now = max(
            (sem / np.sqrt(np.square(value).mean())).max()
            for value, sem in ((k.nngp, k.nngp_sem), (k.ntk, k.ntk_sem))
        )
        with pytest.raises(ValueError) as caught:
            SOFTMAX.kernel(X[:2], draws=64, precision=now / 2)
        draws = int(str(caught.value).rsplit("=", 1)[1])
        assert 64 < draws <= 256
        SOFTMAX.kernel(X[:2], draws=4 * draws, precision=now / 2)

    def test_draws_do_not_matter_to_an_exact_kernel(self):
        k = NET.kernel(X, draws=10, precision=1e-9)
        assert k.draws == 0
        assert k.nngp_sem is None
        assert k.ntk_sem is None

    def test_unknown_option(self):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            NET.kernel(X, batch=3)


class TestRandomness:
    def test_a_kernel_is_deterministic(self):
        a, b = SOFTMAX.kernel(X, draws=16), SOFTMAX.kernel(X, draws=16)
        np.testing.assert_array_equal(a.ntk, b.ntk)

    def test_a_key_changes_the_draws(self, key):
        a, b = SOFTMAX.kernel(X, draws=16), SOFTMAX.kernel(X, draws=16, key=key)
        assert (a.nngp != b.nngp).any()
        assert (np.abs(a.nngp - b.nngp) < 12 * np.hypot(a.nngp_sem, b.nngp_sem)).all()


class TestProgress:
    def test_every_block_is_reported(self):
        calls = []
        NET.kernel(X, memory=1, progress=lambda *report: calls.append(report))
        done, total, left = zip(*calls, strict=True)
        assert list(done) == list(range(1, total[0] + 1))
        assert set(total) == {len(calls)}
        assert left[-1] == 0

    def test_replicates_share_one_bar(self):
        calls = []
        SOFTMAX.kernel(X, draws=8, progress=lambda *report: calls.append(report))
        assert calls[-1][0] == calls[-1][1]
        assert [c[0] for c in calls] == sorted({c[0] for c in calls})

    def test_an_error_in_the_callback_loses_nothing(self):
        def broken(done, total, left):
            raise RuntimeError("no bar today")

        np.testing.assert_array_equal(
            NET.kernel(X, memory=1, progress=broken).ntk, NET.kernel(X, memory=1).ntk
        )

    def test_a_line_on_standard_error(self, capsys):
        NET.kernel(X, progress=True)
        assert "1/1 blocks" in capsys.readouterr().err


def test_checks_can_be_skipped_only_by_tracing():
    """Under jit values cannot be looked at: NaN then goes through."""
    value = jax.jit(lambda x: NET.kernel(x).nngp)(jnp.full((1, 2, 3), jnp.nan))
    assert np.isnan(value).all()
