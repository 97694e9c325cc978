"""The scan for line numbers sees what tomllib sees."""

import tomllib

from hypothesis import given
from tests.files.test_round_trip import networks

from limitformer.files import to_toml
from limitformer.files.lines import lines_of

DOCUMENT = '''# comment [[x]] = {
a = 1 # [
"quoted \\" key" = 'lit"eral'
b.c . "d e" = """
two ] lines \\""" # not a comment
"""
dates = [1979-05-27 07:32:00, 1979-05-27, 07:32:00]
text = ["]", '}', "#", """a"b""", \'\'\'c'd\'\'\', """e"""""]
empty = [[], {}, [ ], { }]

[table . 'x.y']
k = { i = [ # inside
    { j = 1 }, 2,   # after

    [3, [4]],
  ], "m" = -1e+5 }
[[list]]
[[list.inner]]
p = +inf
[[list.inner]]
p = 0x1F
[list.inner.deep]
q = true
[[list]]
inner = [{p = 3}]
'''


def paths(value, at=()):
    """Every key and list item with its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*at, key)
        if isinstance(item, (dict, list)):
            yield from paths(item, (*at, key))


def test_document():
    found = lines_of(DOCUMENT)
    assert set(found) == set(paths(tomllib.loads(DOCUMENT)))
    lines = DOCUMENT.split("\n")
    for path, needle in [
        (("a",), "a = 1"),
        (("b", "c", "d e"), "b.c"),
        (("dates", 2), "dates"),
        (("table", "x.y", "k", "i", 0, "j"), "{ j = 1 }"),
        (("table", "x.y", "k", "i", 2, 1, 0), "[3, [4]]"),
        (("table", "x.y", "k", "m"), '"m" = -1e+5'),
        (("list", 0, "inner", 1, "p"), "p = 0x1F"),
        (("list", 0, "inner", 1, "deep", "q"), "q = true"),
        (("list", 1, "inner", 0, "p"), "inner = [{p"),
    ]:
        assert needle in lines[found[path] - 1], path
    assert lines_of(DOCUMENT.replace("\n", "\r\n")) == found


@given(networks)
def test_networks(made):
    text = to_toml(made())
    found = lines_of(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    lines = text.split("\n")
    for path, line in found.items():
        if isinstance(path[-1], str) and path != ("layers",):
            assert f"{path[-1]} = " in lines[line - 1]
