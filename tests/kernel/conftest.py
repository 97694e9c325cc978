"""A GPU's compiler, as far as a machine without a GPU can go."""

import jax
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh


@pytest.fixture
def gpu_text():
    """A function of arrays (or their shapes) as it is given to a GPU's compiler.

    Every operation of a Pallas program has then a form in Triton.
    """
    device = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="cuda")

    def text(function, *arguments) -> str:
        mesh = AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device)
        with use_abstract_mesh(mesh):
            traced = jax.jit(function).trace(*arguments)
            return traced.lower(lowering_platforms=("cuda",)).as_text()

    return text
