"""Query strings: what they may say, and the messages where they say something else."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limitformer.explore.settings import CONTROLS, BadSettings, Choice, Range, Settings, read


def values(control):
    kind = control.kind
    if isinstance(kind, Choice):
        return st.sampled_from(list(kind.names))
    count = round((kind.high - kind.low) / kind.step)
    whole = int if kind.whole else float
    return st.integers(0, count).map(lambda i: whole(round(kind.low + i * kind.step, 9)))


@given(st.fixed_dictionaries({name: values(control) for name, control in CONTROLS.items()}))
def test_a_permalink_gives_the_settings_back(point):
    s = Settings(**point)
    assert read(s.query) == s


def test_defaults_are_the_empty_query_and_lie_in_range():
    assert Settings().query == ""
    assert read("") == Settings()
    assert [f.name for f in dataclasses.fields(Settings)] == list(CONTROLS)
    for name, control in CONTROLS.items():
        assert control.kind.read(str(getattr(Settings(), name))) == control.default


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("tokens=1000000000", "tokens='1000000000': expected a whole number from 2 to 64"),
        ("tokens=4.5", "tokens='4.5': expected a whole number from 2 to 64"),
        ("depth=-1", "depth='-1': expected a whole number from 1 to 24"),
        ("depth=" + "9" * 5000, "expected a whole number from 1 to 24"),
        ("qk_std=nan", "qk_std='nan': expected a number from 0 to 4"),
        ("qk_std=1e400", "qk_std='1e400': expected a number from 0 to 4"),
        ("skip=", "skip='': expected a number from 0 to 1.5"),
        ("heads=5", "heads='5': expected one of 1, 2, 3, 4, 6, 8, 12, 16, inf"),
        ("norm=<script>", "norm='<script>': expected one of pre, post, none"),
        ("colour=red", "'colour' is no setting; expected heads, qk_std, "),
        ("heads=2&heads=4", "heads is given twice"),
        ("tokens=%ff", "cannot be read"),
        ("&".join(["heads=2"] * 100), "cannot be read"),
        ("x" * 10_000 + "=1", "… is no setting"),
    ],
)
def test_what_is_no_setting_says_what_would_be(query, text):
    with pytest.raises(BadSettings) as error:
        read(query)
    assert text.strip("… ") in str(error.value)
    assert len(str(error.value)) < 300


def test_ranges_say_so():
    assert str(Range(0.0, 2.0, 0.5)) == "a number from 0 to 2"
