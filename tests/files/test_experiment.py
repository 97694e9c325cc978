"""Experiment files: sections, keys, paths, lines. The commands that read them: tests/cli."""

import pytest

import limitformer as lf
from limitformer.files import NetworkFileError
from limitformer.files.experiment import Key, read_experiment

SCHEMA = {
    "data": {"x": Key((str,), path=True), "rows": Key((int,))},
    "fit": {"noise": Key((str, float)), "kind": Key((str,), ("a", "b")), "fast": Key((bool,))},
}
TEXT = """limitformer = 1
[data]
x = "d.npz:x"
rows = 3
[fit]
noise = 1
kind = "a"
fast = true
[[network.layers]]
type = "Dense"
w_std = 2.0
"""


def test_settings_come_as_they_are_and_paths_from_the_folder(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(TEXT)
    found = read_experiment(path, SCHEMA)
    assert found.sections == {
        "data": {"x": str(tmp_path / "d.npz:x"), "rows": 3},
        "fit": {"noise": 1, "kind": "a", "fast": True},
    }
    assert found.network == str(path)
    assert repr(lf.load(path)) == "Serial(Dense(2.0))"
    path.write_text("limitformer = 1")
    assert read_experiment(path, SCHEMA).network is None


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("rows = 3", "rows = 3.5", r"e\.toml:4: data\.rows: expected a whole number, got 3\.5"),
        ("rows = 3", "rows = true", r"e\.toml:4: data\.rows: expected a whole number, got true"),
        ("noise = 1", "noise = true", r"e\.toml:6: fit\.noise: expected a number or a string"),
        ('"a"', '"c"', r'e\.toml:7: fit\.kind: expected "a" or "b", got "c"'),
        (
            "fast",
            "fats",
            r'e\.toml:8: fit\.fats: unknown key, did you mean "fast"\?; \[fit\] takes',
        ),
        (
            "[fit]",
            "[law]",
            r"e\.toml:5: law: unknown section; an experiment has network, data, fit",
        ),
        ("limitformer = 1", "", "expected the version of the format first"),
        ("[data]", "fit = 3\n[data]", r"fit"),
    ],
)
def test_errors_have_their_line(tmp_path, old, new, match):
    path = tmp_path / "e.toml"
    text = TEXT.replace(old, new, 1)
    path.write_text(text if "fit = 3" not in text else text.split("[fit]")[0])
    with pytest.raises(NetworkFileError, match=match):
        read_experiment(path, SCHEMA)


def test_a_network_section_is_a_file_or_layers(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text('limitformer = 1\n[network]\nfile = "net.toml"\n')
    assert read_experiment(path, SCHEMA).network == str(tmp_path / "net.toml")
    path.write_text('limitformer = 1\nnetwork = "net.toml"\n')
    with pytest.raises(NetworkFileError, match=r"e\.toml:2: network: expected a table.*file = "):
        read_experiment(path, SCHEMA)
    path.write_text("limitformer = 1\n[network]\nwidth = 3\n")
    with pytest.raises(NetworkFileError, match=r"expected layers: \[\[network\.layers\]\]"):
        lf.load(path)
