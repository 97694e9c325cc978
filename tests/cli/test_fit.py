"""`fit` and `predict` against a Gaussian process written out, and against the library."""

import json
from pathlib import Path

import numpy as np
import pytest

import limitformer as lf
from limitformer.cli import main
from limitformer.cli.saved import Fit, Scaling, read_fit, save

NET = lf.Serial(lf.Dense(1.4, 0.2), lf.Relu(), lf.Dense(1.4, 0.2), lf.Relu(), lf.Dense())  # mlp


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)) * (1, 5, 1, 1) + 3
    y = 100 + 10 * np.sin(x[:, 0]) + x[:, 1] + rng.normal(size=30)
    np.savez("d.npz", x=x[:20], y=y[:20], new=x[20:], new_y=y[20:], two=np.stack([y, -y], 1)[:20])
    return {"x": x[:20], "y": y[:20], "new": x[20:], "new_y": y[20:]}


def answer(arguments, capsys):
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)["result"]


def test_without_scaling_it_is_the_gaussian_process(here, capsys):
    options = ["--x", "d.npz:x", "--y", "d.npz:y", "--noise", "0.5", "--no-scale", "--out", "a.fit"]
    found = answer(["fit", "mlp", *options], capsys)
    K = np.asarray(NET.kernel(here["x"]).nngp) + 0.5 * np.eye(20)
    y, inverse = here["y"], np.linalg.inv(K)
    evidence = -0.5 * y @ inverse @ y - 0.5 * np.linalg.slogdet(2 * np.pi * K)[1]
    assert found["log_evidence"] == pytest.approx(evidence, rel=1e-9)
    residual = (inverse @ y) / np.diag(inverse)
    assert found["loo_rmse"] == pytest.approx(np.sqrt(np.mean(residual**2)), rel=1e-9)
    assert found["loo_r2"] == pytest.approx(1 - np.mean(residual**2) / y.var(), rel=1e-9)

    new = answer(["predict", "a.fit", "--x", "d.npz:new", "--y", "d.npz:new_y"], capsys)
    Kx = np.asarray(NET.kernel(here["new"], here["x"]).nngp)
    own = np.diag(np.asarray(NET.kernel(here["new"]).nngp))
    mean = Kx @ inverse @ y
    variance = own - np.einsum("mi,ij,mj->m", Kx, inverse, Kx)
    np.testing.assert_allclose(new["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(new["std"], np.sqrt(variance), rtol=1e-7)
    scores, error = new["scores"], here["new_y"] - mean
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-9)
    log = -0.5 * (np.log(2 * np.pi * (variance + 0.5)) + error**2 / (variance + 0.5))
    assert scores["log_density"] == pytest.approx(log.mean(), rel=1e-7)
    observed = answer(["predict", "a.fit", "--x", "d.npz:new", "--observed"], capsys)
    np.testing.assert_allclose(observed["std"], np.sqrt(variance + 0.5), rtol=1e-7)


def test_scaling_is_that_of_the_estimator(here, capsys):
    from limitformer.sklearn import NNGPRegressor

    found = answer(["fit", "mlp", "--x", "d.npz:x", "--y", "d.npz:y", "--out", "a.fit"], capsys)
    new = answer(["predict", "a.fit", "--x", "d.npz:new"], capsys)
    model = NNGPRegressor(NET).fit(here["x"], here["y"])
    mean, std = model.predict(here["new"], return_std=True)
    np.testing.assert_allclose(new["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(new["std"], std, rtol=1e-6)
    assert found["ridge"] == model.ridge_path_.chosen
    assert found["log_evidence"] == pytest.approx(model.log_marginal_likelihood_, rel=1e-9)


def test_a_factor_on_targets_is_a_factor_on_predictions(here, capsys):
    np.savez("e.npz", y=1000 * here["y"] - 7)
    new = []
    for i, targets in enumerate(("d.npz:y", "e.npz:y")):
        main(["fit", "mlp", "--x", "d.npz:x", "--y", targets, "--out", f"{i}.fit"])
        capsys.readouterr()
        new.append(answer(["predict", f"{i}.fit", "--x", "d.npz:new"], capsys))
    first, second = ({k: np.array(n[k]) for k in ("mean", "std")} for n in new)
    np.testing.assert_allclose(second["mean"], 1000 * first["mean"] - 7, rtol=1e-9)
    np.testing.assert_allclose(second["std"], 1000 * first["std"], rtol=1e-7)


def test_the_noise_is_chosen_by_evidence_or_left_out_error(here, capsys):
    given = ["fit", "mlp", "--x", "d.npz:x", "--y", "d.npz:y"]
    for by, key, best in (("loo", "loo_error", np.argmin), ("evidence", "log_evidence", np.argmax)):
        found = answer([*given, "--by", by], capsys)
        path = found["path"]
        values = [np.nan if v is None or v == "-inf" else v for v in path[key]]
        assert found["ridge"] == path["ridges"][int(best(values))]
    assert main([*given, "--kind", "ntk", "--by", "evidence"]) == 2
    assert "a trained ensemble has none" in capsys.readouterr().err


def test_several_outputs_and_the_trained_ensemble(here, capsys):
    given = ["--x", "d.npz:x", "--y", "d.npz:two", "--kind", "ntk", "--noise", "0.1", "--no-scale"]
    found = answer(["fit", "mlp", *given, "--out", "a.fit"], capsys)
    assert found["log_evidence"] is None
    new = answer(["predict", "a.fit", "--x", "d.npz:new"], capsys)
    two = np.stack([here["y"], -here["y"]], 1)
    post = lf.condition(NET, here["x"], two, noise=0.1, kind="ntk")
    wanted = post.predict(here["new"], cov="diag")
    np.testing.assert_allclose(new["mean"], wanted.mean, rtol=1e-9)
    np.testing.assert_allclose(np.array(new["std"])[:, 1], wanted.std, rtol=1e-7)
    assert main(["predict", "a.fit", "--x", "d.npz:new", "--observed"]) == 2
    assert "weight decay" in capsys.readouterr().err
    assert main(["predict", "a.fit", "--x", "d.npz:new", "--out", "p.csv"]) == 0
    with open("p.csv") as file:
        assert file.readline() == "mean_0,mean_1,std_0,std_1\n"


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_classes_are_those_of_classify(here, kind, capsys):
    rng = np.random.default_rng(1)
    labels = np.where(here["x"][:, 0] > 3, "high", "low")
    with open("t.csv", "w") as file:
        file.write("a,b,c,d,kind\n")
        for row, label in zip(here["x"].tolist(), labels, strict=True):
            file.write(",".join(map(repr, row)) + f",{label}\n")
    table = ["--x", "t.csv", "--y", "t.csv:kind"]
    found = answer(["fit", "mlp", *table, "--kind", kind, "--out", "c.fit"], capsys)
    scaling = Scaling.of(here["x"])
    wanted = lf.classify(NET, scaling.scaled(here["x"]), labels, kind=kind)
    assert found["classes"] == ["high", "low"]
    assert found["loo_accuracy"] == wanted.fit.loo_accuracy
    assert found["loo_log_loss"] == pytest.approx(wanted.fit.loo_log_loss, rel=1e-6)
    np.savez("new.npz", x=here["new"], labels=rng.choice(["high", "low"], 10))
    new = answer(["predict", "c.fit", "--x", "new.npz:x", "--y", "new.npz:labels"], capsys)
    scores = wanted.predict(scaling.scaled(here["new"]))
    assert new["label"] == scores.labels.tolist()
    np.testing.assert_allclose(new["p_high"], scores.probabilities[:, 0], rtol=1e-6, atol=1e-12)
    with np.load("new.npz") as file:
        right = scores.labels == file["labels"]
    assert new["scores"]["accuracy"] == pytest.approx(right.mean())


def test_numbers_as_labels(here, capsys):
    np.savez("c.npz", labels=np.arange(20.0) % 2)
    given = ["fit", "mlp", "--x", "d.npz:x", "--y", "c.npz:labels", "--classes", "--out", "a.fit"]
    assert answer(given, capsys)["classes"] == ["0", "1"]
    np.savez("f.npz", labels=np.full(10, 2))
    assert main(["predict", "a.fit", "--x", "d.npz:new", "--y", "f.npz:labels"]) == 1
    assert "--y has the label '2', and the fit knows 0, 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["fit", "mlp", "--x", "d.npz:x"], "which targets?"),
        (["fit", "mlp", "--x", "d.npz:x", "--y", "d.npz:new_y"], "has 20 rows and --y has 10"),
        (["fit", "mlp", "--x", "d.npz:x", "--y", "d.npz:y", "--out", "d.npz"], "d.npz exists"),
        (["predict", "nothing", "--x", "d.npz:x"], "limitformer fit ... --out nothing writes one"),
    ],
)
def test_errors_say_what_to_do(here, arguments, match, capsys):
    assert main(arguments) in (1, 2)
    assert match in capsys.readouterr().err


def test_new_inputs_must_look_like_the_old_ones(here, capsys):
    with open("t.csv", "w") as file:
        file.write("a,b,y\n1,2,3\n2,3,5\n4,1,9\n")
    with open("u.csv", "w") as file:
        file.write("b,a\n1,2\n")
    assert main(["fit", "mlp", "--x", "t.csv", "--y", "t.csv:y", "--out", "a.fit"]) == 0
    assert main(["predict", "a.fit", "--x", "u.csv"]) == 1
    error = capsys.readouterr().err
    assert "--x has the columns b, a, and the fit was made of a, b; name them" in error
    assert main(["predict", "a.fit", "--x", "u.csv:a,b"]) == 0
    assert main(["predict", "a.fit", "--x", "d.npz:x"]) == 1
    assert (
        "the inputs have shape (20, 4), and the fit was made of (3, 2)" in capsys.readouterr().err
    )


def test_networks_that_cannot_be_fitted(here, capsys):
    heads = lf.Serial(lf.Dense(), lf.Attention(heads=2), lf.MeanPool(), lf.Dense())
    Path("heads.toml").write_text(heads.to_toml())
    Path("tokens.toml").write_text(lf.Serial(lf.Attention(scale="linear")).to_toml())
    np.savez("s.npz", x=np.random.default_rng(0).normal(size=(20, 3, 2)))
    data = ["--x", "s.npz", "--y", "d.npz:y"]
    assert main(["fit", "heads.toml", *data]) == 1
    assert 'set heads = "inf", or use lf.condition in Python' in capsys.readouterr().err
    assert main(["fit", "tokens.toml", *data]) == 1
    assert "end it with a readout such as lf.MeanPool()" in capsys.readouterr().err


def test_only_a_fit_is_ever_replaced(here, capsys):
    given = ["fit", "mlp", "--x", "d.npz:x", "--y", "d.npz:y", "--force"]
    for _ in range(2):
        assert main([*given, "--out", "a.fit"]) == 0
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    assert main([*given, "--out", "mine"]) == 1
    assert "mine is no fit, so it is left alone" in capsys.readouterr().err
    assert sorted(p.name for p in Path().iterdir()) == ["a.fit", "d.npz", "mine"]


def test_a_fit_comes_back_and_damage_is_seen(here):
    post = lf.condition(NET, here["x"], here["y"], noise=0.1)
    fit = Fit(post, Scaling.of(here["x"]), Scaling(np.array(2.0), np.array(3.0)), None, ("a", "b"))
    path = save(fit, Path("a.fit"))
    found = read_fit(path)
    assert found.columns == ("a", "b") and found.y.scale == 3.0
    np.testing.assert_array_equal(found.x.mean, fit.x.mean)
    (path / "fit.json").write_text("{}")
    with pytest.raises(ValueError, match=r"fit\.json is damaged .*fit again"):
        read_fit(path)
    (path / "fit.json").unlink()  # as Posterior.save alone writes it
    assert read_fit(path).x.scale == 1.0
