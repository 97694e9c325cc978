"""What the page shows is what the library computes for the network of the page's TOML."""

import dataclasses
import json
import math

import numpy as np
import pytest
from matplotlib.path import Path

import limitformer as lf
from limitformer.explore import network, panels
from limitformer.explore.runs import Cache
from limitformer.explore.settings import CONTROLS, Settings


def never():
    """Nobody goes away."""


def answer(s, stage=0):
    found = panels.theory(s, stage, Cache(), never)
    json.dumps(found, allow_nan=False)
    return found


def test_finite_heads(key):
    s = Settings(
        heads="2", tokens=4, depth=2, skip=0.25, norm="none", activation="none", of="token"
    )
    shown = answer(s, 1)
    net, x = lf.files.loads(panels.texts(s)["toml"]), network.inputs(s)
    law = net.law(x, key=key, draws=2000)
    density, draws = shown["density"], shown["draws"]
    assert draws >= 2000 and shown["done"]

    K = np.array(shown["kernel"]["values"])
    sem = math.sqrt(1 + 2000 / draws) * law.mean.sem[0, 0]
    assert (np.abs(K - law.mean.value[0, 0]) < 5 * sem + 1e-4 * K).all()
    for name, found in (("kurtosis", law.kurtosis), ("variance", None)):
        value, error = density[name], density[f"{name}_sem"]
        theirs = (found.value[0], found.sem[0]) if found else (
            law.mean.value[0, 0, 0, 0], law.mean.sem[0, 0, 0, 0])  # fmt: skip
        assert abs(value - theirs[0]) < 5 * math.hypot(error, theirs[1])
    p = law.density(np.array(density["y"]))
    apart = np.abs(np.array(density["law"]) - p.value)
    assert (apart < 5 * np.hypot(p.sem, density["sem"]) + 1e-4 * p.value).all()
    gaussian = np.exp(-np.square(density["y"]) / 2 / density["variance"])
    gaussian /= math.sqrt(2 * math.pi * density["variance"])
    np.testing.assert_allclose(density["gaussian"], gaussian, rtol=1e-3)

    profile = lf.depth_profile(net, x).with_heads(key=key, draws=500)
    at = [1, 2, 3]  # net[0] and the two turns of the repeat
    for metric in ("cosine", "residual"):
        for mine, curves in ((shown["depth"][metric]["mean"], profile.heads),
                             (shown["depth"]["limit"][metric], profile.kernel)):  # fmt: skip
            sem = curves.sem(metric)[at] * 2 + 1e-4
            assert (np.abs(mine - curves.mean(metric)[at]) < 5 * sem).all()
        low, high = (np.array(shown["depth"][metric][end]) for end in ("low", "high"))
        theirs = profile.heads.band(metric)
        width = theirs[1][at] - theirs[0][at]
        assert (np.abs(low - theirs[0][at]) <= 0.25 * width + 1e-4).all()
        assert (np.abs(high - theirs[1][at]) <= 0.25 * width + 1e-4).all()


def test_infinitely_many_heads():
    s = Settings(
        heads="inf", tokens=3, depth=1, norm="pre", activation="none", qk_std=1.0, of="mean"
    )
    shown = answer(s)
    net, x = lf.files.loads(panels.texts(s)["toml"]), network.inputs(s)
    kernel = net.kernel(x, kinds=("nngp",))
    K, sem = kernel.nngp[0, 0], 2 * kernel.nngp_sem[0, 0]
    assert (np.abs(np.array(shown["kernel"]["values"]) - K) < 6 * sem + 1e-4).all()
    assert "law" not in shown["density"] and "is Gaussian" in shown["summary"]
    assert abs(shown["density"]["variance"] - K.mean()) < 6 * sem.max()
    assert shown["heads"] and shown["draws"] == 8


def test_fixed_scores_are_exact_at_once():
    s = Settings(scale="linear", tokens=4, depth=2, activation="none")
    shown = answer(s)
    profile = lf.depth_profile(network.network(s), network.inputs(s))
    assert shown["done"] and shown["draws"] is None and shown["depth"]["limit"] is None
    for metric in ("cosine", "residual"):
        np.testing.assert_allclose(shown["depth"][metric]["mean"], profile[metric][1:4], rtol=1e-4)


@pytest.mark.parametrize("of", CONTROLS["of"].kind.names)
def test_the_density_is_of_what_is_asked_for(of):
    s = Settings(tokens=4, depth=1, of=of)
    cache = Cache()
    run = cache.kernel(s, 0)
    run.steps(1, never)
    u = {"token": [1, 0, 0, 0], "mean": [0.25] * 4, "difference": [1, -1, 0, 0]}[of]
    v = np.einsum("a,nab,b->n", u, run._K, u)
    shown = panels.theory(s, 0, cache, never)["density"]
    assert shown["variance"] == pytest.approx(v.mean(), rel=1e-5)
    assert shown["kurtosis"] == pytest.approx(3 * v.var() / v.mean() ** 2, rel=1e-4)


def test_contours_of_a_gaussian_are_its_ellipses():
    s = Settings(scale="linear", tokens=3, depth=1, activation="none")
    shown = answer(s)
    K = np.array(shown["kernel"]["values"])[:2, :2]
    for curve, mass in zip(shown["contours"]["curves"], (0.5, 0.9), strict=True):
        square = np.einsum("na,ab,nb->n", curve, np.linalg.inv(K), curve)
        np.testing.assert_allclose(square, -2 * math.log(1 - mass), rtol=0.01)


def test_contours_of_a_mixture_hold_their_share():
    K = np.array([np.eye(2), [[9.0, 7.2], [7.2, 9.0]], [[0.25, 0.0], [0.0, 1.0]]])
    rng, found = np.random.default_rng(0), panels._contours(K)
    y = np.concatenate([rng.multivariate_normal([0, 0], one, size=20_000) for one in K])
    for curve, mass in zip(found["curves"], (0.5, 0.9), strict=True):
        inside = Path(curve).contains_points(y).mean()
        assert inside == pytest.approx(mass, abs=0.01)


def test_more_stages_mean_more_draws():
    s = Settings(tokens=64, depth=1, heads="8", activation="none")
    cache = Cache()
    first, last = (panels.theory(s, stage, cache, never) for stage in (0, 2))
    assert first["draws"] < last["draws"] and not first["done"] and last["done"]
    assert last["density"]["variance_sem"] < first["density"]["variance_sem"]
    networks = [len(panels.twin(s, stage, cache, never)["points"]) for stage in (0, 1)]
    assert networks[1] == 4 * networks[0]


def test_twins_are_near_the_theory_where_they_are_wide():
    s = Settings(tokens=3, depth=1, width="64", heads="4", norm="pre", of="token", qk_std=0.5)
    shown, twins = answer(s, 1)["density"], panels.twin(s, 2, Cache(), never)
    assert abs(twins["variance"] - shown["variance"]) < 5 * twins["sem"]
    y = np.array(twins["points"])
    np.testing.assert_array_equal(y[:, 0], twins["seen"])
    assert "finite networks of width 64: variance" in twins["summary"]


def test_words():
    s = Settings(heads="4", tokens=4, depth=3, of="token", skip=0.25, norm="none")
    said = answer(s)["summary"]
    shown = answer(s)["density"]["kurtosis"]
    assert said.startswith("4 heads: the first token's output has excess kurtosis 0.")
    assert f"{shown:.2g}"[:4] in said and " ± " in said and "in 3 blocks." in said
    assert "1 head: " in answer(dataclasses.replace(s, heads="1", depth=1))["summary"]
    assert "in 1 block." in answer(dataclasses.replace(s, heads="1", depth=1))["summary"]
    for fixed in ({"norm": "post"}, {"causal": "yes"}):  # a norm; a token that sees itself alone
        said = answer(dataclasses.replace(s, activation="none", **fixed))["summary"]
        assert "is Gaussian, because its variance is the same for all scores" in said
    assert "for any number of heads" in answer(dataclasses.replace(s, scale="linear"))["summary"]


@pytest.mark.parametrize(
    "s",
    [
        Settings(skip=0.0, activation="none", depth=24, tokens=2),
        Settings(skip=0.0, w_std=0.0, depth=3),
        Settings(
            skip=1.5, w_std=2.0, norm="none", activation="abs", depth=24, qk_std=4.0, tokens=3
        ),
        Settings(skip=0.0, w_std=0.0, depth=3, norm="pre", heads="inf", of="token"),
        Settings(qk_std=0.0, tokens=2, depth=2, skip=0.0, norm="post"),
    ],
    ids=["collapse", "nothing", "growth", "nothing normed", "no scores"],
)
def test_the_ends_of_the_sliders_have_an_answer(s):
    shown = answer(s)
    twins = panels.twin(s, 0, Cache(), never)
    json.dumps(twins, allow_nan=False)
    assert shown["summary"] and np.isfinite(shown["kernel"]["values"]).all()
    if s.skip == 0 and s.of == "difference":
        assert shown["density"]["lost"] and "nothing is left" in shown["summary"]


def test_answers_do_not_change_from_one_call_to_the_next():
    s = Settings(tokens=4, depth=2)
    assert answer(s) == answer(s)
