"""Run the tasks of a Gram matrix: in this process, by an executor, or on Dask workers.

Tasks are pure and the store knows what is finished, so there is nothing to recover: whatever
stops a run, the same call again computes the tiles that are missing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any

from ..extras import optional
from ..kernel.progress import Progress
from .task import run_tile

_AHEAD = 512  # tasks that a scheduler knows of at once
_DEATHS = 20  # workers that may die over one tile before the tile is given up
_AGAIN = "finished tiles are kept: the same call again computes the others"


@contextlib.contextmanager
def runner(scheduler) -> Iterator[Callable]:
    """A function `run(function, calls)` that yields results of `function(*call)` as they come.

    Args:
        scheduler: None (this process), a Dask client or its address, or an executor of
            `concurrent.futures`.
    """
    if scheduler is None:
        yield _here
    elif isinstance(scheduler, Executor):
        yield lambda function, calls: _executed(scheduler, function, calls)
    elif isinstance(scheduler, str):
        with optional("distributed", "tiles").Client(scheduler, set_as_default=False) as client:
            yield lambda function, calls: _on_dask(client, function, calls)
    elif hasattr(scheduler, "scheduler_info") and hasattr(scheduler, "submit"):
        yield lambda function, calls: _on_dask(scheduler, function, calls)
    else:
        raise TypeError(
            f"scheduler={scheduler!r}: give a dask.distributed.Client, its address such as "
            '"tcp://host:8786", an executor of concurrent.futures, or None for this process'
        )


def run_tiles(store, todo, scheduler, progress: Progress | None) -> None:
    """Compute some tiles of a store; progress counts all of its tiles."""
    total = len(store.layout.tiles())
    done = total - len(todo)
    if progress is not None:
        progress.before = done
    calls = [(store.location.url, store.identity, i, j) for i, j in todo]
    with runner(scheduler) as run:
        for _ in run(run_tile, calls):
            done += 1
            if progress is not None:
                progress(done, total)


def _here(function: Callable, calls) -> Iterator[Any]:
    try:
        for call in calls:
            yield function(*call)
    except Exception as error:
        error.add_note(_AGAIN)
        raise


def _executed(pool: Executor, function: Callable, calls) -> Iterator[Any]:
    calls = iter(calls)
    waiting: set[Future] = set()
    try:
        while True:
            waiting |= {
                pool.submit(function, *call)
                for call in itertools.islice(calls, max(0, _AHEAD - len(waiting)))
            }
            if not waiting:
                return
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for one in finished:
                yield one.result()
    except Exception as error:
        error.add_note(_AGAIN)
        raise
    finally:
        for one in waiting:
            one.cancel()


def _on_dask(client: Any, function: Callable, calls) -> Iterator[Any]:
    distributed = optional("distributed", "tiles")
    calls = iter(calls)
    running = distributed.as_completed([], loop=client.loop)
    known: dict[Any, tuple] = {}  # the call of every future, and the deaths it has seen

    def submit(call, deaths: int) -> None:
        future = client.submit(function, *call, pure=False, retries=2)
        known[future] = call, deaths
        running.add(future)

    try:
        for call in itertools.islice(calls, _AHEAD):
            submit(call, 0)
        for future in running:
            call, deaths = known.pop(future)
            if future.status == "finished":
                yield future.result()
                for following in itertools.islice(calls, 1):
                    submit(following, 0)
            elif future.status == "error":
                error = future.exception()
                if not isinstance(error, distributed.KilledWorker) or deaths >= _DEATHS:
                    error.add_note(_AGAIN)
                    raise error
                submit(call, deaths + 1)
            else:
                raise ConnectionError(f"the Dask scheduler went away ({future.status}); {_AGAIN}")
    except distributed.comm.CommClosedError as error:
        raise ConnectionError(f"the Dask scheduler went away ({error}); {_AGAIN}") from error
    finally:
        with contextlib.suppress(Exception):
            client.cancel(list(known))
