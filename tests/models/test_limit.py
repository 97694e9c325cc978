"""From configurations to limits, and to random models that have them."""

import jax
import numpy as np
import pytest
from tests.models import tiny

import limitformer as lf
from limitformer.depth import mean_cosine
from limitformer.layers.base import leaves
from limitformer.models import initial, limit_of, reinitialised, steps, stream
from limitformer.models.plan import plan_of
from limitformer.models.weights import arrays

IDS = np.arange(6)
SMALL = {
    "bert": {
        "model_type": "bert",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 128,
        "intermediate_size": 256,
        "initializer_range": 0.1,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 2,
        "n_head": 4,
        "n_embd": 128,
        "initializer_range": 0.1,
    },
    "llama": {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "hidden_size": 128,
        "head_dim": 8,
        "intermediate_size": 256,
        "initializer_range": 0.1,
    },
}
SMALL["qwen3"] = SMALL["llama"] | {"model_type": "qwen3", "head_dim": 32, "initializer_range": 0.15}


@pytest.mark.twin
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=() if k == "bert" else pytest.mark.slow) for k in SMALL],
)
def test_limit_of_random_models(kind, key):
    """Kernels of 40 random models; finite width adds O(1 / width), a part of the allowance."""
    config = SMALL[kind]
    with jax.numpy_dtype_promotion("standard"):
        profile = lf.depth_profile(limit_of(config), IDS[None], draws=512)
    names = [n for n in profile.layers if "Repeat" in n]
    expected = [profile["cosine"][profile.layers.index(n)] for n in names]
    found = []
    for one in jax.random.split(key, 40):
        model = initial(config, key=one, tokens=8, vocabulary=8)
        found.append([mean_cosine(s.after) for s in steps(model, IDS) if "MLP" in s.name])
    mean, sem = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(40)
    assert np.all(np.abs(mean - expected) < 5 * sem + 1 / config.get("hidden_size", 128))


def test_standard_deviations():
    net = limit_of({"model_type": "gpt2", "n_layer": 8, "n_embd": 256, "n_head": 4})
    attention = next(leaf for _, leaf in leaves(net) if isinstance(leaf, lf.Attention))
    assert float(attention.qk_std) == pytest.approx(0.02**2 * 256)
    assert float(attention.ov_std) == pytest.approx(0.02**2 * 256 / 4)
    assert attention.heads == 4
    assert attention.causal


def test_normalised_queries_and_keys():
    net = limit_of(SMALL["qwen3"] | {"rms_norm_eps": 0.72})
    attention = next(leaf for _, leaf in leaves(net) if isinstance(leaf, lf.Attention))
    assert float(attention.qk_std) == pytest.approx(0.8)  # 0.15^2 128 = 2.88 of 2.88 + 0.72
    large = limit_of(SMALL["llama"] | {"initializer_range": 0.15})
    attention = next(leaf for _, leaf in leaves(large) if isinstance(leaf, lf.Attention))
    assert float(attention.qk_std) == pytest.approx(2.88)


def test_images():
    config = {"model_type": "vit", "num_hidden_layers": 1, "patch_size": 4, "hidden_size": 64}
    image = np.random.default_rng(0).normal(size=(1, 8, 8, 3))
    with jax.numpy_dtype_promotion("standard"):
        K = limit_of(config).with_heads(lf.inf).kernel(image, draws=16, kinds=("nngp",)).nngp
    assert K.shape == (1, 1, 5, 5)
    with pytest.raises(ValueError, match="vit reads images"):
        initial(config, key=jax.random.key(0))


class Configuration:
    def to_dict(self):
        return SMALL["gpt2"]


class Original:
    config = Configuration()


def test_models_and_configurations_are_read():
    assert plan_of(Original()) == plan_of(Configuration()) == plan_of(SMALL["gpt2"])
    assert plan_of({"model_type": "distilbert", "n_layers": 3}).depth == 3
    assert plan_of({"model_type": "opt", "do_layer_norm_before": False}).placement == "post"
    assert plan_of({"model_type": "roberta"}).types


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("xlnet", "no product of a kernel of queries and one of keys"),
        ("mamba", "unknown model_type 'mamba'; limits are known of bert"),
    ],
)
def test_refused(kind, text):
    with pytest.raises(ValueError, match=text):
        limit_of({"model_type": kind})


def test_not_a_configuration():
    with pytest.raises(
        TypeError, match="expected a configuration or a model that has one, got int"
    ):
        limit_of(3)


def test_reinitialised(key):
    model = tiny.model(d=64, dk=64, hidden=64, rotary={"frequencies": np.array([1.0])})
    fresh = reinitialised(model, key=key, std=0.5)
    for s in fresh.sublayers:
        for name, w in arrays(s):
            leaf = name.rsplit(".")[-1]
            if leaf.startswith("W_"):
                assert abs(w.std() - 0.5) < 0.05
            elif leaf.startswith("b"):
                assert not w.any()
            else:
                assert (w == 1).all()
    again = reinitialised(model, key=key, std=0.5)
    assert np.array_equal(stream(fresh, IDS), stream(again, IDS))
