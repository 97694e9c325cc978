"""Tests that need PyTorch and transformers: `make test-hf`, never `make test`."""

import os
import sys
from types import SimpleNamespace

os.environ["HF_HUB_OFFLINE"] = "1"

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

CHECKER = "_limitformer_typechecker"
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
sys.modules[CHECKER] = SimpleNamespace(check=check)  # type: ignore[assignment]
install_import_hook("limitformer", f"{CHECKER}.check")
