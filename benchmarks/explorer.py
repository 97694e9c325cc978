"""How long the explorer takes to answer a move of a slider.

    python benchmarks/explorer.py [--moves 400] [--out benchmarks/results/explorer.md]

A walk over all settings: every move takes one control, drawn at random, to a value drawn at random
(so half of the walk has more than 32 tokens or more than 12 blocks), and asks for all panels at
once, as the page does. After a third of the moves the page rests and asks for better answers, which
the next move interrupts. Times are from sending the requests to the last byte of both answers.
"""

import argparse
import concurrent.futures
import dataclasses
import http.client
import os
import threading
import time
from pathlib import Path

import numpy as np

from limitformer.explore.runs import warm_up
from limitformer.explore.server import Explorer
from limitformer.explore.settings import CONTROLS, Range, Settings

PANELS = ("theory", "twin")


def moved(s, rng):
    name = str(rng.choice(list(CONTROLS)))
    kind = CONTROLS[name].kind
    if isinstance(kind, Range):
        value = kind.low + rng.integers(1 + round((kind.high - kind.low) / kind.step)) * kind.step
        value = int(value) if kind.whole else round(float(value), 9)
    else:
        value = str(rng.choice(list(kind.names)))
    return name, dataclasses.replace(s, **{name: value})


def ask(server, panel, s, stage, move):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", f"/api/{panel}?{s.query}&stage={stage}&tab=walk&move={move}")
    response = connection.getresponse()
    response.read()
    connection.close()
    if response.status not in (200, 409):
        raise RuntimeError(f"{panel} of {s}: status {response.status}")


def walk(server, moves, seed=0):
    rng, s, found = np.random.default_rng(seed), Settings(tokens=64, depth=12), []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for move in range(moves):
            name, s = moved(s, rng)
            start, spent = time.perf_counter(), time.process_time()
            sent = [pool.submit(ask, server, panel, s, 0, move) for panel in PANELS]
            for answer in sent:
                answer.result()
            times = time.perf_counter() - start, time.process_time() - spent
            found.append((name, s, *(1e3 * t for t in times)))
            if rng.random() < 1 / 3:
                for panel in PANELS:
                    pool.submit(ask, server, panel, s, 1, move)
                time.sleep(0.3)
    return found


def table(found):
    rows = [("all", found)]
    for low, high in ((2, 16), (17, 32), (33, 64)):
        rows.append((f"{low} to {high} tokens", [f for f in found if low <= f[1].tokens <= high]))
    large = [f for f in rows[-1][1] if f[1].random and f[1].depth > 12]
    rows.append(("those with random scores and more than 12 blocks", large))
    rows += [(f"of `{name}`", [f for f in found if f[0] == name]) for name in CONTROLS]
    head = ("moves", "", "50 %", "95 %", "99 %", "longest", "below 500 ms", "CPU 50 %", "CPU 95 %")
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
    for label, part in rows:
        if part:
            wall, cpu = np.array([f[2:] for f in part]).T
            cells = [label, str(len(part)), *_ms(wall, (50, 95, 99, 100))]
            cells += [f"{np.mean(wall < 500):.1%}", *_ms(cpu, (50, 95))]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ms(times, cuts):
    return [f"{v:.0f} ms" for v in np.percentile(times, cuts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--moves", type=int, default=400)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with Explorer(0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        warm_up(server.go_on)
        load = os.getloadavg()[0]
        text = table(walk(server, given.moves))
        server.shutdown()
    print(text)
    if given.out is not None:
        given.out.write_text(
            "# Response of the explorer\n\n"
            f"`python benchmarks/explorer.py --moves {given.moves}` on {os.cpu_count()} cores, of "
            f"which others kept {load:.1f} busy before it began (load average).\n\n{text}\n"
        )


if __name__ == "__main__":
    main()
