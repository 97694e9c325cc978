"""Every adapter reproduces the model it was made from, on transformers 4 and 5."""

import re

import numpy as np
import pytest
import torch
from tiny import CONFIGS, make

from limitformer.models.forward import forward
from limitformer.models.hf import from_hf, verify

# transformers computes norms, softmax or positions of these in float32 whatever the weights are
FLOAT32_INSIDE = ("llama", "mistral", "qwen2", "qwen3", "xlnet")


def given(name, seed=0):
    generator = np.random.default_rng(seed)
    if name == "vit":
        return generator.normal(size=(12, 12, 3))
    return generator.integers(3, 50, size=9)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_sublayer_is_the_original(name):
    original = make(name)
    found = verify(from_hf(original), original, given(name))
    assert len(found.gaps) == 1 + len(from_hf(original).sublayers)
    assert max(found.gaps) < (3e-6 if name in FLOAT32_INSIDE else 1e-12), found


@pytest.mark.parametrize("name", CONFIGS)
def test_output_is_the_last_hidden_state(name):
    original, x = make(name), given(name)
    if name == "opt-post":
        pytest.skip("its output is projected to another width")
    with torch.no_grad():
        if name == "vit":
            theirs = original(pixel_values=torch.tensor(x.transpose(2, 0, 1)[None]))
        else:
            theirs = original(input_ids=torch.tensor(x[None]))
    ours = forward(from_hf(original), x)
    expected = theirs.last_hidden_state[0].numpy()
    gap = np.linalg.norm(ours - expected) / np.linalg.norm(expected)
    assert gap < (3e-6 if name in FLOAT32_INSIDE else 1e-12)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_float32(name):
    original = make(name, torch.float32)
    found = verify(from_hf(original, dtype=np.float32), original, given(name))
    assert max(found.gaps) < 1e-5


@pytest.mark.parametrize(
    ("name", "weight", "where"),
    [
        ("bert", "encoder.layer.1.output.dense.weight", "layer 1 MLP"),
        ("gpt2", "h.2.attn.c_proj.bias", "layer 2 attention"),
        ("albert", "encoder.albert_layer_groups.1.albert_layers.0.ffn.bias", "layer 2 MLP"),
        ("llama", "norm.weight", "final norm"),
        ("xlnet", "layer.0.rel_attn.r_r_bias", "layer 0 attention"),
        ("bert", "embeddings.LayerNorm.bias", "embedding"),
    ],
)
def test_first_deviation_is_named(name, weight, where):
    original = make(name)
    ours = from_hf(original)
    with torch.no_grad():
        original.state_dict()[weight].add_(torch.randn_like(original.state_dict()[weight]))
    with pytest.raises(ValueError, match=f": {re.escape(where)} deviates from the original"):
        verify(ours, original, given(name))


def test_model_with_a_task_head():
    import transformers

    kind, arguments = CONFIGS["bert"]
    config = getattr(transformers, kind)(**arguments)
    original = transformers.AutoModelForSequenceClassification.from_config(config).double()
    assert max(verify(from_hf(original), original, given("bert")).gaps) < 1e-12


def test_training_mode_is_left_as_it_was():
    original = make("bert").train()
    verify(from_hf(original), original, given("bert"))
    assert original.training


def test_not_a_model():
    with pytest.raises(TypeError, match="expected a transformers model, got dict"):
        from_hf({})
