"""The shortest time a case could take: what must be computed and moved, at the machine's own rates.

Counted with every shortcut of theory 2.4 taken: a mean pool after attention is u^T K u, a flatten
is diag(A K A^T), what depends on one input only is done once per input, and a marginal, being
symmetric, at half the work. Three currencies:

- products: flops of matrix products, at the rate of a large product;
- transcendentals: one arc-cosine per entry of K and ReLU, with a square root more where both
  E[phi phi] and E[phi' phi'] are wanted, and one exponential per entry of A;
- bytes: a kernel is written and read again only where a stencil, a product or a reduction forces
  it; elementwise layers (dense, activation, norm, residual) are taken to be free of traffic.

Products and transcendentals share the vector units, so their times add; memory can overlap both:
floor = max(bytes, products + transcendentals).
"""

from dataclasses import dataclass, fields

import cases


@dataclass(frozen=True)
class Work:
    """What a computation needs, in numbers of each kind."""

    flops: float = 0.0
    arccos: float = 0.0
    sqrt: float = 0.0
    exp: float = 0.0
    moved: float = 0.0  # numbers, not bytes

    def __add__(self, other: "Work") -> "Work":
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float) -> "Work":
        return Work(*(times * getattr(self, f.name) for f in fields(self)))


def relu(entries: float, layers: int, ntk: bool) -> Work:
    return Work(arccos=layers * entries, sqrt=layers * entries * ntk)


def kernel_passes(entries: float, layers: int, ntk: bool) -> Work:
    """Traffic of a first kernel and `layers` maps after it, the last one read by the readout.

    The NTK comes to life in the first layer (T = 0 before it), from then on two arrays move.
    """
    arrays = 2 if ntk else 1
    return Work(moved=entries * (2 + arrays * 2 * layers))


def work(case: cases.Case) -> Work:
    """What the whole block of pairs needs."""
    S, entries = case.tokens, case.tokens**2
    kernels = len(case.kinds)
    inputs = 2 * case.n
    if case.family == "a":
        pair = Work(flops=2 * cases.MLP_FEATURES, moved=kernels) + relu(1, 3, case.ntk)
        return pair * case.pairs
    if case.family == "b":
        first, layers = Work(flops=2 * 3 * entries), 2
        readout = 2 * entries if case.readout == "mean" else 2 * S**3
        pair = (
            first
            + relu(entries, layers, case.ntk)
            + kernel_passes(entries, layers, case.ntk)
            + Work(flops=kernels * readout)
        )
        one = first + relu(entries, layers, False) + kernel_passes(entries, layers, False)
        return pair * case.pairs + (one * 0.5 + Work(exp=entries)) * inputs
    first, layers = Work(flops=2 * cases.TOKEN_FEATURES * entries), cases.BLOCKS
    # The last block is read by the pool where it is made: no array after it.
    pair = first + relu(entries, layers, case.ntk) + kernel_passes(entries, layers - 1, case.ntk)
    one = first + relu(entries, layers, False) + kernel_passes(entries, layers - 1, False)
    return pair * case.pairs + one * (0.5 * inputs)


def floor_seconds(case: cases.Case, rates: dict) -> dict[str, float]:
    """The floor of the whole block in seconds, and its parts.

    Args:
        case: the case.
        rates: what `machine.measure` returned.
    """
    todo, rate = work(case), rates[case.dtype]
    products = todo.flops / (1e9 * rate["matmul_gflops"])
    transcendentals = sum(
        getattr(todo, name) / (1e6 * rate[name]) for name in ("arccos", "sqrt", "exp")
    )
    itemsize = 4 if case.dtype == "float32" else 8
    moved = itemsize * todo.moved / (1e9 * rate["triad_gb"])
    return {
        "products": products,
        "transcendentals": transcendentals,
        "bytes": moved,
        "floor": max(moved, products + transcendentals),
    }
