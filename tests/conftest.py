"""What every test runs under: shape and type checks, strict promotion, one key."""

import sys
from types import SimpleNamespace

import jax
import pytest
from beartype import BeartypeConf, beartype
from hypothesis import settings
from jaxtyping import install_import_hook

# Checks every annotated function and dataclass; it has to come before the first import. An int is
# a float, as everywhere in Python's typing; the hook takes the checker by its module's name.
CHECKER = "_limitformer_typechecker"
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
sys.modules[CHECKER] = SimpleNamespace(check=check)  # type: ignore[assignment]
install_import_hook("limitformer", f"{CHECKER}.check")

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
