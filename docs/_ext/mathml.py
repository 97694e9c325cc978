"""Equations as MathML, which browsers render by themselves: no JavaScript, no download."""

from docutils.utils.math.latex2mathml import tex2mathml


def inline(writer, node):
    """Write `$...$`."""
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise _skip()


def display(writer, node):
    """Write `$$...$$`."""
    writer.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise _skip()


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app):
    """Register the renderer that `html_math_renderer = "mathml"` names."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
