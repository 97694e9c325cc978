"""Paths against brute force: the frozen model is multilinear in its heads."""

import itertools
import math

import jax
import numpy as np
import pytest
from tests.models import tiny

from limitformer.depth.paths import Paths, check_sum, path_counts, path_decomposition, residual_norm
from limitformer.depth.paths_heads import head_contributions
from limitformer.depth.paths_recompute import recompute_paths, recomputed_mean
from limitformer.depth.paths_signs import random_signs
from limitformer.depth.paths_single import enumerate_paths, path_statistics, run_paths
from limitformer.models import Attention, Mlp, forward, steps, stream

ALL = [(kind, mlp) for kind in tiny.KINDS for mlp in ("source", "inside")]


def frozen(model, x, present, mlp):
    """The frozen model with only the heads (layer, h) in `present`; plain loops over tokens."""
    h = stream(model, x)
    layer = -1
    for step in steps(model, x):
        sub, new = step.sublayer, step.sublayer.skip * h
        inner = _norm(sub.before, step.before, h)
        if isinstance(sub.branch, Attention):
            layer += 1
            a = sub.branch
            for head in range(a.heads):
                if (layer, head) in present:
                    g = head // (a.heads // len(a.W_K))
                    value = inner @ a.W_V[g] + (0 if a.b_V is None else a.b_V[g])
                    new = new + step.A[head] @ value @ a.W_O[head]
            new = new + (0 if a.b_O is None else a.b_O)
        elif isinstance(sub.branch, Mlp):
            b = sub.branch
            if mlp == "source":
                new = new + step.branch
            else:
                new = new + (step.gates * (inner @ b.W_in + b.b_in)) @ b.W_out + b.b_out
        h = _norm(sub.after, sub.skip * step.before + step.branch, new)
    return h


def _norm(norm, whole, part):
    """The affine map that the norm is with its scale taken from `whole`."""
    if norm is None:
        return part
    rows = []
    for w, p in zip(whole, part, strict=True):
        w, p = (w - w.mean(), p - p.mean()) if norm.centred else (w, p)
        row = p / math.sqrt(np.mean(w**2) + norm.eps) * norm.gain
        rows.append(row if norm.bias is None else row + norm.bias)
    return np.array(rows)


def brute(model, x, path, mlp):
    """A path's term, by inclusion and exclusion over its heads."""
    heads = [(l, h) for l, h in enumerate(path) if h >= 0]
    total = 0
    for size in range(len(heads) + 1):
        for kept in itertools.combinations(heads, size):
            total = total + (-1) ** (len(heads) - size) * frozen(model, x, kept, mlp)
    return total


def close(a, b, digits=1e-12):
    return np.linalg.norm(a - b) <= digits * max(1.0, np.linalg.norm(b))


@pytest.mark.parametrize(("kind", "mlp"), ALL)
def test_brute_force(kind, mlp):
    model, x = tiny.model(**tiny.KINDS[kind]), tiny.tokens()
    paths = enumerate_paths(model.heads)
    assert len(paths) == math.prod(H + 1 for H in model.heads)
    single = run_paths(model, x, paths, mlp=mlp)
    for path, found in zip(paths, single, strict=True):
        assert close(found, brute(model, x, path, mlp))
    whole = path_decomposition(model, x, mlp=mlp)
    lengths = (paths >= 0).sum(axis=1)
    for k in range(model.depth + 1):
        assert close(whole.S[k], single[lengths == k].sum(axis=0))
        assert whole.counts[k] == np.sum(lengths == k)
    assert close(whole.output, forward(model, x))
    assert whole.gap < 1e-12


@pytest.mark.parametrize(("kind", "mlp"), ALL)
def test_contributions_are_paths_by_their_last_head(kind, mlp):
    model, x = tiny.model(**tiny.KINDS[kind]), tiny.tokens()
    paths = enumerate_paths(model.heads)
    single = run_paths(model, x, paths, mlp=mlp)
    last = [max(((l, h) for l, h in enumerate(p) if h >= 0), default=(-1, -1)) for p in paths]
    found = head_contributions(model, x, mlp=mlp)
    assert found.gap < 1e-12
    for i, label in enumerate(found.labels):
        part = single[[at == label for at in last]].sum(axis=0)
        assert abs(found.norm[i] - np.linalg.norm(part)) < 1e-11
        assert abs(found.residual[i] * found.norm[i] - residual_norm(part)) < 1e-11
    assert abs(found.share.sum() - 1) < 1e-12
    assert abs(found.residual_share.sum() - 1) < 1e-12
    by_layer = head_contributions(model, x, mlp=mlp, by="layer")
    heads = [found.share[[l == layer for l, _ in found.labels]].sum() for layer in range(-1, 3)]
    assert np.allclose(by_layer.share, heads[: model.depth + 1], atol=1e-12)
    assert "sum of parts - model" in found.top()


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_float32(kind):
    model, x = tiny.model(**tiny.KINDS[kind]), tiny.tokens()
    exact = path_decomposition(model, x, mlp="inside")
    found = path_decomposition(model.astype(np.float32), x, mlp="inside")
    assert found.S.dtype == np.float32
    assert found.gap < 1e-5
    assert np.allclose(found.share, exact.share, atol=1e-3)


@pytest.mark.parametrize("mlp", ["source", "inside"])
@pytest.mark.parametrize("kind", ["pre", "post", "rms gated grouped"])
def test_random_signs_are_unbiased(kind, mlp, key):
    model, x = tiny.model(**tiny.KINDS[kind]), tiny.tokens()
    paths = enumerate_paths(model.heads)
    squares = residual_norm(run_paths(model, x, paths, mlp=mlp)) ** 2
    lengths = (paths >= 0).sum(axis=1)
    exact = np.array([squares[lengths == k].sum() for k in range(model.depth + 1)])
    found = random_signs(model, x, key=key, draws=2000, mlp=mlp)
    assert abs(found.value[0] - exact[0]) < 1e-10
    assert np.all(np.abs(found.value - exact)[1:] < 5 * found.sem[1:])
    assert np.all(found.sem[1:] < 0.1 * exact[1:])
    assert np.allclose(found.rms**2 * found.counts, found.value)


@pytest.mark.parametrize("proposal", ["residual", "uniform"])
def test_sampled_statistics(proposal, key):
    model, x = tiny.model("post", depth=4, heads=3), tiny.tokens()
    exact = path_statistics(model, x, key=key, draws=1000)
    assert all(one.exact and one.evaluated == one.count for one in exact)
    found = path_statistics(model, x, key=key, draws=50, proposal=proposal)
    assert [one.exact for one in found] == [True, True, False, False, False]
    for one, truth in zip(found[2:], exact[2:], strict=True):
        assert abs(one.mean - truth.mean) < 5 * one.mean_sem
        assert abs(one.total - truth.total) < 5 * one.total_sem
        assert 1 <= one.effective <= 50.0001
    if proposal == "uniform":
        assert abs(found[2].effective - 50) < 1e-9


def test_proposal_follows_the_residual(key):
    """Where one head writes a hundred times more than the others, most draws pass through it."""
    model, x = tiny.model(depth=3, heads=4, mlp=False), tiny.tokens()
    for s in model.sublayers:
        if isinstance(s.branch, Attention):
            s.branch.W_O[0] *= 100
    sems = {}
    for proposal in ("residual", "uniform"):
        found = path_statistics(model, x, key=key, draws=40, proposal=proposal, lengths=[3])
        sems[proposal] = found[0].mean_sem / found[0].mean
    assert sems["residual"] < 0.5 * sems["uniform"]


def test_statistic_of_the_user(key):
    model, x = tiny.model(), tiny.tokens()
    ratio = path_statistics(
        model, x, key=key, statistic=lambda s: residual_norm(s) / np.linalg.norm(s, axis=(1, 2))
    )
    assert all(0 <= one.mean <= 1 for one in ratio)
    with pytest.raises(ValueError, match=r"one number per path, \(1,\), got \(1, 5, 6\)"):
        path_statistics(model, x, key=key, statistic=lambda s: s, lengths=[0])


def test_restricted_models():
    model, x = tiny.model(), tiny.tokens()
    found = path_decomposition(model, x)
    assert close(found.restricted(model.depth), found.output)
    assert np.array_equal(found.restricted(0), found.S[0])
    scores = found.effectiveness(lambda y: float(np.linalg.norm(y - found.output)))
    assert len(scores) == model.depth + 1
    assert scores[-1] < 1e-12 < scores[0]
    with pytest.raises(ValueError, match="length must be from 0 to 3, got 4"):
        found.restricted(4)


@pytest.mark.parametrize("kind", ["pre", "post", "rms gated grouped", "rotary"])
def test_recomputed_paths(kind, key):
    """With one head and no skip, the only path is the model; the skip alone skips attention."""
    options = tiny.KINDS[kind] | {"heads": 1, "groups": 1}
    model, x = tiny.model(**options), tiny.tokens()
    only = np.zeros((1, model.depth), int)
    h = stream(model, x)
    from limitformer.models.forward import normalise, run_sublayer

    for s in model.sublayers:
        step = run_sublayer(s, h)
        h = step.after
        if isinstance(s.branch, Attention):
            h = step.branch if s.after is None else normalise(s.after, step.branch)[0]
    assert close(recompute_paths(model, x, only)[0], h)
    mean = recomputed_mean(model, x, model.depth, key=key, draws=3)
    assert close(mean, h)
    assert not close(recompute_paths(model, x, only - 1)[0], h, 1e-3)


def test_uniform_attention_has_no_residual():
    """W_Q = 0: every map is the mean, so every path with a head has equal tokens."""
    model, x = tiny.model(norm="none", mlp=False), tiny.tokens()
    for s in model.sublayers:
        s.branch.W_Q[:] = 0
        s.branch.b_Q[:] = 0
    found = path_decomposition(model, x)
    assert np.all(found.residual[1:] < 1e-12)
    assert found.residual[0] > 0.1
    assert abs(found.residual_share[0] - 1) < 1e-12


def test_table_shows_the_check():
    text = str(path_decomposition(tiny.model(), tiny.tokens()))
    assert "sum of parts - model" in text
    assert "tolerance" in text
    assert len(text.splitlines()) == 6


def test_check_raises():
    parts = np.ones((2, 3, 4))
    assert check_sum(parts, np.full((3, 4), 2.0))[0] == 0
    with pytest.raises(ArithmeticError, match=r"miss the model's output by 1\.0e-01 relative"):
        check_sum(parts, np.full((3, 4), 2.0 / 1.1) * 1.0)


def test_counts():
    assert path_counts((12,) * 6) == tuple(math.comb(6, k) * 12**k for k in range(7))
    assert path_counts((2, 3)) == (1, 5, 6)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda m, x, k: path_decomposition(m, x, mlp="none"),
            "mlp='none' is not known; choose one of source, inside",
        ),
        (lambda m, x, k: run_paths(m, x, [[0, 0]]), r"paths have shape \(m, 3\), got \(1, 2\)"),
        (lambda m, x, k: run_paths(m, x, [[0, 0, 2]]), r"below \[2, 2, 2\], or -1"),
        (lambda m, x, k: random_signs(m, x, key=k, draws=1), "at least 2 for a standard error"),
        (lambda m, x, k: path_statistics(m, x, key=k, lengths=[4]), "from 0 to 3, got 4"),
        (lambda m, x, k: recomputed_mean(m, x, 5, key=k), "from 0 to 3, got 5"),
    ],
)
def test_bad_input(call, text, key):
    with pytest.raises(ValueError, match=text):
        call(tiny.model(), tiny.tokens(), key)


def test_memory_is_asked_for_before_it_is_used():
    with pytest.raises(MemoryError, match='pass by="layer"'):
        head_contributions(tiny.model(), tiny.tokens(), memory=100)


def test_same_key_same_draws():
    model, x = tiny.model(), tiny.tokens()
    one, two = (random_signs(model, x, key=jax.random.key(1), draws=4) for _ in range(2))
    assert np.array_equal(one.value, two.value)
    assert isinstance(path_decomposition(model, x), Paths)
