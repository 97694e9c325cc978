import dataclasses
import json
import math

import pytest

from limitformer.reproduce import published
from limitformer.reproduce.tables import Reproduction, Row

SEEN = Row("residual", 4, "nngp", 1000, 0.557, 0.59, 1e-3, 0.58, 0.6, 1e-2, 0.558, 4000)
UNSEEN = Row("flatten", 4, "ntk", 0, math.nan, math.nan, 0.1, 0.41, math.nan, 0.1)


def result(compared="fixed"):
    return Reproduction("A table", (SEEN, UNSEEN), {"size": 32}, 12.3, ("a note",), compared)


def test_the_difference_has_the_errors_of_both():
    difference, error = SEEN.difference(SEEN.fixed)
    assert difference == pytest.approx(-0.001)
    assert error == pytest.approx(math.hypot(math.sqrt(0.557 * 0.443 / 1000), 0.00785), rel=1e-3)
    assert SEEN.fixed_error == pytest.approx(0.0157, abs=1e-4)
    assert SEEN.chosen_error == pytest.approx(0.0156, abs=1e-4)
    assert math.isnan(UNSEEN.fixed_error)
    assert math.isnan(UNSEEN.difference(0.5)[0])


def test_text_and_markdown():
    line = result().table().splitlines()[2]
    for part in (
        "residual",
        "NNGP",
        "1000",
        "0.558",
        "0.557 ± 0.016",
        "-0.001 ± 0.018",
        "0.590 ± 0.016",
    ):
        assert part in line
    assert "nan" not in result().table()
    page = result().markdown()
    assert page.startswith("# A table\n\n| network | convs | kernel |")
    assert "- size: 32\n- time: 12 s" in page
    assert "- a note" in page
    assert "arXiv 2006.10540" in page
    assert "0.600 ± 0.015 | 1e-02 | +0.042" in result("best").markdown()


def test_json_and_files(tmp_path):
    content = json.loads(result().to_json())
    assert content["rows"][0]["fixed"] == 0.557
    assert content["rows"][1]["fixed"] is None
    result().write(tmp_path / "new", "table")
    assert (tmp_path / "new" / "table.md").read_text(encoding="utf-8") == result().markdown()
    assert json.loads((tmp_path / "new" / "table.json").read_text()) == content


def test_runs_of_one_table_become_one(tmp_path):
    result().write(tmp_path, "four")
    read = Reproduction.read(tmp_path / "four.json")
    assert read.markdown() == result().markdown()
    deep = dataclasses.replace(SEEN, depth=8, n=500)
    other = Reproduction("A table", (deep,), {"size": 32, "seed": 1}, 2.0, ("a note", "more"))
    both = Reproduction.merge([other, read])
    assert [row.depth for row in both.rows] == [4, 4, 8]
    assert both.settings == {"size": "32", "seed": "1; -"}
    assert both.notes == ("a note", "more")
    assert both.seconds == pytest.approx(14.3)
    assert "| residual | 8 | NNGP | 500 |" in both.markdown()
    with pytest.raises(ValueError, match="runs of different tables"):
        Reproduction.merge([read, dataclasses.replace(read, title="Another")])


def test_published_numbers():
    assert published.CIFAR_DEPTHS["residual"] == {4: 0.558, 8: 0.561, 16: 0.552, 32: 0.526}
    assert {tuple(v) for v in published.CIFAR_DEPTHS.values()} == {(4, 8, 16, 32)}
    assert published.CIFAR_FULL["structured"] == {"nngp": 0.8055, "ntk": 0.7993}
    assert published.IMDB["structured"] == {"nngp": 0.8088, "ntk": 0.8106}
    assert published.IMDB_FULL["mean of words"] == {"nngp": 0.8498}
