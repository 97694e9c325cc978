"""Docstrings of this project into reStructuredText.

They are plain text: sections (`Args:`, `Returns:`, ...), equations as indented lines, code in
single backticks. Nothing else is markup, so that every other sign stands for itself.
"""

import re
import textwrap

SECTIONS = {
    "Args": "Arguments",
    "Attributes": "Attributes",
    "Returns": "Returns",
    "Yields": "Yields",
    "Raises": "Raises",
    "Warns": "Warns",
    "Example": "Example",
    "Examples": "Example",
    "Note": "Note",
    "Reference": "Reference",
    "References": "Reference",
}
HEADING = re.compile(rf"({'|'.join(SECTIONS)}):\s*(.*)")
BULLET = re.compile(r"(\s*)([-*] |\d+\. )")
ITEM = re.compile(r"(?P<names>`?[\w*]+`?(?:, `?[\w*]+`?)*(?: \([^)]*\))?):(?:\s+(?P<text>.*))?$")


def inline(text: str) -> str:
    """One line: code spans become literals, and everything else is escaped."""
    parts = re.split(r"(``?[^`]+``?)", text)
    return "".join(
        f"``{part.strip('`').strip()}``" if part.startswith("`") else _escape(part)
        for part in parts
    )


def _escape(text: str) -> str:
    return re.sub(r"([\\*|_`])", r"\\\1", text)


def prose(lines: list[str]) -> list[str]:
    """Paragraphs, lists, doctests, and indented lines as literal blocks."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith(">>>"):
            end = at
            while end < len(lines) and lines[end].strip():
                end += 1
            out += ["", *textwrap.dedent("\n".join(lines[at:end])).splitlines(), ""]
        elif BULLET.match(line):
            end = at + 1
            while end < len(lines) and (lines[end].startswith(" ") or BULLET.match(lines[end])):
                end += 1
            for item in lines[at:end]:
                found = BULLET.match(item)
                text = inline(item[found.end() :] if found else item.strip())
                out += ["", f"- {text}"] if found else [f"  {text}"]
            out.append("")
        elif line.startswith(" "):
            end = at
            while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
                end += 1
            block = textwrap.dedent("\n".join(lines[at:end])).strip("\n").splitlines()
            out += ["", ".. code-block:: text", "   :class: equation", ""]
            out += [f"   {row}" for row in block] + [""]
        else:
            end = at + 1
            out.append(inline(line))
        at = end
    return out


def items(lines: list[str]) -> list[str]:
    """`name: text`, one per argument, as a definition list."""
    if not any(ITEM.match(line) for line in lines):
        return prose(lines)
    out: list[str] = []
    for line in lines:
        found = None if line.startswith(" ") else ITEM.match(line)
        if found:
            names = ", ".join(f"``{name.strip(' `')}``" for name in found["names"].split(","))
            out += ["", names, f"   {inline(found['text'] or '')}"]
        elif line.strip():
            out.append("   " + inline(line.strip()))
    return [*out, ""]


def convert(lines: list[str]) -> list[str]:
    """A whole docstring."""
    out: list[str] = []
    at, start = 0, 0
    while at <= len(lines):
        found = HEADING.fullmatch(lines[at]) if at < len(lines) else None
        if at < len(lines) and not (found and (not found[2] or found[1].startswith("Ref"))):
            at += 1
            continue
        out += prose(lines[start:at])
        if at == len(lines):
            break
        end = at + 1
        while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
            end += 1
        body = textwrap.dedent("\n".join(lines[at + 1 : end])).splitlines()
        listed = found[1] in ("Args", "Attributes", "Raises", "Warns")
        text = items(body) if listed else prose(([found[2]] if found[2] else []) + body)
        out += ["", f".. rubric:: {SECTIONS[found[1]]}", "", *text, ""]
        at = start = end
    return out


def process(app, what, name, obj, options, lines):
    """Replace the lines that autodoc found."""
    lines[:] = convert(list(lines))


def setup(app):
    """Connect to autodoc."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
