"""What every test runs under: shape and type checks, strict promotion, one key."""

import jax
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Checks every annotated function and dataclass; it has to come before the first import.
install_import_hook("limitformer", "beartype.beartype")

# Compilation makes the first example slow, and a test that fails must fail again.
settings.register_profile("limitformer", deadline=None, derandomize=True, max_examples=20)
settings.load_profile("limitformer")


@pytest.fixture(autouse=True)
def strict_promotion():
    """Mixing dtypes is an error, so that no float32 or float64 slips in unnoticed."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="session")
def key():
    """The one source of randomness in the tests; split it."""
    return jax.random.key(2020)


@pytest.fixture
def x64():
    """Run the whole test in 64-bit mode; `with jax.enable_x64(True)` does it for a part."""
    with jax.enable_x64(True):
        yield
