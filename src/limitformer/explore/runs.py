"""Runs through depth that are carried on from where the last move left them.

A run's draws do not depend on its depth, so a move of the depth slider computes only the blocks
that are new; and they are the same draws on every move, so curves do not flicker.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..depth.metrics import mean_cosine, relative_residual
from . import kernels, twins
from .settings import Settings

Check = Callable[[], None]
"""Raises where nobody waits for the answer any more."""

DEEPEST = 24
WORK = 1 << 18
"""Entries of all heads' score matrices that a first answer draws for every block."""
TWIN_WORK = 2 * WORK
"""Weights and activations that a first answer holds of every block of the finite networks."""
_KEPT = 48


def normals(seed: int, layer: int, count: int) -> np.ndarray:
    """Standard normals of one block, float32; longer arrays begin with the shorter ones."""
    pooled = _pooled(layer)
    if seed == 0 and count <= pooled:
        return _pool(layer, pooled)[:count]
    return _generator(seed, layer).standard_normal(count, np.float32)


def warm_up(check: Check) -> None:
    """Draw the normals of first answers and compile the activations, about a second."""
    for layer in range(2 * (DEEPEST + 1)):
        check()
        _pool(layer, _pooled(layer))
    for name in kernels.ACTIVATIONS:
        check()
        kernels.activation(name, np.eye(2)[None])


def _pooled(layer: int) -> int:
    """Normals of a block that are kept: those of kernels, and the more of finite networks."""
    return WORK if layer <= DEEPEST else TWIN_WORK


def _generator(seed: int, layer: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([seed, layer]))


@functools.lru_cache(maxsize=2 * (DEEPEST + 1))
def _pool(layer: int, count: int) -> np.ndarray:
    found = _generator(0, layer).standard_normal(count, np.float32)
    found.flags.writeable = False
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """What is kept of the kernels after a block.

    Attributes:
        mean: `(tokens, tokens)` over draws.
        corner: `(draws, 2, 2)` of the first two tokens.
        pooled: `(draws,)` of the mean token.
        cosine, residual: `(draws,)` mean cosine of two tokens, relative residual.
    """

    mean: np.ndarray
    corner: np.ndarray
    pooled: np.ndarray
    cosine: np.ndarray
    residual: np.ndarray

    @classmethod
    def of(cls, K: np.ndarray) -> Step:
        return cls(
            K.mean(axis=0),
            K[:, :2, :2].copy(),
            K.mean(axis=(1, 2)),
            np.atleast_1d(mean_cosine(kernel=K)),
            np.atleast_1d(relative_residual(kernel=K)),
        )


class KernelRun:
    """Kernels of some draws of the scores, after as many blocks as were asked for."""

    def __init__(self, s: Settings, seed: int, work: int = WORK):
        self.settings, self.seed = s, seed
        self.draws, self.heads = kernels.draws_of(s, work)
        self._lock = threading.Lock()
        self._K = np.repeat(kernels.first_kernel(s)[None], self.draws, axis=0)
        self._steps = [Step.of(self._K)]

    def steps(self, depth: int, check: Check) -> list[Step]:
        """After the embedding and after every block."""
        with self._lock:
            while len(self._steps) <= depth:
                check()
                Z = self.scores(len(self._steps))
                self._K = kernels.block(self.settings, self._K, Z)
                self._steps.append(Step.of(self._K))
            return self._steps[: depth + 1]

    def scores(self, layer: int) -> np.ndarray | None:
        """Normals of the scores of a block, counted from 1."""
        shape = kernels.scores_shape(self.settings, self.draws, self.heads)
        if shape is None:
            return None
        return normals(self.seed, layer, kernels.size(shape)).reshape(shape).astype(float)


class TwinRun:
    """Finite networks, after as many blocks as were asked for."""

    def __init__(self, s: Settings, seed: int, work: int = TWIN_WORK):
        self.settings, self.seed = s, seed
        self.networks = twins.networks_of(s, work)
        self._lock = threading.Lock()
        self._h = twins.first_channels(s, self.networks, self._normals(DEEPEST + 1))
        last = self._normals(0)(self.networks * int(s.width))
        self._last = last.reshape(self.networks, -1)
        self._outputs = [twins.outputs(self._h, self._last)]

    def outputs(self, depth: int, check: Check) -> np.ndarray:
        """`(networks, tokens)` after this many blocks."""
        with self._lock:
            while len(self._outputs) <= depth:
                check()
                draw = self._normals(DEEPEST + 1 + len(self._outputs))
                W = twins.draw_weights(self.settings, self.networks, draw)
                self._h = twins.block(self.settings, self._h, W)
                self._outputs.append(twins.outputs(self._h, self._last))
            return self._outputs[depth]

    def _normals(self, layer: int) -> twins.Normals:
        # without norms channels can grow beyond float32
        kind = float if self.settings.norm == "none" else np.float32
        return lambda count: normals(self.seed, layer, count).astype(kind, copy=False)


class Cache:
    """The last runs, shared by all tabs."""

    def __init__(self, kept: int = _KEPT):
        self._kept = kept
        self._lock = threading.Lock()
        self._runs: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def kernel(self, s: Settings, seed: int, work: int = WORK) -> KernelRun:
        s = dataclasses.replace(s, depth=1, of="token", width="8")
        return self._run(KernelRun, s, seed, work)

    def twin(self, s: Settings, seed: int) -> TwinRun:
        s = dataclasses.replace(s, depth=1, of="token")
        return self._run(TwinRun, s, seed)

    def _run(self, kind, *key) -> Any:
        with self._lock:
            run = self._runs.pop((kind, *key), None)
        if run is None:
            run = kind(*key)
        with self._lock:
            self._runs[kind, *key] = run
            while len(self._runs) > self._kept:
                self._runs.popitem(last=False)
        return run
