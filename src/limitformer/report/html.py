"""A small builder for self-contained HTML pages.

Every function returns `Markup`; plain strings are escaped wherever they enter, so nothing that a
user or a dataset says can become HTML. A page refers to nothing outside itself: figures are inline
SVG or data URIs, and there is no script.
"""

from __future__ import annotations

import html as _html
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any


class Markup(str):
    """A piece of HTML; what is not `Markup` is text and gets escaped."""

    __slots__ = ()


def escape(value: Any) -> Markup:
    """Text as HTML; `Markup` stays as it is.

    Example:
        >>> escape("a < b & c")
        'a &lt; b &amp; c'
    """
    return value if isinstance(value, Markup) else Markup(_html.escape(str(value)))


_INLINE = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*([^*\s](?:[^*]*[^*\s])?)\*"), r"<em>\1</em>"),
    (re.compile(r"_\{([^{}]*)\}"), r"<sub>\1</sub>"),
    (re.compile(r"\^\{([^{}]*)\}"), r"<sup>\1</sup>"),
)


def prose(text: str) -> Markup:
    """Escaped text with four marks: `code`, *emphasis*, index_{i}, power^{2}.

    Example:
        >>> prose("*K*_{ab} < 10^{-3}")
        '<em>K</em><sub>ab</sub> &lt; 10<sup>-3</sup>'
    """
    if isinstance(text, Markup):
        return text
    result = str(escape(text))
    for pattern, replacement in _INLINE:
        result = pattern.sub(replacement, result)
    return Markup(result)


def paragraph(text: str) -> Markup:
    """A paragraph of prose."""
    return Markup(f"<p>{prose(text)}</p>")


def equation(text: str) -> Markup:
    """A displayed equation, written as prose."""
    return Markup(f'<p class="equation">{prose(text)}</p>')


def code(text: str) -> Markup:
    """A block of code, or a command."""
    return Markup(f"<pre><code>{escape(text)}</code></pre>")


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", columns: str = ""
) -> Markup:
    """A table that scrolls sideways where the screen is narrow.

    Args:
        head: column titles, as prose.
        rows: cells; strings are prose, everything else is text. The first cell names its row.
        caption: a sentence above the table, as prose.
        columns: one letter per column, `l` for text, `r` for numbers (aligned right), `e` for
            equations (never broken); columns that are not said are text.

    Raises:
        ValueError: a row has not as many cells as there are columns.
    """
    kinds = [{"r": ' class="number"', "e": ' class="formula"'}.get(c, "") for c in columns]
    kinds += [""] * (len(head) - len(kinds))

    def line(cells: Sequence[Any], tag: str) -> str:
        if len(cells) != len(head):
            raise ValueError(
                f"a row has {len(cells)} cells and the table {len(head)} columns: {list(cells)!r}"
            )
        parts = []
        for index, cell in enumerate(cells):
            name = "th" if tag == "th" or index == 0 else "td"
            scope = "" if name == "td" else f' scope="{"col" if tag == "th" else "row"}"'
            text = prose(cell) if isinstance(cell, str) else escape(cell)
            parts.append(f"<{name}{scope}{kinds[index]}>{text}</{name}>")
        return f"<tr>{''.join(parts)}</tr>"

    body = "\n".join(line(list(row), "td") for row in rows)
    title = f"<figcaption>{prose(caption)}</figcaption>" if caption else ""
    return Markup(
        f'<figure class="table">{title}<div class="scroll" tabindex="0"><table>'
        f"<thead>{line(list(head), 'th')}</thead><tbody>\n{body}\n</tbody></table></div></figure>"
    )


def facts(pairs: Mapping[str, Any]) -> Markup:
    """Large numbers with their names, as prose: what a reader sees first."""
    items = "".join(
        f"<div><dd>{prose(str(value))}</dd><dt>{prose(name)}</dt></div>"
        for name, value in pairs.items()
    )
    return Markup(f'<dl class="facts">{items}</dl>')


def figure(image: Markup, caption: str = "", narrow: bool = False) -> Markup:
    """An image (see `limitformer.report.figures`) with a caption in prose."""
    text = f"<figcaption>{prose(caption)}</figcaption>" if caption else ""
    kind = ' class="narrow"' if narrow else ""
    return Markup(f"<figure{kind}>{escape(image)}{text}</figure>")


def gallery(items: Iterable[Markup], smallest: int = 260) -> Markup:
    """Blocks side by side, as many as fit with `smallest` pixels each."""
    inside = "\n".join(escape(item) for item in items)
    return Markup(f'<div class="gallery" style="--smallest: {int(smallest)}px">{inside}</div>')


def card(image: Markup, title: str, text: str, good: bool | None = None) -> Markup:
    """A small picture with two lines of text; `good` marks it as right or wrong."""
    kind = "" if good is None else " good" if good else " bad"
    return Markup(
        f'<div class="card{kind}">{escape(image)}'
        f"<div><strong>{prose(title)}</strong><span>{prose(text)}</span></div></div>"
    )


def section(title: str, *blocks: Markup | str) -> Markup:
    """A titled part of a page; plain strings become paragraphs."""
    inside = "\n".join(
        block if isinstance(block, Markup) else paragraph(block) for block in blocks if block
    )
    name = _anchor(title)
    return Markup(
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{prose(title)}</h2>\n{inside}\n</section>'
    )


def page(
    title: str, lead: str, sections: Iterable[Markup], generator: str, footer: str = ""
) -> str:
    """A whole page, self-contained, for screens light or dark, phones and paper.

    Args:
        title: of the page, as plain text.
        lead: a paragraph under the title, as prose, or `Markup`.
        sections: made by `section`.
        generator: the program that makes the page; it may replace its own pages later
            (`limitformer.report.files`).
        footer: a last line, as prose.
    """
    parts = [escape(part) for part in sections]
    links = "".join(
        f'<a href="#{name}">{text}</a>'
        for part in parts
        for name, text in re.findall(r'<h2 id="([\w-]+)-title">(.*?)</h2>', part)
    )
    style = resources.files("limitformer.report").joinpath("page.css").read_text("utf-8")
    intro = lead if isinstance(lead, Markup) else Markup(f'<p class="lead">{prose(lead)}</p>')
    body = "\n\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{generator_tag(generator)}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{intro}
<nav aria-label="Sections">{links}</nav>
</header>
<main>
{body}
</main>
<footer><p>{prose(footer)}</p></footer>
</body>
</html>
"""


def generator_tag(generator: str) -> str:
    """The tag by which a program recognises the pages that it made."""
    return f'<meta name="generator" content="{escape(generator)}">'


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
