"""Tables on a terminal."""

from collections.abc import Iterable, Sequence


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of text: the first aligned left, the others right.

    Example:
        >>> print(text_table(("kernel", "error"), [("NNGP", "1 %"), ("NTK", "12 %")]))
        kernel  error
        ------  -----
        NNGP      1 %
        NTK      12 %
    """
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
