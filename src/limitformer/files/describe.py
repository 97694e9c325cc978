"""A network as a table: where every layer is, its hyper-parameters, and what its kernel costs."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Iterator
from typing import Any

from ..kernel.plan import Plan, _seconds, machine_rates
from ..layers.base import Composite, Layer, Work
from ..layers.combine import Serial
from .calls import call_of
from .errors import NetworkFileError
from .kinds import kinds
from .one_line import argument_text


@dataclasses.dataclass(frozen=True)
class Row:
    """A layer of the table.

    Attributes:
        path: its place, as in `net.trace` and `net.plan`.
        layer: its type.
        hyper_parameters: every argument that is a number, and those that are not at their default.
        work: its cost for one pair of inputs, None for a composite or without inputs.
        share: its share of the time of the whole kernel.
    """

    path: str
    layer: str
    hyper_parameters: str
    work: Work | None = None
    share: float | None = None


@dataclasses.dataclass(frozen=True)
class Description:
    """The architecture of a network. Prints as a table, and as HTML in notebooks.

    Attributes:
        rows: one per layer, in order; sequences have none of their own.
        plan: cost of the whole kernel, None without inputs.
    """

    rows: tuple[Row, ...]
    plan: Plan | None = None

    @property
    def _cells(self) -> tuple[list[str], list[list[str]]]:
        head = ["path", "layer", "hyper-parameters"]
        cells = [[row.path, row.layer, row.hyper_parameters] for row in self.rows]
        if self.plan is not None:
            head += ["flops", "elements", "moved", "time"]
            for line, row in zip(cells, self.rows, strict=True):
                line += [""] * 4 if row.work is None else _cost(row.work, row.share)
        return head, cells

    def __str__(self) -> str:
        head, cells = self._cells
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 3 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in (head, ["-" * width for width in widths], *cells)
        ]
        return "\n".join(lines + self._below)

    def _repr_html_(self) -> str:
        head, cells = self._cells
        body = "".join(_html_row(line, "td") for line in cells)
        below = "".join(f"<p>{html.escape(line)}</p>" for line in self._below)
        return f"<table><thead>{_html_row(head, 'th')}</thead><tbody>{body}</tbody></table>{below}"

    @property
    def _below(self) -> list[str]:
        return [] if self.plan is None else ["costs per pair; " + str(self.plan).splitlines()[-1]]


def describe(net: Layer, x=None, *, types: Iterable[Any] = (), **options) -> Description:
    """The architecture as a table; with inputs also the kernel's cost per layer.

    Args:
        net: the network.
        x: inputs as for `net.kernel`; nothing is computed on them but their shapes.
        types: the caller's own layers, as for `to_dict`.
        options: further arguments of `net.plan`, such as `y`, `kinds` or `draws`.

    Example:
        >>> import limitformer as lf
        >>> from limitformer.files import describe
        >>> print(describe(lf.Serial(lf.Dense(1.5), lf.Residual(lf.Erf(), lf.Dense(), skip=0.5))))
        path                            layer     hyper-parameters
        ------------------------------  --------  --------------------
        0.Dense                         Dense     w_std=1.5, b_std=0.0
        1.Residual                      Residual  skip=0.5, branch=1.0
        1.Residual/branch/0.Activation  Erf       scale=1.0
        1.Residual/branch/1.Dense       Dense     w_std=1.0, b_std=0.0
    """
    if x is None and options:
        raise TypeError(f"{', '.join(options)} only matters for costs: give the inputs x as well")
    rows = tuple(_rows(net, "", kinds(tuple(types))))
    if x is None:
        return Description(rows)
    plan = net.plan(x, **options)
    work = {_plain_path(path) or rows[0].path: cost for path, cost in plan.layers.items()}
    rates = machine_rates(plan.dtype.name)
    seconds = {path: _seconds(cost, rates, plan.dtype) for path, cost in work.items()}
    total = sum(seconds.values()) or 1.0
    costed = (
        dataclasses.replace(row, work=work[row.path], share=seconds[row.path] / total)
        if row.path in work
        else row
        for row in rows
    )
    return Description(tuple(costed), plan)


def _rows(layer: Layer, path: str, known) -> Iterator[Row]:
    children = layer.children() if isinstance(layer, Composite) else {}
    if not isinstance(layer, Serial):
        own = {id(child) for child in children.values()}
        try:
            call = call_of(layer, known)
        except NetworkFileError:  # somebody's own layer
            yield Row(path or type(layer).__name__, type(layer).__name__, "")
        else:
            shown = (
                f"{name}={argument_text(value, name, known)}"
                for name, value in call.arguments.items()
                if id(value) not in own and (name in call.written or type(value) in (int, float))
            )
            yield Row(path or type(layer).__name__, call.kind.name, ", ".join(shown))
    for name, child in children.items():
        yield from _rows(child, f"{path}/{name}" if path else name, known)


def _plain_path(path: str) -> str:
    """A path of the plan without the steps that join a readout with the layers before it."""
    path = path.removeprefix("/net")  # all there is of a network that is one layer
    return "/".join(part for part in path.split("/") if part and not part.endswith("<"))


def _cost(work: Work, share: float | None) -> list[str]:
    numbers = (f"{n:.2g}" if n else "" for n in (work.flops, work.elements, work.moved))
    return [*numbers, f"{100 * (share or 0.0):.0f} %"]


def _html_row(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
