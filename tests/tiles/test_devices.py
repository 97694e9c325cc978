"""Several devices of one process, simulated: the same kernels as on one, nothing exchanged."""

import os
import subprocess
import sys

import numpy as np

import limitformer as lf
from limitformer.kernel.blocks import BlockPlan
from limitformer.tiles.compute import _fitted

FOLDER = os.path.dirname(__file__)
SCRIPT = f"""
import sys
sys.path.insert(0, {FOLDER!r})
import jax, numpy as np
import limitformer as lf
from limitformer.kernel import blocks
import test_devices
assert len(jax.local_devices()) == 4
calls = []
plain = blocks._tiles
blocks._tiles = lambda *a: calls.append(a) or plain(*a)
np.savez(sys.argv[1], **test_devices.grams("memory://K"))
assert {{len(a[-1]) for a in calls}} == {{4}}
with jax.enable_x64(True):
    text = plain.lower(*calls[0]).compile().compiled.as_text()
for word in ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter"):
    assert word not in text, word
assert "num_partitions=4" in text
"""
X = np.random.default_rng(0).normal(size=(21, 3, 2))


def grams(store) -> dict[str, np.ndarray]:
    """In a store, in memory, rectangular, and with drawn scores, which go by pairs."""
    exact = lf.Serial(lf.Dense(1.3, 0.2), lf.Relu(), lf.MeanPool(), lf.Dense())
    drawn = lf.Serial(lf.Dense(), lf.Attention(), lf.MeanPool())
    found = {
        "stored": lf.gram(exact, X, store=store, tile=8, memory="1GiB"),
        "held": lf.gram(exact, X, X[:5] + 1.0),
        "drawn": lf.gram(drawn, X[:4], draws=16, store=f"{store}s", memory="1GiB"),
    }
    return {
        f"{name} {kind}": np.asarray(getattr(K, kind))
        for name, K in found.items()
        for kind in ("nngp", "ntk")
    }


def test_four_devices_give_the_same_kernels_and_exchange_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "four.npz")],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
            "JAX_PLATFORMS": "cpu",
        },
    )
    assert done.returncode == 0, done.stderr
    four, one = np.load(tmp_path / "four.npz"), grams(f"memory://{tmp_path.name}")
    for name, value in one.items():
        np.testing.assert_allclose(four[name], value, rtol=1e-12, err_msg=name)


def test_every_device_gets_blocks():
    plan = BlockPlan(
        1000, 800, False, 1000, 1000, 1, 4, 0, False, 1, True, (1000, 800), np.dtype(float)
    )
    for devices in (2, 4, 8):
        fitted = _fitted(plan, devices)
        assert -(-1000 // fitted.tile) * -(-800 // fitted.tile) >= 2 * devices
        assert fitted.block % fitted.tile == 0 and fitted.block >= 1000 and fitted.workers == 1
