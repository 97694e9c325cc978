"""Plans count the work of the tokens that there are."""

import numpy as np
import pytest

import limitformer as lf
from limitformer.kernel.blocks import _call_size


@pytest.mark.parametrize(
    "shrink",
    [
        lf.Conv((3, 3), stride=(2, 2)),
        lf.AvgPool((2, 2), stride=(2, 2), padding="valid"),
    ],
)
def test_after_a_strided_window_there_are_fewer_tokens(shrink):
    rest = (lf.Residual(lf.LayerNorm(), lf.Attention(scale="linear")), lf.MeanPool(), lf.Dense())
    small = lf.Serial(lf.Dense(), *rest).plan(np.ones((2, 4, 4, 1))).layers
    found = lf.Serial(shrink, *rest).plan(np.ones((2, 8, 8, 1))).layers
    both = [path for path in small if path in found and not path.startswith("0.")]
    assert any("Attention" in path for path in both)
    assert {path: found[path] for path in both} == {path: small[path] for path in both}


@pytest.mark.parametrize(
    ("tiles", "calls", "workers", "size"),
    [(169, 8, 1, 13), (169, 2, 2, 43), (9, 2, 2, 5), (9, 8, 1, 1), (1, 8, 1, 1), (200, 1, 1, 50)],
)
def test_calls_waste_few_tiles(tiles, calls, workers, size):
    """169 tiles in calls of 22 (or 64) would be 176 (or 192)."""
    assert _call_size(tiles, calls, workers, 64) == size
