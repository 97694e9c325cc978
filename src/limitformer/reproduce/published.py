"""The numbers of the paper that the tables are compared with."""

from __future__ import annotations

REFERENCE = (
    "Hron, Bahri, Sohl-Dickstein, Novak (2020), Infinite attention: NNGP and NTK for deep "
    "attention networks, arXiv 2006.10540"
)

CIFAR_DEPTHS: dict[str, dict[int, float]] = {
    "vanilla": {4: 0.488, 8: 0.526, 16: 0.528, 32: 0.511},
    "structured": {4: 0.552, 8: 0.558, 16: 0.550, 32: 0.526},
    "residual": {4: 0.558, 8: 0.561, 16: 0.552, 32: 0.526},
    "flatten": {4: 0.416, 8: 0.439, 16: 0.462, 32: 0.463},
    "mean pool": {4: 0.470, 8: 0.519, 16: 0.510, 32: 0.426},
}
"""Figure 4: validation accuracy of the NNGP by readout and number of convolutions, CIFAR-10 with
2000 training and 4000 validation images of 32 x 32 pixels."""

CIFAR_VALIDATION = 4000

CIFAR_FULL: dict[str, dict[str, float]] = {
    "flatten": {"nngp": 0.6554, "ntk": 0.6627},
    "mean pool": {"nngp": 0.7785, "ntk": 0.7739},
    "local pool": {"nngp": 0.8036, "ntk": 0.7971},
    "structured": {"nngp": 0.8055, "ntk": 0.7993},
    "residual": {"nngp": 0.8072, "ntk": 0.8010},
}
"""Test accuracy with all 50,000 training images and 8 convolutions (not computed again here)."""

IMDB: dict[str, dict[str, float]] = {
    "mean of words": {"nngp": 0.7300},
    "mean pool + FC": {"nngp": 0.7444, "ntk": 0.7488},
    "conv + mean pool": {"nngp": 0.8100, "ntk": 0.8031},
    "structured": {"nngp": 0.8088, "ntk": 0.8106},
}
"""Validation accuracy with 3200 training and 1600 validation reviews, GloVe 6B of 50 dimensions."""

IMDB_VALIDATION = 1600

IMDB_FULL: dict[str, dict[str, float]] = {
    "mean of words": {"nngp": 0.8498},
    "mean pool + FC": {"nngp": 0.8582, "ntk": 0.8580},
    "structured": {"nngp": 0.8609, "ntk": 0.8609},
}
"""Test accuracy with all 25,000 reviews and GloVe 840B of 300 dimensions (not computed here)."""
