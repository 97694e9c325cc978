"""Candidate networks of the task benchmark, by kind of input; leave-one-out chooses in a family."""

from __future__ import annotations

import limitformer as lf

W, B = 2**0.5, 0.3  # ReLU keeps the variance at w_std = sqrt 2
HRON_W, HRON_B = 1.7562**0.5, 0.1841**0.5  # Hron et al. 2020, CIFAR-10
HIDDEN = (lf.Dense(W, B), lf.Relu())


def perceptrons() -> dict[str, lf.Layer]:
    """ReLU networks on a row of numbers, with one, two and three hidden layers."""
    return {f"{k} hidden": lf.Serial(*HIDDEN * k, lf.Dense()) for k in (1, 2, 3)}


def images() -> dict[str, dict[str, lf.Layer]]:
    """Convolutions alone, and convolutions with attention that knows positions."""

    def conv(k: int) -> lf.Layer:
        return lf.Repeat(lf.Serial(lf.Conv((3, 3), HRON_W, HRON_B), lf.Relu()), k)

    end = (lf.LayerNorm(), lf.Flatten(), lf.Dense())
    residual = lf.ResidualAttention(lf.SquaredExponential(5.0, 0.5), alpha=0.65)
    return {
        "conv": {
            f"{k} conv, flatten": lf.Serial(conv(k), lf.Flatten(), lf.Dense()) for k in (2, 4)
        },
        "conv + attention": {
            "4 conv, structured": lf.Serial(conv(4), structured(0.4, 5.0, 1.5, 0.1), *end),
            "4 conv, structured, sharp": lf.Serial(conv(4), structured(0.1, 5.0, 1.5, 10.0), *end),
            "2 conv, residual": lf.Serial(conv(2), residual, *end),
            "4 conv, residual": lf.Serial(conv(4), residual, *end),
        },
    }


def texts() -> dict[str, dict[str, lf.Layer]]:
    """Windows of three words alone, and with attention that knows positions."""
    window = (lf.Conv((3,), W, B), lf.Relu())
    mean = (lf.MeanPool(), lf.Dense())
    code = lf.Position(lf.SquaredExponential(20.0), weight=0.5)
    residual = lf.ResidualAttention(lf.SquaredExponential(20.0, 0.5), alpha=0.65)
    after = (lf.LayerNorm(), *HIDDEN)
    return {
        "conv": {
            "window, mean": lf.Serial(*window, lf.MeanPool(), *HIDDEN, lf.Dense()),
            "window, flatten": lf.Serial(*window, lf.Flatten(), lf.Dense()),
        },
        "conv + attention": {
            "window, softmax, mean": lf.Serial(*window, structured(0.5, 5.0, 1.0, 1.0), *mean),
            "window, softmax, norm, hidden, mean": lf.Serial(
                *window, structured(0.2, 20.0, 1.0, 4.0), *after, *mean
            ),
            "position, window, softmax, norm, hidden, mean": lf.Serial(
                code, *window, structured(0.5, 20.0, 1.0, 4.0), *after, *mean
            ),
            "window, residual, norm, flatten": lf.Serial(
                *window, residual, lf.LayerNorm(), lf.Flatten(), lf.Dense()
            ),
        },
    }


def structured(content: float, phi: float, rho: float, qk_std: float) -> lf.Attention:
    """Softmax attention at linear scale, scores from content and relative positions."""
    code = lf.Position(lf.SquaredExponential(phi, rho), content=content, weight=1 - content)
    return lf.Attention(scale="linear", qk_std=qk_std, position=code)


def columns() -> dict[str, lf.Layer]:
    """Attention between the columns of a table: (n, columns, 1), every column has its own code."""
    code = lf.Position(lf.OneHot())
    first = (code, *HIDDEN)
    nets = {}
    for weights in ("softmax", "identity"):
        scale = "linear" if weights == "softmax" else "sqrt"
        block = lf.Residual(lf.LayerNorm(), lf.Attention(scale=scale, weights=weights, qk_std=0.3))
        nets[f"{weights}, flatten"] = lf.Serial(*first, block, lf.Flatten(), *HIDDEN, lf.Dense())
    return nets
