"""The cases in Neural Tangents 0.6.5. Runs in the peer's own interpreter: see kernels.py."""

import sys

import cases
import jax
import numpy as np
import worker
from neural_tangents import stax

MASK = 1e4  # the peer marks padded tokens by a magic number in the inputs


def dense(w_std: float = cases.W_STD, b_std: float = cases.B_STD):
    return stax.Dense(1, W_std=w_std, b_std=b_std)


def readout():
    return dense(cases.READOUT_W_STD, cases.READOUT_B_STD)


def conv():
    return stax.Conv(1, (3, 3), padding="SAME", W_std=cases.W_STD, b_std=cases.B_STD)


def attention(mechanism: str, linear: bool, qk_std: float):
    return stax.GlobalSelfAttention(
        n_chan_out=1,
        n_chan_key=1,
        n_chan_val=1,
        n_heads=1,
        linear_scaling=linear,
        W_key_std=qk_std,
        attention_mechanism=mechanism,
    )


def residual(*branch):
    return stax.serial(
        stax.FanOut(2),
        stax.parallel(stax.Identity(), stax.serial(*branch)),
        stax.FanInSum(),
    )


def network(case: cases.Case):
    if case.family == "a":
        hidden = [layer for _ in range(3) for layer in (dense(), stax.Relu())]
        return stax.serial(*hidden, readout())
    if case.family == "b":
        pool = stax.GlobalAvgPool() if case.readout == "mean" else stax.Flatten()
        hidden = [layer for _ in range(2) for layer in (conv(), stax.Relu())]
        return stax.serial(*hidden, attention("SOFTMAX", True, cases.QK_STD), pool, readout())
    blocks = [
        layer
        for _ in range(cases.BLOCKS)
        for layer in (
            residual(attention("IDENTITY", False, 1 / case.tokens)),
            stax.LayerNorm(),
            residual(dense(), stax.Relu(), dense()),
        )
    ]
    return stax.serial(dense(), *blocks, stax.GlobalAvgPool(), readout())


def prepare():
    case = cases.find(sys.argv[1])
    jax.config.update("jax_enable_x64", case.dtype == "float64")
    _, _, kernel_fn = network(case)
    x, y, x_mask, y_mask = cases.inputs(case)
    options = {}
    if x_mask is not None:
        x = np.where(x_mask[..., None], x, x.dtype.type(MASK))
        y = np.where(y_mask[..., None], y, y.dtype.type(MASK))
        options = {"mask_constant": MASK}
    compiled = jax.jit(lambda x, y: kernel_fn(x, y, case.kinds, **options))

    def call():
        return jax.block_until_ready(compiled(x, y))._asdict()

    return call


if __name__ == "__main__":
    worker.serve(prepare)
