"""`kernel`, `law`, `critical`, `show`, `doctor`, `gram compute` against the library."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import limitformer as lf
from limitformer.cli import main
from limitformer.cli.inputs import inputs, network

ATTENTION = lf.Serial(lf.Dense(), lf.Attention(), lf.MeanPool(), lf.Dense())


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 2))
    mask = np.arange(4) < np.array([[4], [2], [3]])
    np.savez("d.npz", x=x, mask=mask, other=rng.normal(size=(2, 4, 2)))
    (tmp_path / "net.toml").write_text(ATTENTION.to_toml())
    return {"x": x, "mask": mask}


def answer(arguments, capsys):
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)["result"]


def test_kernel_with_mask_draws_and_seed(here, capsys):
    given = ["kernel", "net.toml", "--x", "d.npz:x", "--mask", "d.npz:mask", "--draws", "64"]
    given += ["--kinds", "nngp"]
    for seed, options in (("5", {"key": jax.random.key(5)}), ("0", {})):
        found = answer([*given, "--seed", seed], capsys)["nngp"]
        k = ATTENTION.kernel(here["x"], x_mask=here["mask"], draws=64, kinds="nngp", **options)
        np.testing.assert_array_equal(found["values"], k.nngp)
        np.testing.assert_array_equal(found["sem"], k.nngp_sem)


def test_kernel_against_other_inputs(here, capsys):
    Path("linear.toml").write_text(lf.Serial(lf.Dense(), lf.MeanPool()).to_toml())
    given = ["kernel", "linear.toml", "--x", "d.npz:x", "--against", "d.npz:other"]
    found = answer([*given, "--kinds", "nngp"], capsys)
    with np.load("d.npz") as file:
        wanted = file["other"].mean(1) @ file["x"].mean(1).T / 2
    np.testing.assert_allclose(found["nngp"]["values"], wanted, rtol=1e-12)
    assert found["nngp"]["mean_of_diagonal"] is None


def test_kernel_into_a_file(here, capsys):
    given = ["kernel", "mlp", "--data", "wine", "--rows", "3", "--out"]
    found = answer([*given, "K.npz"], capsys)
    assert "values" not in found["nngp"] and found["out"] == "K.npz"
    with np.load("K.npz") as file:
        k = network("mlp").kernel(inputs("wine", 3, None).x)
        np.testing.assert_array_equal(file["nngp"], k.nngp)
        np.testing.assert_array_equal(file["ntk"], k.ntk)
        assert file.files == ["nngp", "ntk"]
    assert main([*given, "K.npz"]) == 1
    assert "replace it with --force" in capsys.readouterr().err


def test_law_is_that_of_the_library(here, capsys):
    given = ["law", "net.toml", "--heads", "1", "--x", "d.npz:x", "--draws", "50", "--seed", "3"]
    found = answer([*given, "--out", "v.npy"], capsys)
    law = ATTENTION.with_heads(1).law(here["x"], key=jax.random.key(3), draws=50)
    np.testing.assert_allclose(found["variance"]["value"], law.variances.mean(0))
    np.testing.assert_allclose(found["excess_kurtosis"]["value"], law.kurtosis.value)
    np.testing.assert_array_equal(np.load("v.npy"), law.variances)
    assert np.all(np.array(found["tail"]["value"]) > 0)
    assert main(["law", "net.toml", "--x", "d.npz:x"]) == 1
    assert "say how many: --heads 4" in capsys.readouterr().err


def test_critical_finds_where_the_metric_meets_its_target(here, capsys):
    net = lf.Repeat(lf.Residual(lf.Attention(scale="linear"), branch=0.5), 6)
    Path("deep.toml").write_text(net.to_toml())
    found = answer(["critical", "deep.toml", "--x", "d.npz:x", "--target", "0.5"], capsys)
    at = lf.Repeat(lf.Residual(lf.Attention(scale="linear"), branch=found["value"]), 6)
    assert lf.depth_profile(at, here["x"])["cosine"][-1] == pytest.approx(0.5, abs=1e-3)
    assert main(["critical", "deep.toml", "--x", "d.npz:x", "--target", "7"]) == 1
    assert "widen the range or change the target" in capsys.readouterr().err


def test_show_writes_pictures_and_networks(here, capsys):
    given = ["show", "vit", "--shape", "8,8,1"]
    assert main([*given, "--picture", "a.svg", "--toml", "b.toml"]) == 0
    text = capsys.readouterr().out
    assert "16 × 16" in text and "number" in text and "    Attention" in text
    assert "All 3 pairs" in text
    assert repr(lf.load("b.toml")) == repr(network("vit"))
    assert "<svg" in Path("a.svg").read_text()
    found = answer(given, capsys)
    kernel = {layer["path"]: layer["kernel"] for layer in found["layers"]}
    assert kernel["0.Conv"] == [16, 16] and kernel["5.Dense"] == []
    assert sum(layer["share"] or 0 for layer in found["layers"]) == pytest.approx(1)
    assert lf.files.loads(found["toml"]).to_toml() == network("vit").to_toml()
    assert main([*given, "--picture", "a.svg"]) == 1
    assert main([*given, "--picture", "a.gif"]) == 1
    assert "ends in .svg, .png, .pdf" in capsys.readouterr().err
    assert main(["show", "vit", "--shape", "8", "--data", "wine"]) == 2


def test_show_without_inputs_and_with_token_ids(capsys):
    assert main(["show", "mlp"]) == 0
    assert "flops" not in capsys.readouterr().out
    text = lf.Serial(lf.Embed(), lf.MeanPool(), lf.Dense()).to_toml()
    found = lf.files.loads(text)
    assert repr(found) == "Serial(Embed(), MeanPool(), Dense())"


def test_built_in_data_is_divided_once(here):
    train = inputs("wine", 130, None)
    test = inputs("wine", 40, None, part="test")
    together = np.concatenate([train.x, test.x])
    assert len(np.unique(together, axis=0)) == 170
    np.testing.assert_array_equal(inputs("wine", 20, None).x, train.x[:20])
    assert train.labels and set(train.y) == {"class_0", "class_1", "class_2"}
    with pytest.raises(ValueError, match="wine has 44 inputs held out"):
        inputs("wine", 45, None, part="test")


def test_masks_and_rows(here, capsys):
    np.savez("m.npz", mask=np.full((3, 4), 2))
    assert main(["kernel", "net.toml", "--x", "d.npz:x", "--mask", "m.npz"]) == 1
    assert "expected True or False" in capsys.readouterr().err
    found = inputs(None, 2, "d.npz:x", mask="d.npz:mask")
    assert found.x.shape == (2, 4, 2) and found.mask.dtype == bool and len(found.mask) == 2


def test_doctor_finds_packages_by_their_own_names():
    from limitformer.cli import doctor

    assert doctor._there("scikit-learn")
    assert doctor._there("dask-jobqueue")  # its module is dask_jobqueue
    assert not doctor._there("no-such-package")


def test_doctor_says_what_to_install(monkeypatch, capsys):
    from limitformer.cli import doctor

    monkeypatch.setattr(doctor, "_there", lambda package: package != "matplotlib")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert 'extra plot: pip install "limitformer[plot]"' in out
    assert "exact to 12 digits" in out


def test_gram_compute_is_the_kernel_and_resumes(here, capsys):
    given = ["gram", "compute", "mlp", "--data", "wine", "--rows", "5", "--store", "K.zarr"]
    found = answer([*given, "--tile", "2"], capsys)
    assert found["complete"] and found["total"] == 6
    K = lf.tiles.open_gram("K.zarr")
    k = network("mlp").kernel(inputs("wine", 5, None).x)
    np.testing.assert_allclose(np.asarray(K.nngp), k.nngp, rtol=1e-12)
    assert answer([*given, "--tile", "2"], capsys)["done"] == 6
    assert main([*given[:-1], "K.zarr", "--tile", "3"]) == 1
    assert "K.zarr" in capsys.readouterr().err
