"""The benchmark's cases and their inputs: plain NumPy, read by both interpreters."""

from dataclasses import dataclass
from itertools import product

import numpy as np

# Weights and biases of every Dense and Conv before a ReLU (Hron 2020's), and of the readout.
W_STD = 1.7562**0.5
B_STD = 0.1841**0.5
READOUT_W_STD = 1.0
READOUT_B_STD = 0.0
QK_STD = 1.0  # case (b); case (c) takes 1 / tokens, which keeps <K, K> of order one
MLP_FEATURES = 128
TOKEN_FEATURES = 16
BLOCKS = 4


@dataclass(frozen=True)
class Case:
    """One network on one block of inputs, in one dtype, for the NNGP or for NNGP and NTK."""

    family: str  # "a": ReLU network, "b": convolutions and attention, "c": transformer blocks
    n: int  # inputs on each side: n * n pairs
    side: int  # (b) image side, (c) tokens, (a) 1
    readout: str  # "mean", "flatten" or "none"
    kinds: tuple[str, ...]
    dtype: str

    @property
    def tokens(self) -> int:
        """Tokens of one input."""
        return self.side**2 if self.family == "b" else self.side

    @property
    def pairs(self) -> int:
        """Pairs of inputs in the block."""
        return self.n**2

    @property
    def ntk(self) -> bool:
        """Whether the NTK is asked for as well."""
        return "ntk" in self.kinds

    @property
    def name(self) -> str:
        """A name for the table and for the command line."""
        where = {
            "a": f"a/{self.n}",
            "b": f"b/{self.side}x{self.side}/{self.readout}",
            "c": f"c/{self.side}",
        }[self.family]
        return f"{where}/{'ntk' if self.ntk else 'nngp'}/{self.dtype}"


def all_cases() -> list[Case]:
    """Every case, in the order of the table."""
    blocks = [("a", 2000, 1, "none")]
    sizes = [(64, 8), (16, 16), (4, 32)]
    blocks += [("b", n, side, readout) for readout in ("mean", "flatten") for n, side in sizes]
    blocks += [("c", n, tokens, "mean") for n, tokens in [(64, 32), (32, 64), (16, 128)]]
    options = product(blocks, ("float32", "float64"), (("nngp",), ("nngp", "ntk")))
    return [Case(*block, kinds, dtype) for block, dtype, kinds in options]


def find(name: str) -> Case:
    """The case of that name."""
    return next(case for case in all_cases() if case.name == name)


def inputs(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """x, y and their masks (True = valid; None without padding).

    The two sides are different inputs, so that no symmetry is used by either library.
    """
    rng = np.random.default_rng(2020)
    shape = {
        "a": (case.n, MLP_FEATURES),
        "b": (case.n, case.side, case.side, 3),
        "c": (case.n, case.side, TOKEN_FEATURES),
    }[case.family]
    x, y = (rng.standard_normal(shape).astype(case.dtype) for _ in range(2))
    if case.family != "c":
        return x, y, None, None
    lengths = rng.integers(case.side // 2, case.side + 1, size=(2, case.n))
    lengths[:, 0] = case.side
    x_mask, y_mask = np.arange(case.side) < lengths[..., None]
    return x, y, x_mask, y_mask
