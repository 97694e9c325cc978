"""The cases in limitformer."""

import sys

import cases
import jax
import worker

import limitformer as lf


def dense():
    return lf.Dense(w_std=cases.W_STD, b_std=cases.B_STD)


def network(case: cases.Case):
    readout = lf.Dense(w_std=cases.READOUT_W_STD, b_std=cases.READOUT_B_STD)
    if case.family == "a":
        return lf.Serial(*(layer for _ in range(3) for layer in (dense(), lf.Relu())), readout)
    if case.family == "b":
        hidden = (
            layer
            for _ in range(2)
            for layer in (lf.Conv((3, 3), w_std=cases.W_STD, b_std=cases.B_STD), lf.Relu())
        )
        attention = lf.Attention(scale="linear", weights="softmax", qk_std=cases.QK_STD)
        pool = lf.MeanPool() if case.readout == "mean" else lf.Flatten()
        return lf.Serial(*hidden, attention, pool, readout)
    attention = lf.Attention(scale="sqrt", weights="identity", qk_std=1 / case.tokens)
    block = lf.Serial(
        lf.Residual(attention),
        lf.LayerNorm(),
        lf.Residual(dense(), lf.Relu(), dense()),
    )
    return lf.Serial(dense(), lf.Repeat(block, cases.BLOCKS), lf.MeanPool(), readout)


def prepare():
    case = cases.find(sys.argv[1])
    net = network(case)
    x, y, x_mask, y_mask = cases.inputs(case)

    def call():
        k = net.kernel(x, y, x_mask=x_mask, y_mask=y_mask, kinds=case.kinds)
        return jax.block_until_ready({kind: getattr(k, kind) for kind in case.kinds})

    return call


if __name__ == "__main__":
    worker.serve(prepare)
