"""Every kind of input, scaled on training data, in pipelines and searches."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler

import limitformer as lf
from limitformer.data import Embedder, Sequences, Vectors, Vocabulary
from limitformer.sklearn import (
    NNGPClassifier,
    NNGPRegressor,
    NTKClassifier,
    NTKRegressor,
    default_network,
)
from limitformer.sklearn.inputs import Reading

RNG = np.random.default_rng(1)
POOLED = lf.Serial(lf.Dense(1.4, 0.3), lf.Relu(), lf.MeanPool(), lf.Dense())
TOKENS = RNG.normal(2.0, 3.0, size=(20, 4, 3))
MASK = np.arange(4) < RNG.integers(1, 5, size=20)[:, None]
CLASSES = (TOKENS[:, 0, 0] > 2).astype(int)
TEXTS = ["good film", "a good day", "bad film", "so bad a day", "good good", "bad", "a film"] * 2
MOOD = ["up", "up", "down", "down", "up", "down", "down"] * 2
VECTORS = Vectors(("good", "bad", "film", "day"), np.eye(4, dtype=np.float32))


def test_padding_is_truncation():
    x = Sequences(np.where(MASK[..., None], TOKENS, np.inf), MASK)  # padding is never looked at
    model = NNGPClassifier(POOLED).fit(x, CLASSES)
    alone = np.stack([model.predict_proba(TOKENS[i : i + 1, : MASK[i].sum()])[0] for i in range(4)])
    np.testing.assert_allclose(model.predict_proba(x[np.arange(4)]), alone, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.reading_.scaler.mean_, TOKENS[MASK].mean(axis=0))
    assert model.n_features_in_ == 3


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        (NNGPClassifier, "sequence"),
        (NNGPRegressor, "ids"),
        (NTKClassifier, "image"),
        (NTKRegressor, "sequence"),
        *(
            pytest.param(estimator, kind, marks=pytest.mark.slow)
            for estimator in (NNGPClassifier, NTKClassifier, NNGPRegressor, NTKRegressor)
            for kind in ("sequence", "ids", "image")
        ),
    ],
)
def test_default_networks(estimator, kind):
    x = {
        "sequence": Sequences(TOKENS, MASK),
        "ids": Sequences(RNG.integers(0, 3, size=(20, 4)), MASK),
        "image": RNG.integers(0, 255, size=(20, 4, 4, 2)).astype(np.uint8),
    }[kind]
    model = estimator().fit(x, CLASSES)
    assert model.reading_.kind == kind
    assert model.network_ == default_network(kind, (4, 4, 2))
    assert np.isfinite(np.asarray(model.predict(x[:2]), float)).all()


@pytest.mark.parametrize("shape", [(1, 5), (8, 8), (9, 9), (28, 28), (30, 17), (32, 32)])
def test_images_have_at_most_64_patches(shape):
    first = default_network("image", (*shape, 1)).layers[0]
    step = first.stride[0] if shape[0] > 8 else 1
    height, width = (-(-side // step) for side in shape)
    assert height * width <= 64
    assert first.padding == "same" or (height * step, width * step) == shape  # no pixel is lost


@pytest.mark.parametrize("shape", [(1, 5), pytest.param((30, 17), marks=pytest.mark.slow)], ids=str)
def test_images_of_odd_sizes(shape):
    net = default_network("image", (*shape, 1))
    assert net.kernel(np.ones((2, *shape, 1)), kinds="nngp").nngp.shape == (2, 2)


def test_images_need_their_size():
    with pytest.raises(ValueError, match=r"images need shape=\(height, width, channels\)"):
        default_network("image")


def test_tables_are_reshaped():
    flat = TOKENS.reshape(20, 12)
    by_shape = NNGPClassifier(POOLED, reshape=(4, 3)).fit(flat, CLASSES)
    given = NNGPClassifier(POOLED).fit(TOKENS, CLASSES)
    np.testing.assert_array_equal(by_shape.predict_proba(flat), given.predict_proba(TOKENS))
    assert by_shape.n_features_in_ == 12
    columns = NNGPClassifier(reshape="columns").fit(flat, CLASSES)
    assert columns.network_ == default_network("columns")
    np.testing.assert_allclose(columns.reading_.scaler.mean_, flat.mean(axis=0))
    assert columns.score(flat, CLASSES) == 1.0
    flattened = lf.Serial(lf.Conv((3, 3)), lf.Flatten())
    image = NNGPClassifier(flattened, reshape=(2, 2, 3)).fit(flat, CLASSES)
    assert image.reading_.kind == "image" and image.reading_.shape == (2, 2, 3)


def test_scaling_is_fitted_on_training_data_only():
    for kind, x in (("table", TOKENS[:, 0]), ("columns", TOKENS), ("sequence", TOKENS)):
        x = x[..., :1] if kind == "columns" else x
        reading = Reading.of(x, None, kind, True)
        scaled = reading.scaled(x, None)
        axes = 0 if kind != "sequence" else (0, 1)
        np.testing.assert_allclose(scaled.mean(axis=axes), 0, atol=1e-12)
        np.testing.assert_allclose(scaled.std(axis=axes), 1, rtol=1e-12)
        np.testing.assert_allclose(reading.scaled(x[:3], None), scaled[:3])
    assert Reading.of(TOKENS, None, "sequence", False).scaled(TOKENS, None) is TOKENS


def test_pipeline_and_grid_search_on_a_table():
    pipe = Pipeline([("scale", MinMaxScaler()), ("gp", NNGPClassifier())])
    wide = lf.Serial(lf.Dense(2.0, 1.0), lf.Relu(), lf.Dense())
    grid = {"gp__network": [wide, lf.Dense()], "gp__noise": ["loo", lf.relative(0.1)]}
    search = GridSearchCV(pipe, grid, cv=2, scoring="neg_log_loss").fit(TOKENS[:, 0], CLASSES)
    assert search.predict(TOKENS[:, 0]).shape == (20,)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_texts_through_a_pipeline():
    pipe = make_pipeline(Embedder(VECTORS), NNGPClassifier()).fit(TEXTS, MOOD)
    assert pipe.predict(["what a good film", "bad"]).tolist() == ["up", "down"]


@pytest.mark.slow
def test_texts_are_split_and_searched():
    pipe = make_pipeline(Embedder(VECTORS), NNGPClassifier())
    assert cross_val_score(pipe, TEXTS, MOOD, cv=2).mean() > 0.7
    grid = {"embedder__max_tokens": [1, 3]}
    assert GridSearchCV(pipe, grid, cv=2).fit(TEXTS, MOOD).best_score_ > 0.7
    ids = make_pipeline(Vocabulary(), NNGPClassifier()).fit(TEXTS, MOOD)
    assert ids.predict(["good", "bad"]).tolist() == ["up", "down"]


def test_sequences_are_split_by_scikit_learn():
    x = Sequences(TOKENS, MASK)
    search = GridSearchCV(NNGPClassifier(POOLED), {"noise": [0.1, 1.0]}, cv=2).fit(x, CLASSES)
    assert search.predict(x).shape == (20,)


BAD = np.where(np.arange(20)[:, None, None] == 7, np.nan, TOKENS)
FLAT = TOKENS.reshape(20, 12)


@pytest.mark.parametrize(
    ("x", "parameters", "message"),
    [
        (BAD, {}, r"X contains NaN or infinity in rows \[7\]; NNGPClassifier does not accept"),
        (Sequences(BAD, MASK), {}, r"X contains NaN or infinity in rows \[7\]"),
        (TOKENS[:1], {}, r"X has 1 sample.*a minimum of 2 is required"),
        (TOKENS[:, :0], {}, "there are no tokens or features"),
        (TOKENS[:19], {}, "inconsistent numbers of samples"),
        (TOKENS, {"reshape": (4, 3)}, r"reshape=\(4, 3\) is for tables \(n, columns\)"),
        (FLAT, {"reshape": (5, 3)}, r"reshape=\(5, 3\) does not fit 12 columns; give"),
        (FLAT, {"reshape": "rows"}, "reshape='rows'; choose None, \"columns\", .tokens"),
        (TEXTS, {}, r'X is a list of texts.*Pipeline\(\[\("embed", lf.data.Embedder'),
        ([*TOKENS[:19], TOKENS[0, :2]], {}, r"pad sequences .* with lf.data.Sequences.pad"),
        (TOKENS[..., None, None], {}, "Found array with dim 5"),
        (Sequences(np.ones((20, 4), int), MASK), {"network": POOLED}, "does not start with lf.Emb"),
    ],
)
def test_bad_inputs(x, parameters, message):
    with pytest.raises(ValueError, match=message):
        NNGPClassifier(**parameters).fit(x, CLASSES)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (TOKENS.astype(str), "X has dtype <U.*takes real numbers"),
        (TOKENS + 1j, "X has dtype complex128; NNGPClassifier takes real numbers"),
        (Sequences(np.ones((20, 4)), MASK), r"takes integers \(token ids\)"),
    ],
)
def test_bad_types(x, message):
    with pytest.raises(TypeError, match=message):
        NNGPClassifier().fit(x, CLASSES)


def test_new_inputs_must_fit():
    model = NNGPClassifier(POOLED).fit(TOKENS, CLASSES)
    with pytest.raises(ValueError, match=r"shape \(20, 4, 2\), but .* shape \(n, tokens, 3\)"):
        model.predict(TOKENS[..., :2])
    with pytest.raises(ValueError, match=r"X of shape \(20, 2, 2, 3\) is read as image, but"):
        model.predict(TOKENS.reshape(20, 2, 2, 3))
    flattened = lf.Serial(lf.Conv((3, 3)), lf.Flatten())
    image = NNGPClassifier(flattened).fit(TOKENS.reshape(20, 2, 2, 3), CLASSES)
    with pytest.raises(ValueError, match=r"fitted on inputs of shape \(n, 2, 2, 3\)"):
        image.predict(np.ones((1, 3, 2, 3)))
