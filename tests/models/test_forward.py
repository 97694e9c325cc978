"""The forward pass against plain loops over tokens, heads and channels."""

import math

import numpy as np
import pytest
from tests.models import tiny

from limitformer.models import Attention, Mlp, Relative, forward, from_spec, rows, steps, stream
from limitformer.models.forward import attention_maps
from limitformer.models.gates import GATES, activation_name, gate


def naive_norm(norm, row):
    if norm is None:
        return row
    mean = sum(row) / len(row) if norm.centred else 0.0
    var = sum((v - mean) ** 2 for v in row) / len(row)
    bias = np.zeros(len(row)) if norm.bias is None else norm.bias
    values = zip(row, norm.gain, bias, strict=True)
    return np.array([(v - mean) / math.sqrt(var + norm.eps) * g + b for v, g, b in values])


def naive_turn(v, position, frequencies):
    v = v.copy()
    J = len(frequencies)
    for j, f in enumerate(frequencies):
        z = complex(v[j], v[j + J]) * complex(math.cos(position * f), math.sin(position * f))
        v[j], v[j + J] = z.real, z.imag
    return v


def naive_attention(a, x):
    n = len(x)
    out = np.zeros_like(x) + a.b_O
    for h in range(a.heads):
        g = h * len(a.W_K) // a.heads
        q = [x[i] @ a.W_Q[h] + a.b_Q[h] for i in range(n)]
        k = [x[j] @ a.W_K[g] + a.b_K[g] for j in range(n)]
        if a.rotary is not None:
            q = [naive_turn(v, i, a.rotary.frequencies) for i, v in enumerate(q)]
            k = [naive_turn(v, i, a.rotary.frequencies) for i, v in enumerate(k)]
        for i in range(n):
            weight = {
                j: math.exp(q[i] @ k[j] / math.sqrt(len(q[i])))
                for j in range(n)
                if (not a.causal or j <= i) and (a.window is None or abs(i - j) < a.window)
            }
            for j, w in weight.items():
                value = x[j] @ a.W_V[g] + a.b_V[g]
                out[i] += w / sum(weight.values()) * value @ a.W_O[h]
    return out


ACTS = {
    "gelu": lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2,
    "relu": lambda z: max(z, 0.0),
    "silu": lambda z: z / (1 + math.exp(-z)),
    "tanh": math.tanh,
}


def naive_mlp(m, x):
    act = np.vectorize(ACTS[m.activation])
    z = x @ m.W_in + m.b_in
    z = act(z) if m.W_gate is None else act(x @ m.W_gate + m.b_gate) * z
    return z @ m.W_out + m.b_out


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_naive(kind):
    model, ids = tiny.model(**tiny.KINDS[kind]), tiny.tokens(6)
    h = model.embedding.tokens[ids] + model.embedding.positions[: len(ids)]
    for s in model.sublayers:
        inner = np.array([naive_norm(s.before, row) for row in h])
        branch = 0
        if isinstance(s.branch, Attention):
            branch = naive_attention(s.branch, inner)
        elif isinstance(s.branch, Mlp):
            branch = naive_mlp(s.branch, inner)
        h = np.array([naive_norm(s.after, row) for row in h + branch])
    found = forward(model, ids)
    assert np.abs(found - h).max() < 1e-12
    assert np.abs(forward(model.astype(np.float32), ids) - h).max() < 1e-3


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_steps_record_what_happened(kind):
    model, ids = tiny.model(**tiny.KINDS[kind]), tiny.tokens()
    last = stream(model, ids)
    for step in steps(model, ids):
        assert np.array_equal(step.before, last)
        last = step.after
        if step.A is not None:
            assert np.allclose(step.A.sum(axis=-1), 1, atol=1e-14)
            assert np.allclose(step.heads().sum(0) + step.sublayer.branch.b_O, step.branch)
        else:
            with pytest.raises(ValueError, match="has no heads"):
                step.heads()
    assert np.array_equal(last, forward(model, ids))


def test_causal_models_do_not_look_ahead():
    model, ids = tiny.model(causal=True), tiny.tokens(6)
    assert np.allclose(forward(model, ids)[:4], forward(model, ids[:4]), atol=1e-13)


def test_padded_batches_are_their_rows():
    model = tiny.model()
    ids = np.array([[3, 4, 5, 0, 0], [6, 7, 8, 9, 10]])
    mask = ids > 0
    one, two = rows(ids, mask)
    assert np.array_equal(forward(model, one), forward(model, [3, 4, 5]))
    assert len(two) == 5
    with pytest.raises(ValueError, match=r"rows \[1\] have no valid token"):
        rows(ids, [[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    with pytest.raises(ValueError, match=r"ids \(2, 5\) and mask \(5,\)"):
        rows(ids, mask[0])


def test_rotary_scores_depend_on_distance():
    """Equal tokens at all places: the map is a function of i - j alone."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(1, 4, 4))
    a = Attention(W, W[:, ::-1], W, W, rotary=_rotary())
    A = attention_maps(a, np.tile(rng.normal(size=4), (5, 1)))[0]
    score = np.log(A / A.diagonal()[:, None])
    for shift in range(1, 4):
        assert np.ptp(np.diagonal(score, shift)) < 1e-12


def _rotary():
    from limitformer.models import Rotary

    return Rotary(np.array([1.0, 0.3]))


def test_relative_positions():
    rng = np.random.default_rng(0)
    H, d, k, n = 2, 6, 3, 4
    W = rng.normal(size=(4, H, d, k))
    r = Relative(W[3], rng.normal(size=(H, k)), rng.normal(size=(H, k)))
    a = Attention(W[0], W[1], W[2], rng.normal(size=(H, k, d)), relative=r)
    x = rng.normal(size=(n, d))
    A = attention_maps(a, x)
    for h in range(H):
        for i in range(n):
            scores = []
            for j in range(n):
                w = [(i - j) / 10000 ** (2 * c / d) for c in range(d // 2)]
                code = np.array([*map(math.sin, w), *map(math.cos, w)])
                q, key = x[i] @ a.W_Q[h], x[j] @ a.W_K[h]
                scores.append((q + r.b_W[h]) @ key + (q + r.b_R[h]) @ (code @ r.W_R[h]))
            weights = np.exp(np.array(scores) / math.sqrt(k))
            assert np.allclose(A[h, i], weights / weights.sum(), atol=1e-13)


@pytest.mark.parametrize("name", GATES)
def test_gates_are_finite_and_smooth_at_zero(name):
    z = np.array([-1e-9, 0.0, 1e-9, -1e-3, 1e-3])
    assert np.isfinite(gate(name, z)).all()
    assert gate(name, z.astype(np.float32)).dtype == np.float32


def test_gelu_tanh_is_near_gelu():
    z = np.linspace(-4, 4, 101)
    assert np.abs(gate("gelu_tanh", z) * z - gate("gelu", z) * z).max() < 1e-3
    assert activation_name("gelu_pytorch_tanh") == "gelu_tanh"
    with pytest.raises(ValueError, match="unknown activation 'snake'; known are"):
        activation_name("snake")


def test_image_patches():
    """Against a convolution written as loops."""
    rng = np.random.default_rng(0)
    W, b, token = rng.normal(size=(2, 3, 3, 4)), rng.normal(size=4), rng.normal(size=4)
    heads = {n: rng.normal(size=(1, 4, 4)) for n in ("W_Q", "W_K", "W_V", "W_O")}
    spec = {
        "layers": [{"attention": heads}],
        "patches": {"W": W, "b": b, "class_token": token, "positions": rng.normal(size=(5, 4))},
    }
    model = from_spec(spec)
    image = rng.normal(size=(4, 6, 3))
    h = stream(model, image)
    assert np.allclose(h[0], token + model.embedding.positions[0])
    for i in range(2):
        for j in range(2):
            patch = image[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
            value = np.einsum("pqc,pqcd->d", patch, W) + b
            assert np.allclose(h[1 + 2 * i + j], value + model.embedding.positions[1 + 2 * i + j])
    with pytest.raises(ValueError, match=r"\(4, 5, 3\) makes 3 tokens .* has 5 positions"):
        stream(model, image[:, :5])


@pytest.mark.parametrize(
    ("x", "error", "text"),
    [
        ("a text", TypeError, "has no tokenizer: pass token ids"),
        ([1] * 13, ValueError, "13 tokens and tiny pre reads at most 12"),
        ([1, 20], ValueError, "from 0 to 19, got 1 to 20"),
        (np.zeros(0, int), ValueError, "got none"),
        ([[1, 2], [3, 4]], ValueError, r"shape \(n,\), got \(2, 2\); take a padded batch apart"),
        (np.zeros((3, 5)), ValueError, r"shape \(n, 6\), got \(3, 5\)"),
        (np.full((3, 6), np.nan), ValueError, "not finite"),
        ([True, False], TypeError, "expected text, integer token ids or a float stream, got bool"),
    ],
)
def test_bad_input(x, error, text):
    with pytest.raises(error, match=text):
        forward(tiny.model(), x)


def test_stream_given():
    model = tiny.model()
    h = stream(model, tiny.tokens())
    assert np.array_equal(forward(model, h), forward(model, tiny.tokens()))
