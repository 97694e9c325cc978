"""One case in one process: compiles, runs and reports when the driver says so.

The driver keeps a worker of each library alive and lets them run in turn, so that both see the same
machine. Commands come on standard input, one word a line; answers go out as one line of JSON each.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np

Results = Mapping[str, np.ndarray]
SHORTEST_ROUND = 0.4  # seconds; a round repeats short calls until then
BLOCK = 8  # rows and columns of the result that are sent back for comparison


def rss_mb() -> float:
    """Peak resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve(prepare: Callable[[], Callable[[], Results]]) -> None:
    """Answers the driver.

    Args:
        prepare: builds the network and the inputs and returns the call that is timed, which has
            finished the work when it returns.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(**values):
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    call = prepare()
    answer(import_mb=rss_mb())
    result: Results = {}
    for line in sys.stdin:
        match line.strip():
            case "first":
                start = time.perf_counter()
                result = call()
                answer(seconds=time.perf_counter() - start)
            case "round":
                times: list[float] = []
                cpu_times: list[float] = []
                while not times or sum(times) < SHORTEST_ROUND:
                    start, cpu_start = time.perf_counter(), time.process_time()
                    result = call()
                    times.append(time.perf_counter() - start)
                    cpu_times.append(time.process_time() - cpu_start)
                answer(times=times, cpu_times=cpu_times)
            case "values":
                values = {k: np.asarray(v)[:BLOCK, :BLOCK].tolist() for k, v in result.items()}
                dtypes = {k: str(v.dtype) for k, v in result.items()}
                answer(values=values, dtypes=dtypes, peak_mb=rss_mb())
            case "quit":
                return
