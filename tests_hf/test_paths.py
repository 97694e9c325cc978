"""Paths of every adapter add up to what the original model computes."""

import numpy as np
import pytest
from test_adapters import FLOAT32_INSIDE, given
from tiny import CONFIGS, make

from limitformer.depth.paths import path_decomposition
from limitformer.models.hf import from_hf, verify


@pytest.mark.parametrize("mlp", ["source", "inside"])
@pytest.mark.parametrize("name", CONFIGS)
def test_paths_add_up(name, mlp):
    original, x = make(name), given(name)
    model = from_hf(original)
    last = verify(model, original, x).gaps[-1]
    assert last < (3e-6 if name in FLOAT32_INSIDE else 1e-12)
    assert path_decomposition(model, x, mlp=mlp).gap < 1e-12
    assert path_decomposition(model.astype(np.float32), x, mlp=mlp).gap < 1e-5
