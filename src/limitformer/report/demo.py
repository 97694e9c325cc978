"""The demo's steps: a vision transformer's kernel on digits, its twins, and what it is good for.

Pure functions that return dataclasses. `limitformer.report.demo_page` shows them as a page, and
`limitformer.cli.demo` runs them from the command line.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Float, Int

import limitformer as lf
from limitformer.extras import optional
from limitformer.layers.combine import Serial
from limitformer.report.classify import Classification, classify
from limitformer.report.convergence import Convergence, convergence
from limitformer.report.heads import Heads, compare_heads
from limitformer.report.section_depth import Depth, profiles
from limitformer.report.section_model import RealModel, read_model

Progress = Callable[[str, float], None]  # (name of the step, part of it that is done)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that the demo's numbers depend on.

    Attributes:
        train, test: images to learn from and to classify.
        depth, patch, qk_std: the network, see `network`.
        widths, networks: widths of the finite twins, and how many of each.
        head_width: channels of one attention head in a twin.
        digits: images that twins and softmax attention are compared on, one per class.
        draws: score draws of softmax attention at scale "sqrt".
        heads: numbers of heads that are compared with infinitely many.
        law_draws, particles: draws of their law, and of their posterior.
        few, asked: images that heads learn from, and are asked about.
        model: whether a pretrained model is read, if its files are installed.
        blocks, followed: depth of the collapse profiles, and the images whose tokens they follow.
        split_seed, twin_seed, draw_seed: of the split, the twins' weights and the score draws.
    """

    train: int = 1000
    test: int = 797
    depth: int = 2
    patch: int = 2
    qk_std: float = 2.0
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    networks: tuple[int, ...] = (32, 32, 32, 32, 16, 16)
    head_width: int = 8
    digits: int = 10
    draws: int = 1024
    heads: tuple[int, ...] = (1, 4, 16)
    law_draws: int = 1000
    particles: int = 8
    few: int = 6
    asked: int = 12
    blocks: int = 16
    followed: int = 3
    model: bool = True
    split_seed: int = 0
    twin_seed: int = 1
    draw_seed: int = 2


QUICK = Settings(
    train=300,
    test=200,
    widths=(16, 64, 256),
    networks=(16, 16, 8),
    digits=5,
    draws=256,
    heads=(1, 4),
    law_draws=500,
    particles=8,
    few=6,
    asked=8,
    blocks=6,
    followed=2,
)


@dataclasses.dataclass(frozen=True)
class Digits:
    """Images in [-1/2, 1/2], split once: the first `train` to learn from, the others held out."""

    images: Float[np.ndarray, "n 8 8 1"]
    labels: Int[np.ndarray, " n"]
    train: int

    def one_per_class(self, count: int) -> np.ndarray:
        """Index of the first training image of each of the first `count` classes."""
        labels = self.labels[: self.train]
        return np.array([np.flatnonzero(labels == c)[0] for c in range(count)])


@dataclasses.dataclass(frozen=True)
class Gram:
    """Kernels of all images, training images first."""

    nngp: Float[np.ndarray, "n n"]
    ntk: Float[np.ndarray, "n n"]


@dataclasses.dataclass(frozen=True)
class SoftmaxBlock:
    """Kernels of softmax attention at scale "sqrt" on a few images, with standard errors."""

    kernel: lf.Kernel
    labels: Int[np.ndarray, " n"]

    def relative(self, kind: str) -> Float[np.ndarray, "n n"]:
        """Standard error over value, entry by entry."""
        value, sem = getattr(self.kernel, kind), getattr(self.kernel, f"{kind}_sem")
        return np.asarray(sem, float) / np.abs(np.asarray(value, float))


@dataclasses.dataclass(frozen=True)
class Demo:
    """All results of the demo, and the seconds that each step took."""

    settings: Settings
    net: Serial
    softmax_net: Serial
    digits: Digits
    gram: Gram
    classified: dict[str, Classification]
    convergence: Convergence
    softmax: SoftmaxBlock
    heads: Heads
    depth: Depth
    model: RealModel | None
    seconds: dict[str, float]


# Names of the steps, with seconds on two idle cores: progress weighs the steps by them.
STEPS = {
    "digits": 1.0,
    "kernel of all images": 12.0,
    "classification": 2.0,
    "finite twins": 32.0,
    "softmax attention": 9.0,
    "heads": 35.0,
    "depth": 10.0,
    "a real model": 12.0,
}


def network(settings: Settings) -> Serial:
    """A vision transformer with attention weights that are the scores themselves.

    Its kernel is exact at the scale 1/sqrt(d) of real transformers, and costs as much as a dense
    layer's.
    """
    return _vision_transformer(
        settings, lf.Attention(weights="identity", qk_std=settings.qk_std, per_key=True)
    )


def softmax_network(settings: Settings) -> Serial:
    """The same network with softmax attention, whose kernel is an average over score draws."""
    return _vision_transformer(settings, lf.Attention(weights="softmax", qk_std=settings.qk_std))


def _vision_transformer(settings: Settings, attention: lf.Attention) -> Serial:
    block = lf.Block(attention, lf.Relu())
    return lf.VisionTransformer(settings.depth, settings.patch, block)


def load_digits(settings: Settings) -> Digits:
    """scikit-learn's 1797 digits of 8 x 8 pixels, shuffled with the split's seed.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
        ValueError: more images asked for than there are.
    """
    bunch = optional("sklearn.datasets").load_digits()
    order = np.random.default_rng(settings.split_seed).permutation(len(bunch.target))
    count = settings.train + settings.test
    if count > len(order):
        raise ValueError(
            f"train={settings.train} and test={settings.test} need {count} images, but there are "
            f"{len(order)}; ask for fewer"
        )
    order = order[:count]
    images = (bunch.images[order, :, :, None] / 16 - 0.5).astype(np.float32)
    return Digits(images, bunch.target[order].astype(np.int64), settings.train)


def gram(net: Serial, digits: Digits, progress: Callable[[float], None] | None = None) -> Gram:
    """NNGP and NTK of all images, in one symmetric call."""

    def report(done: int, total: int, left: float) -> None:
        if progress is not None:
            progress(done / total)

    k = net.kernel(digits.images, progress=report)
    return Gram(np.asarray(k.nngp), np.asarray(k.ntk))


def classified(gram: Gram, digits: Digits) -> dict[str, Classification]:
    """Held-out digits by both kernels, and by two kernels of the bare pixels for comparison."""
    pixels = digits.images.reshape(len(digits.images), -1).astype(float)
    squares = np.sum(pixels**2, axis=1)
    distance = np.maximum(squares[:, None] + squares[None, :] - 2 * pixels @ pixels.T, 0.0)
    n = digits.train
    median = np.median(distance[:n, :n])
    kernels = {
        "NNGP": gram.nngp,
        "NTK": gram.ntk,
        "Gaussian, pixels": np.exp(-distance / median),
        "linear, pixels": pixels @ pixels.T,
    }
    # These matrices are small, and BLAS threads that wait for a busy core cost more than they give.
    with optional("threadpoolctl").threadpool_limits(1, user_api="blas"):
        return {
            name: classify(
                K[:n, :n], K[n:, :n], np.diagonal(K)[n:], digits.labels[:n], digits.labels[n:]
            )
            for name, K in kernels.items()
        }


def softmax_block(net: Serial, digits: Digits, settings: Settings) -> SoftmaxBlock:
    """Softmax attention at scale "sqrt" on one image per class."""
    index = digits.one_per_class(settings.digits)
    key = jax.random.key(settings.draw_seed)
    k = net.kernel(digits.images[index], draws=settings.draws, key=key)
    return SoftmaxBlock(k, digits.labels[index])


def run(settings: Settings, progress: Progress | None = None) -> Demo:
    """All steps, in order.

    Args:
        settings: the full demo, or `QUICK`.
        progress: called with a step's name (see `STEPS`) and the part of it that is done, 0 to 1.
    """
    seconds: dict[str, float] = {}

    def step(name: str, work: Callable):
        def report(part: float) -> None:
            if progress is not None:
                progress(name, part)

        report(0.0)
        start = time.perf_counter()
        result = work(report)
        seconds[name] = time.perf_counter() - start
        report(1.0)
        return result

    net, softmax_net = network(settings), softmax_network(settings)
    digits = step("digits", lambda _: load_digits(settings))
    K = step("kernel of all images", lambda report: gram(net, digits, report))
    classes = step("classification", lambda _: classified(K, digits))
    index = digits.one_per_class(settings.digits)
    block = np.ix_(index, index)
    twins = step(
        "finite twins",
        lambda report: convergence(
            net,
            digits.images[index],
            {"nngp": K.nngp[block], "ntk": K.ntk[block]},
            key=jax.random.key(settings.twin_seed),
            widths=settings.widths,
            networks=settings.networks,
            head_width=settings.head_width,
            tokens=digits.images.shape[1:3],
            progress=lambda done, total: report(done / total),
        ),
    )
    softmax = step("softmax attention", lambda _: softmax_block(softmax_net, digits, settings))
    n = digits.train
    heads = step(
        "heads",
        lambda report: compare_heads(
            softmax_network(dataclasses.replace(settings, depth=1)),
            lf.Attention(qk_std=settings.qk_std),
            digits.images[:n],
            digits.labels[:n],
            digits.images[n:],
            digits.labels[n:],
            key=jax.random.key(settings.draw_seed),
            heads=settings.heads,
            draws=settings.law_draws,
            particles=settings.particles,
            train=settings.few,
            test=settings.asked,
            progress=report,
        ),
    )
    depth = step(
        "depth",
        lambda report: profiles(
            softmax_net.layers[:2],
            lf.Attention(qk_std=settings.qk_std),
            digits.images[: settings.followed].astype(float),
            depth=settings.blocks,
            draws=settings.draws // 8,
            progress=report,
        ),
    )
    model = step("a real model", lambda _: read_model() if settings.model else None)
    return Demo(
        settings, net, softmax_net, digits, K, classes, twins, softmax, heads, depth, model, seconds
    )
