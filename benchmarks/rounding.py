"""What rounding does to deep kernels: accuracy at a small ridge, with errors put into the kernels.

    python benchmarks/rounding.py --data CIFAR [--out benchmarks/results/rounding.md]

CIFAR is what `lf.data.cifar10` takes. Hron 2020's convolutions on 8 x 8 block means (2000 training
and 1000 other images, about ten minutes on two cores), ridge of 1e-6 of the mean diagonal.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from limitformer.data.cifar import cifar10
from limitformer.reproduce.fit import fit
from limitformer.reproduce.hron_cifar import Images, network
from limitformer.reproduce.readouts import Readout
from limitformer.reproduce.shared_trunk import shared_kernels

DEPTHS = (4, 8, 16, 32)
READOUTS = (Readout("flatten"), Readout("mean pool", pool="mean"))
RIDGE = 1e-6
HEAD = """# Rounding of deep kernels

Accuracy of kernel regression on 1000 CIFAR-10 images (8 x 8 block means, 2000 training images,
NNGP, ridge of 1e-6 of the mean diagonal) with errors put into the kernels: none, storage as
float32, independent relative errors of all entries, and relative errors of every training input in
the second kernel only, as when two kernels are computed by different processes.
`benchmarks/rounding.py`; [note 0010](../../docs/notes/0010-rounding.md).
"""
rng = np.random.default_rng(0)


def rounded(K, C):
    """Both kernels as float32."""
    return K.astype(np.float32).astype(float), C.astype(np.float32).astype(float)


def noisy(size):
    """Independent relative errors of all entries."""

    def change(K, C):
        z = rng.normal(size=K.shape)
        return K * (1 + size * (z + z.T) / 2**0.5), C * (1 + size * rng.normal(size=C.shape))

    return change


def another(size):
    """The training inputs of the second kernel have relative errors of their own."""
    return lambda K, C: (K, C * (1 + size * rng.normal(size=C.shape[1])))


CHANGES = {
    "none": lambda K, C: (K, C),
    "float32": rounded,
    "1e-7 in every entry": noisy(1e-7),
    "1e-6 in every entry": noisy(1e-6),
    "1e-7 in every training input": another(1e-7),
    "3e-7 in every training input": another(3e-7),
}


def accuracy(K, C, targets, labels) -> str:
    found = fit(K, targets, (RIDGE,))
    if not np.isfinite(found.coefficients).all():
        return "not positive definite"
    return f"{found.correct(C, labels)[0] / len(labels):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    images = Images.of(cifar10(args.data), 8, 2000, 1000, 0)
    net = network(dict.fromkeys(DEPTHS, READOUTS))
    options = {"readouts": len(DEPTHS) * len(READOUTS), "kinds": "nngp", "dtype": np.float32}
    K = shared_kernels(net, images.x, progress=True, **options)["nngp"]
    C = shared_kernels(net, images.x_validation, images.x, progress=True, **options)["nngp"]
    lines = ["| readout | convolutions | median correlation | " + " | ".join(CHANGES) + " |"]
    lines.append("|---|--:|--:|" + "--:|" * len(CHANGES))
    for i in range(K.shape[-1]):
        own, cross = K[..., i], C[..., i]
        root = np.sqrt(np.diag(own))
        found = [
            accuracy(*change(own, cross), images.targets, images.labels_validation)
            for change in CHANGES.values()
        ]
        depth, readout = DEPTHS[i // len(READOUTS)], READOUTS[i % len(READOUTS)]
        middle = np.median(own / root / root[:, None])
        lines.append(f"| {readout.name} | {depth} | {middle:.5f} | " + " | ".join(found) + " |")
    text = "\n".join(lines)
    print(text)
    if args.out is not None:
        args.out.write_text(f"{HEAD}\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
