"""Figures for pages: matplotlib drawings and pixel images that need no file of their own."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from limitformer.extras import optional
from limitformer.report.html import Markup, escape

# A colour that no plot uses: it is drawn in the page's own text colour, light or dark.
_INK = "#010203"

_STYLE = {
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": _INK,
    "grid.alpha": 0.13,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def drawing(
    plot: Callable[[Any], Any], name: str, description: str, size: tuple[float, float] = (4.6, 3.4)
) -> Markup:
    """A plot as inline SVG, in the colours of the page around it.

    Args:
        plot: draws on the matplotlib Axes that it is given.
        name: unique in the page, since the parts of a drawing have names.
        description: what it shows, for those who cannot see it.
        size: width and height in inches; text is readable on a phone up to a width of five.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    matplotlib = optional("matplotlib")
    figures = optional("matplotlib.figure")
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        canvas = figures.Figure(figsize=size, layout="constrained")
        plot(canvas.subplots())
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return Markup(_inline(buffer.getvalue(), name, description))


def _inline(svg: str, name: str, description: str) -> str:
    """A matplotlib SVG file as an element of a page."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(?::\w+)?="[^"]*"', "", svg)
    svg = svg.replace(_INK, "currentColor")
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1; font-family: inherit", svg)
    # Names such as "axes_1" are the same in every drawing, and nothing refers to them.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'\s(width|height)="[\d.]+pt"', "", svg, count=2)
    label = f' role="img" aria-label="{escape(description)}" data-name="{escape(name)}"'
    return svg.replace("<svg", f"<svg{label}", 1)


def pixels(values: np.ndarray, description: str, low: float = 0.0, high: float = 1.0) -> Markup:
    """A small grey image, one pixel per value: `low` is black, `high` white.

    Args:
        values: (height, width).
        description: what it shows, for those who cannot see it.
    """
    if values.ndim != 2:
        raise ValueError(f"values must be (height, width), got shape {values.shape}")
    grey = np.clip((values - low) / (high - low), 0, 1)
    data = base64.b64encode(_png(np.rint(255 * grey).astype(np.uint8))).decode("ascii")
    return Markup(f'<img src="data:image/png;base64,{data}" alt="{escape(description)}">')


def _png(grey: np.ndarray) -> bytes:
    """An 8-bit grey PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    height, width = grey.shape
    rows = b"".join(b"\0" + row.tobytes() for row in grey)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )
