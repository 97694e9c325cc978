"""Trace and compile time of deep networks: 64 blocks against 4, each in a process of its own.

    python benchmarks/compile_time.py

A transformer's blocks are repeated by a scan, so the time must not grow with depth.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
DEPTHS = (4, 64)
KINDS = {
    "identity attention at scale sqrt": {"scale": "sqrt", "weights": "identity"},
    "softmax attention at scale linear": {"scale": "linear", "weights": "softmax"},
    "softmax attention at scale sqrt, 64 draws": {"scale": "sqrt", "weights": "softmax"},
}


def measure(name: str, depth: int) -> dict[str, float]:
    """First and second call of one network in this process."""
    import numpy as np

    import limitformer as lf

    options = KINDS[name]
    block = lf.Block(lf.Attention(**options, qk_std=0.1))
    net = lf.Serial(lf.Dense(), lf.Repeat(block, depth), lf.MeanPool(), lf.Dense())
    x = np.random.default_rng(0).standard_normal((4, 8, 5))
    times = []
    for _ in range(2):
        start = time.perf_counter()
        net.kernel(x, draws=64)
        times.append(time.perf_counter() - start)
    return {"first": times[0], "second": times[1]}


def main() -> None:
    """Measure every network three times and print the table."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
        return
    lines = ["| network | 4 blocks, s | 64 blocks, s | ratio (aim 1.5) |", "|---|---|---|---|"]
    for name in KINDS:
        found = {}
        for depth in DEPTHS:
            runs = [
                json.loads(
                    subprocess.run(
                        [sys.executable, __file__, name, str(depth)],
                        check=True,
                        capture_output=True,
                        text=True,
                    ).stdout
                )
                for _ in range(3)
            ]
            found[depth] = median(run["first"] - run["second"] for run in runs)
        few, many = (found[depth] for depth in DEPTHS)
        lines.append(f"| {name} | {few:.2f} | {many:.2f} | {many / few:.2f} |")
    text = "\n".join(lines)
    print(text)
    (HERE / "results" / "compile_time.md").write_text(
        "# Trace and compile time, 64 blocks against 4\n\nFirst call less a second one, median of "
        f"three processes.\n\n{text}\n"
    )


if __name__ == "__main__":
    main()
