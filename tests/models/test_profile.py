"""Profiles of real models, and the page about them."""

import numpy as np
import pytest
from tests.models import tiny

from limitformer.depth import dobrushin, mean_cosine, relative_residual
from limitformer.models import attention_profile, forward, rank_report, steps, stream_profile
from limitformer.models.profile import profile_arrays


def test_streams():
    model, x = tiny.model(), tiny.tokens()
    found = stream_profile(model, x)
    assert found.layers == ("embedding", "layer 0", "layer 1", "layer 2", "final norm")
    assert found.mean("cosine")[-1] == mean_cosine(forward(model, x))
    layers = [s.after for s in steps(model, x) if s.name in ("layer 0 MLP", "layer 1 MLP")]
    assert np.allclose(found.mean("residual")[1:3], [relative_residual(h) for h in layers])


def test_several_inputs_of_different_lengths():
    model = tiny.model("post", mlp=False)
    both = stream_profile(model, [tiny.tokens(4), tiny.tokens(7)])
    assert both.layers == ("embedding", *(f"layer {i} attention" for i in range(3)))
    each = [stream_profile(model, tiny.tokens(n)).mean("cosine") for n in (4, 7)]
    assert np.allclose(both.mean("cosine"), np.mean(each, axis=0))


def test_a_list_of_ids_is_one_input():
    model = tiny.model()
    assert stream_profile(model, [1, 2, 3]).values["cosine"].shape == (1, 1, 5)


def test_arrays_from_anywhere():
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(2, 5, 8)), rng.normal(size=(2, 5, 3))]
    found = profile_arrays(layers)
    expected = np.mean([mean_cosine(layers[1][i]) for i in range(2)])
    assert found.mean("cosine")[1] == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"one batch and length for all layers, got \[\(2, 5, 8\)"):
        profile_arrays([layers[0], np.ones((2, 4, 8))])


def test_attention():
    model, x = tiny.model(), tiny.tokens()
    found = attention_profile(model, x)
    maps = [s.A for s in steps(model, x) if s.A is not None]
    assert found.dobrushin[1][0] == dobrushin(maps[1][0])
    assert all(e.min() >= 0 and e.max() <= np.log(5) for e in found.entropy)


def test_report(tmp_path):
    out = tmp_path / "rank.html"
    found = rank_report(tiny.model("post"), tiny.tokens(), out)
    page = out.read_text()
    assert "Rank of tiny post" in page
    assert f"{found.paths.gap:.1e} relative" in page
    assert found.verdict.split(".")[0] in page
    assert page.count("<svg") == 5
    assert "The limit is not shown: the model has no configuration." in page
    assert found.initial.values["cosine"].shape[0] == 4 and found.initial.estimated
    rank_report(tiny.model("post"), tiny.tokens(), out)  # its own page may be replaced
    out.write_text("a letter")
    with pytest.raises(FileExistsError, match="left alone"):
        rank_report(tiny.model("post"), tiny.tokens(), out)


@pytest.mark.parametrize(
    ("scale", "text"), [(0.0, "No collapse"), (1000.0, "The tokens have collapsed")]
)
def test_verdict(scale, text):
    """Uniform attention drowns the stream, or adds nothing to it."""
    model = tiny.model(norm="none", mlp=False)
    for s in model.sublayers:
        s.branch.W_Q[:], s.branch.b_Q[:], s.branch.b_V[:], s.branch.b_O[:] = 0, 0, 0, 0
        s.branch.W_O[:] *= scale
    verdict = rank_report(model, tiny.tokens()).verdict
    assert verdict.startswith(text)
    # queries are zero, so all maps are uniform
    assert "6 of 6 heads attend nearly alike from all tokens (layer.head 0.0, 0.1" in verdict
    if scale == 0:
        assert (
            "Paths through at most 0 of 3 attention layers give the output with an error of 0.0%"
            in verdict
        )
