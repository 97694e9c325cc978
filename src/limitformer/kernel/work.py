"""What a kernel costs: the work of every layer, counted before any of it is done."""

from __future__ import annotations

import math
from typing import Any

from ..layers.base import Composite, Work
from ..layers.combine import Repeat, Serial
from ..layers.pool import Flatten, Readout


def work_of(network, S1: int, S2: int, draws: int, grids: Any = None) -> dict[str, Work]:
    """Work per pair of every layer, by its path.

    Layers have the input's tokens until a readout; given the `grids` of the two sides, fewer after
    a window with strides.
    """
    found: dict[str, Work] = {}
    size = [S1, S2]
    lie = list(grids or ())

    def visit(layer, path: str, turns: int):
        if isinstance(layer, Composite):
            turns = turns * layer.n if isinstance(layer, Repeat) else turns
            steps = layer.steps(network.pull) if isinstance(layer, Serial) else None
            for name, child in steps or layer.children().items():
                visit(child, f"{path}/{name}", turns)
        else:
            if lie and hasattr(layer, "spec"):
                lie[:] = [layer.spec.out_grid(grid) for grid in lie]
                size[:] = [math.prod(grid) for grid in lie]
            work = layer.work(*size, network.table[path], draws)
            if isinstance(layer, (Readout, Flatten)):
                size[:] = [1, 1]
            found[path.removeprefix("/net/")] = Work(
                turns * work.flops, turns * work.elements, turns * work.moved, work.peak
            )

    visit(network.net, "/net", 1)
    return found
