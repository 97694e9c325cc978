"""Several devices of one process, simulated: the same kernel, and nothing is exchanged."""

import subprocess
import sys

import numpy as np
import pytest

import limitformer as lf
from limitformer.tiles.devices import sharded_kernel

SCRIPT = """
import jax, numpy as np
import limitformer as lf
from limitformer.tiles import devices
assert len(jax.local_devices()) == 4
net = lf.Serial(lf.Dense(1.3, 0.2), lf.Relu(), lf.MeanPool(), lf.Dense())
x = np.random.default_rng(0).normal(size=(21, 3, 2))
seen = []
plain = devices._spread
devices._spread = lambda *a: seen.append(a) or plain(*a)
one = devices.sharded_kernel(net, x, block=4, devices=jax.local_devices()[:1])
four = devices.sharded_kernel(net, x, block=4)
k = net.kernel(x)
for kind in ("nngp", "ntk"):
    a, b = (np.asarray(getattr(r, kind)) for r in (one, four))
    assert np.array_equal(a, b) and np.array_equal(a, a.T)
    np.testing.assert_allclose(b, getattr(k, kind), rtol=1e-12)
with jax.enable_x64(True):
    text = plain.lower(*seen[1]).compile().compiled.as_text()
for word in ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter"):
    assert word not in text, word
assert "num_partitions=4" in text
store = lf.gram(net, x, store="memory://K", tile=6)
np.testing.assert_allclose(np.asarray(store.ntk), k.ntk, rtol=1e-12)
print("done")
"""


def test_four_devices_give_the_same_bits_and_exchange_nothing():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env={
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
            "JAX_PLATFORMS": "cpu",
            "PATH": "/usr/bin:/bin",
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"


def test_rectangular_on_one_device():
    net = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())
    x = np.random.default_rng(0).normal(size=(9, 2))
    k = sharded_kernel(net, x, x[:5] + 1, kinds="nngp", block=4)
    np.testing.assert_allclose(k.nngp, net.kernel(x, x[:5] + 1).nngp, rtol=1e-12)
    assert k.ntk is None


def test_what_is_refused():
    with pytest.raises(ValueError, match="draws scores"):
        sharded_kernel(lf.Serial(lf.Attention(), lf.MeanPool()), np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="need a readout"):
        sharded_kernel(lf.Dense(), np.ones((2, 2, 2)))
