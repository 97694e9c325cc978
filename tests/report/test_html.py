"""Pages: escaped, self-contained, well-formed."""

from html.parser import HTMLParser

import numpy as np
import pytest

from limitformer.report import figures, html

HOSTILE = "<script>alert('x')</script> & \"quotes\" <img src=http://evil.test/a.png>"


class Outline(HTMLParser):
    """The tags and attributes that a browser would see."""

    VOID = frozenset({"meta", "img", "br", "hr", "link", "input"})

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.stack: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, f"</{tag}> closes {self.stack[-3:]}"
        self.stack.pop()

    def handle_data(self, data):
        self.text += data

    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}


def assert_self_contained(text: str) -> None:
    """Nothing in the page makes a browser ask another place for anything."""
    outline = Outline(text)
    assert not outline.stack
    assert not outline.names() & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in outline.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} has a script in {name}"
            if name in ("src", "href", "xlink:href", "srcset", "poster", "action"):
                assert value.startswith(("data:", "#")), f"{tag} {name}={value[:60]}"
    assert "http://" not in text and "https://" not in text
    assert "@import" not in text and "url(http" not in text


def example_page(*blocks) -> str:
    return html.page("Title", "A lead.", [html.section("One", *blocks)], generator="test")


def test_text_is_escaped_wherever_it_enters():
    image = figures.pixels(np.zeros((2, 2)), HOSTILE)
    page = html.page(
        HOSTILE,
        HOSTILE,
        [
            html.section(
                HOSTILE,
                HOSTILE,
                html.equation(HOSTILE),
                html.code(HOSTILE),
                html.table((HOSTILE,), [(HOSTILE,)], HOSTILE),
                html.facts({HOSTILE: HOSTILE}),
                html.figure(image, HOSTILE),
                html.gallery([html.card(image, HOSTILE, HOSTILE, True)]),
            )
        ],
        generator=HOSTILE,
        footer=HOSTILE,
    )
    outline = Outline(page)
    assert "script" not in outline.names()
    assert all(a.get("src", "data:").startswith("data:") for _, a in outline.tags)
    # Every text is there, twice in the page's head and once as a link to its section.
    assert outline.text.count("<script>alert('x')</script>") == 17


def test_a_page_is_self_contained_and_has_what_a_phone_needs():
    page = example_page(
        "Some `code`, *K*_{ab} and 10^{-3}.",
        html.table(("a", "b"), [("x", 1), ("y", 2.5)], "Caption.", "lr"),
        html.figure(figures.drawing(lambda ax: ax.plot([0, 1]), "line", "a line"), "A line."),
    )
    assert_self_contained(page)
    assert page.startswith("<!DOCTYPE html>")
    assert 'name="viewport"' in page and 'charset="utf-8"' in page
    assert "prefers-color-scheme: dark" in page and "@media print" in page


def test_sections_are_linked():
    outline = Outline(example_page("text"))
    links = [a["href"] for tag, a in outline.tags if tag == "a"]
    ids = [a["id"] for _, a in outline.tags if "id" in a]
    assert links == ["#one"] and "one" in ids and len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*K*_{ab}′", "<em>K</em><sub>ab</sub>′"),
        ("`a*b*c`", "<code>a<em>b</em>c</code>"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("10^{-3} < 1", "10<sup>-3</sup> &lt; 1"),
        ("d*f*(*x*)", "d<em>f</em>(<em>x</em>)"),
    ],
)
def test_prose(text, expected):
    assert html.prose(text) == expected


def test_markup_is_not_escaped_twice():
    assert html.escape(html.escape("<")) == "&lt;"
    assert html.prose(html.Markup("<b>")) == "<b>"


def test_a_table_with_a_short_row_says_which():
    with pytest.raises(ValueError, match=r"1 cells and the table 2 columns: \['x'\]"):
        html.table(("a", "b"), [("x",)])


def test_drawings_take_the_colour_of_the_page_and_share_no_names():
    one, two = (
        figures.drawing(lambda ax: ax.imshow([[0, 1]]), name, "an <image>") for name in ("a", "b")
    )
    assert "currentColor" in one and "#010203" not in one
    assert "an &lt;image&gt;" in one and 'role="img"' in one
    ids = [{a["id"] for _, a in Outline(svg).tags if "id" in a} for svg in (one, two)]
    assert not ids[0] & ids[1]
    assert_self_contained(example_page(html.figure(one), html.figure(two)))


def test_pixels_are_a_png():
    import base64
    import io
    import re

    image = pytest.importorskip("PIL.Image")
    values = np.array([[0.0, 0.5, 1.0], [1.0, 2.0, -1.0]])
    data = re.search(r"base64,([^\"]+)", figures.pixels(values, "x"))
    assert data is not None
    read = np.asarray(image.open(io.BytesIO(base64.b64decode(data.group(1)))))
    np.testing.assert_array_equal(read, [[0, 128, 255], [255, 255, 0]])


def test_pixels_refuse_other_ranks():
    with pytest.raises(ValueError, match=r"\(height, width\), got shape \(2, 2, 1\)"):
        figures.pixels(np.zeros((2, 2, 1)), "x")
