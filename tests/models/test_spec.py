"""Specifications of models, and what is refused."""

import numpy as np
import pytest
from tests.models import tiny

from limitformer.models import ARCHITECTURES, from_config, from_spec
from limitformer.models.llama import frequencies


def heads(d=4, H=2, G=None, k=2):
    G = G or H
    shapes = {"W_Q": (H, d, k), "W_K": (G, d, k), "W_V": (G, d, k), "W_O": (H, k, d)}
    return {name: np.ones(shape) for name, shape in shapes.items()}


def test_facts():
    model = tiny.model(depth=2, heads=4, groups=2)
    assert (model.depth, model.heads, model.width) == (2, (4, 4), 6)
    assert model.attentions[0].group.tolist() == [0, 0, 1, 1]
    assert repr(model) == "Model('tiny pre', 2 attention layers, heads 4, width 6, float64)"
    assert model.astype(np.float32).dtype == np.float32
    assert [s.name for s in model.sublayers][-2:] == ["layer 1 MLP", "final norm"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"layers": []}, "no attention among its 0 sublayers"),
        ({"layer": []}, r"the specification has unknown keys \['layer'\]; known are name"),
        ({"layers": [{"attn": {}}]}, r"layer 0 has unknown keys \['attn'\]"),
        ({"layers": [{"attention": {"W_Q": 1}}]}, "layer 0 attention needs W_K, W_V, W_O"),
        ({"layers": [], "placement": "middle"}, 'placement must be "pre" or "post"'),
        (
            {"layers": [{"attention": heads() | {"W_O": np.ones((2, 2, 5))}}]},
            r"layer 0 attention: branch.W_O has shape \(2, 2, 5\), expected \(H=2, v=2, d=4\)",
        ),
        (
            {"layers": [{"attention": heads(H=3, G=2)}]},
            "3 query heads cannot share 2 key and value groups",
        ),
        (
            {"layers": [{"attention": heads() | {"b_O": np.array([0, np.nan, 0, np.inf])}}]},
            "2 of 4 values of branch.b_O are not finite",
        ),
        (
            {"layers": [{"attention": heads(), "attention_norm": {"gain": np.ones(3)}}]},
            r"before.gain has shape \(3,\), expected \(d=4\)",
        ),
        (
            {
                "layers": [
                    {
                        "attention": heads(),
                        "mlp": {"W_in": np.ones((4, 3)), "W_out": np.ones((2, 4))},
                    }
                ]
            },
            r"W_out has shape \(2, 4\), expected \(m=3, d=4\)",
        ),
    ],
)
def test_refused(spec, text):
    with pytest.raises(ValueError, match=text):
        from_spec(spec)


def test_not_a_dictionary():
    with pytest.raises(TypeError, match="layer 0 must be a dictionary, got list"):
        from_spec({"layers": [[]]})


def test_unknown_type():
    with pytest.raises(ValueError, match="unknown model_type 'mamba'; known are bert, roberta"):
        from_config({"model_type": "mamba"}, {})
    assert len(ARCHITECTURES) == 12


def test_weights_of_another_type():
    with pytest.raises(ValueError, match=r"no weight 'wte\.weight', so it is not of the type"):
        from_config({"model_type": "gpt2"}, {"embed.weight": np.ones((2, 2))})


def test_missing_weight():
    config = {"model_type": "gpt2", "n_head": 1, "n_layer": 1}
    weights = {"x.wte.weight": np.ones((2, 2)), "x.h.0.attn.c_attn.bias": np.ones(2)}
    text = r"no weight 'x\.h\.0\.attn\.c_attn\.weight'; the nearest is \['x\.h\.0\.attn\.c_attn"
    with pytest.raises(ValueError, match=text):
        from_config(config, weights)


def test_rotary_frequencies():
    assert np.allclose(frequencies({"rope_parameters": {"rope_theta": 100.0}}, 4), [1, 0.1])
    slow = frequencies({"rope_scaling": {"type": "linear", "factor": 2.0}}, 4)
    assert np.allclose(slow, [0.5, 0.005])
    assert len(frequencies({"partial_rotary_factor": 0.5}, 8)) == 2
    with pytest.raises(ValueError, match="rotary type 'yarn' is not supported"):
        frequencies({"rope_scaling": {"rope_type": "yarn"}}, 4)
