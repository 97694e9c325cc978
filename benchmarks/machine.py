"""The machine's own rates, in the same run as the benchmark: products, triad, transcendentals.

`python benchmarks/machine.py` prints them as JSON. Each is the best of several repeats, since a
floor is what the machine can do undisturbed.
"""

import json
import os
import platform
import time
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev


def arccos_coefficients(degree: int) -> list[float]:
    """c with arccos(t) = sqrt(1 - t) sum_k c_k (2 t - 1)^k on [0, 1], near-minimax."""

    def ratio(t):
        return np.arccos(t) / np.sqrt(1 - t)

    return chebyshev.cheb2poly(chebyshev.Chebyshev.interpolate(ratio, degree, [0, 1]).coef).tolist()


def arccos(x):
    """arccos by one square root and a polynomial, within an ulp of pi in both precisions."""
    t = jnp.abs(x)
    p = jnp.zeros_like(x)
    for c in reversed(arccos_coefficients(8 if x.dtype == jnp.float32 else 21)):
        p = p * (2 * t - 1) + jnp.asarray(c, x.dtype)
    p = jnp.sqrt(1 - t) * p
    return jnp.where(x < 0, jnp.asarray(np.pi, x.dtype) - p, p)


def best_seconds(call, *args, repeats: int = 7) -> float:
    """The shortest of several calls after one that compiles."""
    jax.block_until_ready(call(*args))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call(*args))
        times.append(time.perf_counter() - start)
    return min(times)


def matmul_gflops(dtype: str, batch: int, size: int) -> float:
    a = jnp.asarray(np.random.default_rng(0).standard_normal((batch, size, size)), dtype)
    return 2e-9 * batch * size**3 / best_seconds(jax.jit(jnp.matmul), a, a)


def triad_gb(dtype: str, numbers: int = 1 << 25) -> float:
    """a = b + 3 a over arrays far larger than the caches, into memory that is already mapped."""

    @partial(jax.jit, donate_argnums=0)
    def step(a, b):
        return b + 3 * a

    b = jnp.ones(numbers, dtype)
    a = jnp.zeros(numbers, dtype)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        a = jax.block_until_ready(step(a, b))
        times.append(time.perf_counter() - start)
    return 3e-9 * numbers * jnp.dtype(dtype).itemsize / min(times[1:])


def per_second(fn, dtype: str) -> float:
    """Millions of fn a second: the best over array sizes and lengths of a chain fn(fn(...)).

    A short chain on a large array waits for memory, a small array is left to one core by XLA, and
    a long chain runs out of registers: no single choice shows what the machine can do.
    """
    rates = []
    for numbers, length in product((1 << 18, 1 << 20, 1 << 22), (1, 2, 4)):

        @partial(jax.jit, donate_argnums=0)
        def chain(x, length=length):
            for _ in range(length):
                x = fn(x)
            return x

        x = jnp.asarray(np.random.default_rng(0).uniform(0.01, 0.99, numbers), dtype)
        x = jax.block_until_ready(chain(x))
        for _ in range(15):
            start = time.perf_counter()
            x = jax.block_until_ready(chain(x))
            rates.append(1e-6 * length * numbers / (time.perf_counter() - start))
    return max(rates)


FUNCTIONS = {
    "exp": lambda x: jnp.exp(-x),
    "sqrt": lambda x: jnp.sqrt(x + 0.25),
    "arccos": lambda x: arccos(x) * 0.3,
    "xla_arccos": lambda x: jnp.arccos(x) * 0.3,
}


def measure() -> dict:
    """All rates, by dtype."""
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            cpu = next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), cpu)
    rates = {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "device": str(jax.devices()[0]),
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    with jax.enable_x64(True):
        for dtype in ("float32", "float64"):
            rates[dtype] = {
                "matmul_gflops": matmul_gflops(dtype, 1, 2048),
                "batched_matmul_gflops": matmul_gflops(dtype, 1024, 64),
                "triad_gb": triad_gb(dtype),
                **{name: per_second(fn, dtype) for name, fn in FUNCTIONS.items()},
            }
    return rates


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
